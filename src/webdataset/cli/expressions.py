"""The user's Python code: expressions, statements, files and functions that work on samples.

The code sees the sample as `_` and its fields by name, decoded when they are accessed.

>>> double = compiled("cls * 2")
>>> double({"__key__": "a", "cls": b"4"})
8
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

from webdataset.errors import WebDatasetError
from webdataset.tools.transform.lazy import DecodeField, LazySample, field_decoder, missing_field

from .grammar import UsageError

MODULES = {"np": "numpy", "torch": "torch", "wds": "webdataset"} | {
    name: name for name in ("io", "json", "math", "os", "random", "re")
}
"""Modules that code may use without importing them; a field of the same name takes precedence."""

IN_PLACE = ("clear", "pop", "popitem", "setdefault", "update")


def compiled(code: str, *, decode: str = "rgb", precode: str = "", what: str = "the expression") -> Expression:
    """Compile an expression, to be called with samples; a syntax error is a UsageError that shows where."""
    return Expression(_code(code, "eval", what), field_decoder(decode), precode)


def predicate(code: str, *, decode: str = "rgb") -> Callable[[dict[str, Any]], bool]:
    """Compile the condition of -S."""
    expression = compiled(code, decode=decode, what="the condition")
    return lambda sample: bool(expression(sample))


class Expression:
    """Compiled code, run with one sample after the other."""

    def __init__(self, code: CodeType, decode: DecodeField, precode: str = "") -> None:
        self._code = code
        self._decode = decode
        self._scope = scope = _Scope()
        if precode:
            exec(_code(precode, "exec", "the code to begin with"), scope)  # noqa: S102 - the user's own code
        self._own = frozenset(scope) | {"_", "__builtins__"}

    def __call__(self, sample: dict[str, Any]) -> Any:
        """Evaluate the expression for this sample."""
        return self.value(sample if isinstance(sample, LazySample) else LazySample(sample, self._decode))

    def value(self, sample: LazySample) -> Any:
        """Run the code; return an expression's value, None for statements."""
        scope = self._scope
        scope.sample = sample
        scope["_"] = sample
        try:
            return eval(self._code, scope)  # noqa: S307 - the user's own code
        except NameError as error:
            raise missing_field(error.name, sample) if error.name else error from None
        except WebDatasetError:
            raise
        except Exception as error:
            raise CodeError(f"{type(error).__name__}: {error}") from error

    def changed(self, sample: LazySample) -> Any:
        """Run statements and return `_`. Fields that were assigned to by name are changed in the sample."""
        self.value(sample)
        scope = self._scope
        if len(scope) > len(self._own):
            for name in [name for name in scope if name not in self._own]:
                if name in sample:
                    sample[name] = scope[name]
                del scope[name]
        return scope["_"]


class _Scope(dict[str, Any]):
    """The names that code sees: its own, then the sample's fields, then Python's, then a few modules."""

    sample: LazySample

    def __missing__(self, name: str) -> Any:
        sample = getattr(self, "sample", None)
        if sample is not None and name in sample:
            return sample[name]
        if name == COPY:
            return _copy_of_sample
        if name in MODULES and not hasattr(builtins, name):
            return importlib.import_module(MODULES[name])
        raise KeyError(name)


def transformation(
    code: str | None = None,
    *,
    load: str | None = None,
    function: str | None = None,
    inline: str | None = None,
    decode: str = "rgb",
    precode: str = "",
) -> Callable[[LazySample], Any]:
    """Return the user's function of a sample: an expression, statements, FILE.py or module:function.

    `inline` is the text of such a file: it defines transform(sample).
    """
    given = [text for text in (code, load, function, inline) if text is not None]
    if len(given) != 1:
        raise UsageError("pass the code once: as an expression or statements, a file, or module:function")
    if inline is not None:
        scope = _Scope()
        exec(_code(inline, "exec", "the module"), scope)  # noqa: S102 - the user's own code
        return _attribute(SimpleNamespace(**scope), "transform", "the module")
    if code is None:
        return _loaded(load) if load is not None else _imported(str(function))
    return statement_or_value(code, decode=decode, precode=precode)


def stages(code: str, *, precode: str = "") -> list[Callable[[Any], Any]]:
    """Evaluate an expression that makes a stage or a list of stages; `wds` is the library.

    >>> [stage(iter([{"__key__": "a"}])) is not None for stage in stages("[wds.shuffle(3), wds.map(dict)]")]
    [True, True]
    """
    scope = _Scope()
    if precode:
        exec(_code(precode, "exec", "the code to begin with"), scope)  # noqa: S102 - the user's own code
    try:
        value = eval(_code(code, "eval", "the pipeline"), scope)  # noqa: S307 - the user's own code
    except NameError as error:
        raise UsageError(f"the pipeline uses {error.name!r}, which is not defined; wds is the library") from None
    found = list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(map(callable, found)):
        raise UsageError("the pipeline is a stage or a list of stages, such as [wds.shuffle(100), wds.map(f)]")
    return found


def statement_or_value(code: str, *, decode: str, precode: str) -> Callable[[LazySample], Any]:
    """Return a function whose result is the value of an expression, or `_` after statements and in-place changes."""
    try:
        is_value = not _changes_in_place(ast.parse(code, "<code>", "eval").body)
    except SyntaxError:
        is_value = False
    expression = Expression(_code(code, "eval" if is_value else "exec", "the code"), field_decoder(decode), precode)
    return expression.value if is_value else expression.changed


def _changes_in_place(node: ast.expr) -> bool:
    """Whether a call such as `print(...)` or `_.update(...)` is made for its effect, not its value."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute):
        return isinstance(called.value, ast.Name) and called.value.id == "_" and called.attr in IN_PLACE
    return isinstance(called, ast.Name) and called.id == "print"


def _code(code: str, mode: str, what: str) -> CodeType:
    try:
        tree = compile(code.strip() if mode == "eval" else code, "<code>", mode, ast.PyCF_ONLY_AST)
        return compile(ast.fix_missing_locations(_Copies().visit(tree)), "<code>", mode)
    except SyntaxError as error:
        raise UsageError(f"{what} has a syntax error: {error.msg}\n{_with_caret(error, code)}") from None
    except ValueError as error:  # a null byte
        raise UsageError(f"{what} is not Python: {error}") from None


def _with_caret(error: SyntaxError, code: str) -> str:
    """Show the line with a caret under the error.

    >>> try: compile("1 +* 2", "", "eval")
    ... except SyntaxError as error: print(_with_caret(error, "1 +* 2"))
      1 +* 2
         ^
    """
    line = (error.text or code).rstrip("\n")
    column = error.offset - 1 if error.offset else len(line)  # by default the end
    return f"  {line}\n  {' ' * column}^"


class _Copies(ast.NodeTransformer):
    """Makes copies of the sample, `dict(_, cls=1)` and `{**_, "cls": 1}`, ones that decode only what is accessed."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called, copied = node.func, node.args[:1]
        if isinstance(called, ast.Name) and called.id == "dict" and len(node.args) == 1 and _is_sample(copied[0]):
            return _changed([], node.keywords)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        if not node.keys or node.keys[0] is not None or not _is_sample(node.values[0]):
            return node
        rest = ast.Dict(node.keys[1:], node.values[1:])
        return _changed([rest] if rest.keys else [], [])


def _is_sample(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "_"


def _changed(changes: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
    """A call of `_copy_of_sample`; `_` may be something else than a sample by then."""
    return ast.Call(ast.Name(COPY, ast.Load()), [ast.Name("_", ast.Load()), *changes], keywords)


COPY = "__copy_of_sample__"


def _copy_of_sample(sample: Any, *changes: Any, **fields: Any) -> dict[Any, Any]:
    if isinstance(sample, LazySample):
        return sample.changed(*changes, **fields)
    copy = dict(sample, **fields)
    for change in changes:
        copy.update(change)
    return copy


class CodeError(WebDatasetError):
    """The user's code failed for a sample."""


def _loaded(path: str) -> Callable[[LazySample], Any]:
    """Load a function from a file: FILE.py:name, or `transform`."""
    file, colon, name = path.rpartition(":") if not os.path.exists(path) else (path, "", "")
    file, name = (file, name) if colon else (path, "transform")
    if not os.path.exists(file):
        raise UsageError(f"there is no file {file!r} to load code from")
    spec = importlib.util.spec_from_file_location("_wl_code", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file!r} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{file}:{error.lineno}: {error.msg}\n{_with_caret(error, '')}") from None
    return _attribute(module, name, file)


def _imported(path: str) -> Callable[[LazySample], Any]:
    module_name, _, name = path.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as with `python -m`: modules in the current folder
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"cannot import {module_name!r}: {error}; write module:function") from None
    return _attribute(module, name or "transform", module_name)


def _attribute(module: object, name: str, place: str) -> Callable[[LazySample], Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(f"{place} has no function {name!r}; define one, or write {place}:FUNCTION")
    return found  # type: ignore[no-any-return]
