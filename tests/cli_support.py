"""Fixtures: commands run in this process, and the samples that archives hold."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs_support import make_inputs
from webdataset.cli import main
from webdataset.cli.old.programs import main as old_main

SUMMARY = re.compile(r"(?m)^.* read(, .*)?, in [\d.,]+ s \([\d,]+/s\)\n")


def without_summary(text: str) -> str:
    """What a command said on stderr without the line that says how much was read and written."""
    return SUMMARY.sub("", text)


Run = Callable[..., "Ended"]


class Ended:
    """How a command ended."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def told(self) -> str:
        """What it said on stderr but for the summary, in which times differ."""
        return without_summary(self.err)

    @property
    def facts(self) -> dict[str, Any]:
        """What the last line on stderr says to programs that asked with --json."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        return found


@pytest.fixture
def wl(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """`wl("map", ...)` runs a command; `wl.old("tarsort", ...)` an old program."""

    def run(*words: object) -> Ended:
        code = main([str(word) for word in words])
        out, err = capsysbinary.readouterr()
        return Ended(code, out, err.decode())

    def run_old(*words: object) -> Ended:
        code = old_main([str(word) for word in words])
        out, err = capsysbinary.readouterr()
        return Ended(code, out, err.decode())

    run.old = run_old  # type: ignore[attr-defined]
    return run


@pytest.fixture
def names() -> Callable[[object], list[str]]:
    """The members of an archive, as GNU tar lists them."""

    def listed(archive: object) -> list[str]:
        source = {"input": archive} if isinstance(archive, bytes) else {}
        name = "-" if isinstance(archive, bytes) else str(archive)
        told = subprocess.run(["tar", "-tf", name], capture_output=True, check=True, **source)
        return told.stdout.decode().split("\n")[:-1]

    return listed


@pytest.fixture
def members() -> Callable[[object], Counter[tuple[str, bytes]]]:
    """What an archive holds, read by Python's tarfile: names and contents, counted."""
    import io
    import tarfile

    def read(archive: object) -> Counter[tuple[str, bytes]]:
        data = archive if isinstance(archive, bytes) else Path(str(archive)).read_bytes()
        found: Counter[tuple[str, bytes]] = Counter()
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            for member in opened:
                file = opened.extractfile(member)
                assert file is not None
                found[member.name, file.read()] += 1
        return found

    return read


@pytest.fixture
def wl_process() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """A command as a process of its own."""

    def run(*words: object, **options: object) -> subprocess.CompletedProcess[bytes]:
        argv = [sys.executable, "-m", "webdataset", *map(str, words)]
        return subprocess.run(argv, capture_output=True, check=False, timeout=60, **options)  # type: ignore[call-overload, no-any-return]

    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with three shards and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    make_inputs(tmp_path, 3)
    return tmp_path
