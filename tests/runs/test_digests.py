"""Digests: another function is another digest, the same one is the same in every process."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import runs_support
from webdataset.runs.digests import digest_of, function_digest


def made(source: str, name: str = "f") -> Any:
    """A function of a text."""
    names: dict[str, Any] = {"__name__": "made"}
    exec(compile(source, "made.py", "exec"), names)
    return names[name]


def test_what_a_function_does_is_in_its_digest() -> None:
    texts = [
        "def f(x): return x + 1",
        "def f(x): return x + 2",
        "def f(x, y=1): return x + 1",
        "def f(x, y=2): return x + 1",
        "def f(x): return len(x)",
        "def f(x): return max(x)",
        "N = 1\ndef f(x): return x + N",
        "N = 2\ndef f(x): return x + N",
        "def g(x): return 1\ndef f(x): return g(x)",
        "def g(x): return 2\ndef f(x): return g(x)",
        "def f(x): return [n + 1 for n in x]",
        "def f(x): return [n + 2 for n in x]",
    ]
    digests = [function_digest(made(text)) for text in texts]
    assert len(set(digests)) == len(texts)
    assert digests == [function_digest(made(text)) for text in texts]


def test_comments_and_lines_are_not() -> None:
    assert function_digest(made("def f(x): return x")) == function_digest(made("\n\n# why\ndef f(x):\n    return x"))


def test_arguments_and_closures_are() -> None:
    power = made("def f(x, y): return x ** y")
    assert function_digest(partial(power, y=1)) != function_digest(partial(power, y=2))
    add = made("def f(n): return lambda x: x + n")
    assert function_digest(add(1)) != function_digest(add(2))


def test_functions_that_call_each_other() -> None:
    assert function_digest(made("def g(x): return f(x)\ndef f(x): return g(x)"))


def test_the_digest_is_the_same_in_another_process() -> None:
    program = (
        "import runs_support; from webdataset.runs.digests import function_digest as d; print(d(runs_support.doubled))"
    )
    folder = Path(runs_support.__file__).parent
    told = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == function_digest(runs_support.doubled)


def test_files_that_a_program_uses_are_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("one")
    before = digest_of({"a": 1}, [str(path)])
    path.write_text("two")
    assert digest_of({"a": 1}, [str(path)]) != before
