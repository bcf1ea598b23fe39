"""Digests: another function is another digest, the same one is the same in every process."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import textwrap
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    before = digest_of({"files": [str(path)]})
    path.write_text("two")
    assert digest_of({"files": ["code.py"]}, str(tmp_path)) != before


def digest_in_a_new_process(folder: Path, program: str) -> str:
    """What a program in this folder prints; its warnings too."""
    (folder / "program.py").write_text(textwrap.dedent(program))
    # -B: files that change within a second look unchanged to Python's own cache of compiled modules
    told = subprocess.run([sys.executable, "-B", "program.py"], cwd=folder, capture_output=True, text=True, check=True)
    return told.stdout + told.stderr


USES = """
    import {module}
    from {module} import helper, Scaler
    from webdataset.runs.digests import function_digest

    def f(source, target):
        {body}

    print(function_digest(f))
"""
HELPERS = """
from deeper import third
FACTOR = 1
def helper(x):
    return third(x) * FACTOR
class Scaler:
    factor = 1
    def __call__(self, x):
        return x * 2
"""


@pytest.mark.parametrize("body", ["return helper(1)", "return Scaler()(1)", "return helpers.helper(1)"])
def test_helpers_of_the_users_own_modules_are_part_of_a_function(tmp_path: Path, body: str) -> None:
    (tmp_path / "deeper.py").write_text("def third(x):\n    return x / 3\n")
    (tmp_path / "helpers.py").write_text(HELPERS)
    program = USES.format(module="helpers", body=body)
    before = digest_in_a_new_process(tmp_path, program)
    assert digest_in_a_new_process(tmp_path, program) == before
    changes = [("x * 2", "x * 3")] if "Scaler" in body else [("FACTOR = 1", "FACTOR = 2"), ("third(x) *", "third(x) +")]
    found = {before}
    for old, new in changes:
        (tmp_path / "helpers.py").write_text(HELPERS.replace(old, new))
        found.add(digest_in_a_new_process(tmp_path, program))
    (tmp_path / "helpers.py").write_text(HELPERS)
    if "helper(" in body:
        (tmp_path / "deeper.py").write_text("def third(x):\n    return x / 4\n")
        found.add(digest_in_a_new_process(tmp_path, program))
    assert len(found) == len(changes) + 1 + ("helper(" in body)


def test_modules_that_a_function_imports_inside_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "inner.py").write_text("from . import other\ndef helper(x): return other.N\nScaler = 1\n")
    (tmp_path / "package" / "other.py").write_text("N = 1\n")
    program = USES.format(module="package.inner", body="import package.inner; return package.inner.helper(1)")
    program = program.replace("    from package.inner import helper, Scaler\n", "").replace(
        "    import package.inner\n", "", 1
    )
    before = digest_in_a_new_process(tmp_path, program)
    (tmp_path / "package" / "other.py").write_text("# only a comment\nN = 1\n")
    assert digest_in_a_new_process(tmp_path, program) == before
    (tmp_path / "package" / "other.py").write_text("N = 2\n")
    assert digest_in_a_new_process(tmp_path, program) != before


@pytest.mark.parametrize(
    "function",
    [
        "import package.inner\ndef f(a, b): return package.inner.helper(1)",
        "def f(a, b):\n    from package import inner\n    return inner.helper(1)",
        "from package.outer import helper\ndef f(a, b): return helper(1)",
        "from package.inner import Wrapper\n@Wrapper\ndef f(a, b): return 1",
    ],
    ids=["attribute", "inside", "relative and inside", "wrapper"],
)
@pytest.mark.parametrize("is_namespace", [False, True], ids=["package", "namespace"])
def test_modules_of_packages_are_part_of_a_function(tmp_path: Path, function: str, is_namespace: bool) -> None:
    (tmp_path / "package").mkdir()
    if not is_namespace:
        (tmp_path / "package" / "__init__.py").write_text("")
    outer = "def helper(x):\n    from . import inner\n    return inner.helper(x)\n"
    inner = "import functools\ndef helper(x): return x + 1\nclass Wrapper:\n"
    inner += "    def __init__(self, f): functools.update_wrapper(self, f)\n"
    inner += "    def __call__(self, *args): return self.__wrapped__(*args) + 1\n"
    (tmp_path / "package" / "outer.py").write_text(outer)
    (tmp_path / "package" / "inner.py").write_text(inner)
    program = f"{function}\nfrom webdataset.runs.digests import function_digest\nprint(function_digest(f))"
    before = digest_in_a_new_process(tmp_path, program)
    assert digest_in_a_new_process(tmp_path, program) == before
    (tmp_path / "package" / "inner.py").write_text(inner.replace("+ 1", "+ 2"))
    assert digest_in_a_new_process(tmp_path, program) != before


def test_tensors_in_a_closure_are_known_by_their_values_in_every_process(tmp_path: Path) -> None:
    program = """
        import torch
        from webdataset.runs.digests import function_digest

        torch.manual_seed(SEED)
        model, table = torch.nn.Linear(3, 3), torch.full((4,), 1.5, dtype=torch.bfloat16)
        print(function_digest(lambda source, target: model(source) + table))
    """
    before = digest_in_a_new_process(tmp_path, program.replace("SEED", "1"))
    assert digest_in_a_new_process(tmp_path, program.replace("SEED", "1")) == before
    assert digest_in_a_new_process(tmp_path, program.replace("SEED", "2")) != before
    assert digest_in_a_new_process(tmp_path, program.replace("SEED", "1").replace("1.5", "2.5")) != before


def test_modules_that_expressions_and_files_import_are_part_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("N = 1\n")
    (tmp_path / "code.py").write_text("from helpers import N\n")
    programs: list[dict[str, Any]] = [
        {"files": ["code.py"]},
        {"options": {"precode": ["import helpers"]}},
        {"options": {"function": "helpers:f"}},
    ]
    before = [digest_of(program, str(tmp_path)) for program in programs]
    (tmp_path / "helpers.py").write_text("N = 2\n")
    assert all(digest_of(program, str(tmp_path)) != was for program, was in zip(programs, before, strict=True))


class Slotted:
    """An object without a dict."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Path("/a"), Path("/b")),
        (np.array([1, 2]), np.array([1, 3])),
        (date(2026, 1, 1), date(2026, 1, 2)),
        (Decimal("1.0"), Decimal("1.1")),
        (Slotted(1), Slotted(2)),
        ([Slotted(1)], [Slotted(2)]),
        ({frozenset({Decimal(1)})}, {frozenset({Decimal(2)})}),
        (re.compile("a"), re.compile("b")),
        (np.float32(1).dtype, np.float64(1).dtype),
        (Slotted(1).__init__, Slotted(2).__init__),
    ],
)
def test_values_of_all_kinds_are_part_of_a_closure(one: Any, other: Any) -> None:
    keep = made("def f(n): return lambda: n")
    assert function_digest(keep(one)) != function_digest(keep(other))
    assert function_digest(keep(one)) == function_digest(keep(copy.deepcopy(one)))


def test_what_calling_an_object_does_is_in_its_digest() -> None:
    text = "class C:\n    def __call__(self, x): return x + {}\n    @property\n    def p(self): return {}\nf = C()"
    texts = [text.format(1, 1), text.format(2, 1), text.format(1, 2)]
    assert len({function_digest(made(text)) for text in texts}) == 3


def test_a_variable_that_has_no_value_yet_is_no_error() -> None:
    text = "def outer():\n    def f(x): return later if x else {}\n    if 0: later = 1\n    return f\nf = outer()"
    assert function_digest(made(text.format(1))) != function_digest(made(text.format(2)))


def test_what_the_digest_does_not_see_is_said() -> None:
    keep = made("def f(n): return lambda: n")
    with pytest.warns(UserWarning, match="generator"):
        function_digest(keep(n for n in [1]))
    function_digest(keep(n for n in [1]), version="1")


@pytest.mark.parametrize(
    "text",
    [
        "class T(str):\n    def m(self): return {}\nt = T('x')",
        "class T(int): pass\nt = T(1)\nt.v = {}",
        "class T(list): pass\nt = T([1])\nt.v = {}",
        "class T(dict):\n    def m(self): return {}\nt = T()",
        "class T(set): pass\nt = T([1])\nt.v = {}",
        "class T(typing.NamedTuple):\n    v: int\n    def m(self): return {}\nt = T(1)",
        "class T(enum.IntEnum):\n    A = 1\n    def m(self): return {}\nt = T.A",
        "class M(type):\n    def m(cls): return {}\nclass t(metaclass=M): pass",
    ],
)
def test_kinds_of_strings_numbers_and_containers_are_known_by_all_that_they_have(text: str) -> None:
    program = f"import enum, typing\n{text}\nf = lambda: t"
    first, same, other = (function_digest(made(program.format(value))) for value in (1, 1, 2))
    assert first == same != other
