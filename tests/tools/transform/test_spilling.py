"""Temporary files are bounded, and go away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from cli_support import without_summary


def test_the_temporary_files_go_also_after_an_error(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    shard = make_shard(files=[(f"{i}.n", b"%d" % i if i < 90 else b"x") for i in range(100)])
    assert wl("sort", "-k", "n", "--as", "int", "--memory", "1k", "--tmpdir", tmp_path / "work", shard).code == 1
    assert os.listdir(tmp_path / "work") == []


@pytest.mark.parametrize("command", ["sort", "shuffle"])
def test_memory_is_bounded(tmp_path: Path, command: str) -> None:
    """300 MB of samples in less than 150 MB over the bare program."""
    with wds.TarWriter(str(tmp_path / "in.tar")) as sink:
        for i in range(3000):
            sink.write({"__key__": f"{(i * 7919) % 3000:06d}", "bin": bytes([i % 256]) * 100_000})
    limit = 250 << 20
    script = f"import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit})); "
    script += "from webdataset.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", script, command, str(tmp_path / "in.tar"), "--memory", "50M"]
    ended = subprocess.run([*argv, "-o", str(tmp_path / "out.tar")], capture_output=True, text=True, check=False)
    assert (ended.returncode, without_summary(ended.stderr)) == (0, "")
    assert (tmp_path / "out.tar").stat().st_size == (tmp_path / "in.tar").stat().st_size
