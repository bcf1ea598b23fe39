"""The examples at the top of the old programs' help, run as they are written."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from servers.programs import needs_programs_of
from tests_support import SCRIPTS, tar_bytes
from webdataset.cli.old.programs import PROGRAMS, examples

LINES = [line for program in PROGRAMS for line, _ in examples(program)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with all that the examples name."""
    monkeypatch.chdir(tmp_path)
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 0)).save(stream, "PNG")
    parts = (("cls", b"7"), ("png", stream.getvalue()), ("txt", b"text"))
    data = tar_bytes((f"{i:02d}.{field}", value) for i in range(12) for field, value in parts)
    for name in ("in.tar", "in.tgz", *(f"in-{i}.tar" for i in range(4))):
        Path(name).write_bytes(data)
    for folder in ("pictures", "up"):
        Path(folder).mkdir()
    for name in ("photo.png", "pictures/photo.png"):
        Path(name).write_bytes(stream.getvalue())
    Path("code.py").write_text("def transform(sample):\n    return sample\n")
    Path("plan.csv").write_text("__key__,@png,cls\na,photo.png,3\n")
    Path("plan.tsv").write_text("@png\tcls\nphoto.png\t3\n")
    Path("text.txt").write_text("one\ntwo\n")
    Path("text.tsv").write_text("one\t1\ntwo\t2\n")
    Path("recipe").write_text("a.png photo.png\na.cls text:7\n")
    Path("mix.yaml").write_text("sources:\n- shards: in-{0..1}.tar\n  weight: 3\n- shards: [in.tar]\n")
    monkeypatch.setenv("PATH", f"{SCRIPTS}:{os.environ['PATH']}")


@pytest.mark.parametrize("line", LINES)
def test_an_example_runs_as_written(line: str) -> None:
    needs_programs_of(line)
    told = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, timeout=100, check=False)
    assert told.returncode == 0, told.stderr.decode()
    assert b"Traceback" not in told.stderr


def test_help_begins_with_two_examples() -> None:
    for program in PROGRAMS:
        shown = subprocess.run([*program.split(), "--help"], capture_output=True, text=True, check=True).stdout
        before = shown[: shown.index("\nusage: ")]
        assert before.startswith("examples:\n")
        assert before.count(f"{program} ") >= 2
        assert before.count("  # ") == 2
    whole = subprocess.run(["tarp", "--help"], capture_output=True, text=True, check=True).stdout
    assert whole.count("tarp split") == 2
