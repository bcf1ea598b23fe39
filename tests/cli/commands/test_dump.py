"""wl dump."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inspected import Capture, mixed_shard, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def test_dump_writes_what_tar_would_extract(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    code, out, _ = wl(capsysbinary, "dump", "-o", f"{ours}/{{key}}", shard)
    assert (code, len(out.splitlines())) == (0, 50)
    subprocess.run(["tar", "-xf", shard, "-C", theirs], check=True)
    subprocess.run(["diff", "-r", ours, theirs], check=True)


def test_dump_does_not_overwrite_and_does_not_leave_its_folder(
    make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture
) -> None:
    (tmp_path / "t").mkdir()
    path = make_shard(files=[("../up.txt", b"evil"), ("/abs.txt", b"evil"), ("fine.txt", b"fine")])
    code, _, err = wl(capsysbinary, "dump", "-o", f"{tmp_path}/t/{{key}}", path)
    assert (code, "[member ../up.txt]" in err) == (1, True)
    code, out, err = wl(capsysbinary, "dump", "--json", "--on-error", "skip", "-o", f"{tmp_path}/t/{{key}}", path)
    assert (code, out) == (0, f"{tmp_path}/t/fine.txt\n".encode())
    assert json.loads(err)["samples_dropped"] == 2
    assert not (tmp_path / "up.txt").exists()
    assert wl(capsysbinary, "dump", "-s", "2", "-o", f"{tmp_path}/t/{{key}}", path)[0] == 1
    assert wl(capsysbinary, "dump", "--force", "-s", "2", "-o", f"{tmp_path}/t/{{key}}", path)[0] == 0


def test_dump_with_a_wrong_pattern_is_a_mistake_of_use(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "dump", "-o", "{}", shard)[0] == 2
