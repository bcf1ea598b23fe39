"""What type checkers make of programs that use the library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TYPED = Path(__file__).parent / "typed"
FIRST_MISTAKE = 6
"""The line of `wrong.py` from which on every line is one."""


def mypy(programs: list[Path], tmp_path: Path) -> list[tuple[str, int]]:
    """The lines in which mypy finds mistakes."""
    # torch alone takes mypy 10 s, and its types are not what is looked at
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\nignore_missing_imports = True\n")
    words = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir", str(tmp_path)]
    words += ["--config-file", str(tmp_path / "mypy.ini")]
    errors = [
        line for line in run("mypy", *words, *map(str, programs), cwd=tmp_path).splitlines() if ": error: " in line
    ]
    return sorted({(Path(line.split(":")[0]).name, int(line.split(":")[1])) for line in errors})


def pyright(programs: list[Path], tmp_path: Path) -> list[tuple[str, int]]:
    """The lines in which pyright finds mistakes."""
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    words = ["--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path / "pyrightconfig.json")]
    found: list[Any] = json.loads(run("basedpyright", *words, *map(str, programs), cwd=tmp_path))["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    return sorted({(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in errors})


def run(module: str, *words: str, cwd: Path) -> str:
    argv = [sys.executable, "-m", module, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd, timeout=280).stdout


@pytest.mark.parametrize("check", [mypy, pyright])
def test_programs_as_documented_are_accepted_and_mistakes_are_found(check: Any, tmp_path: Path) -> None:
    wrong = TYPED / "wrong.py"
    lines = len(wrong.read_text(encoding="utf-8").splitlines())
    found = check([TYPED / "documented.py", wrong], tmp_path)
    assert found == [("wrong.py", line) for line in range(FIRST_MISTAKE, lines + 1)]
