"""Conditions on samples, as a person types them: `cls == 3`, `json.score > 0.5 and "dog" in txt`, `width(jpg) < 64`.

They look like Python and are none: only comparisons, arithmetic on numbers, `and`, `or`, `not`, `in`, values of fields
and the functions below are understood, so that nothing can be run with them.

>>> Condition("cls > 2 and 'o' in txt").holds({"cls": 3, "txt": "dog"}.__getitem__)
True
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

MOST_CHARACTERS = 2000
MOST_NODES = 300
_LOOKS_LIKE_KEY = frozenset("<>=!()[]\"'")

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda one, other: one in other, ast.NotIn: lambda one, other: one not in other,
    ast.Is: operator.eq, ast.IsNot: operator.ne,
}  # fmt: skip
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "abs": abs, "min": min, "max": max, "sum": sum, "round": round, "sorted": sorted, "int": int,
    "float": float, "str": str,
}  # fmt: skip
_METHODS = frozenset(["lower", "upper", "strip", "startswith", "endswith", "count", "split", "get", "keys", "values"])
OF_FIELDS = ("size", "width", "height", "has")
"""Functions of a field rather than of its value: its bytes, the size of its picture, and whether it is there."""


class ConditionError(ValueError):
    """The condition cannot be understood; the message says which part."""


class Condition:
    """A condition that holds for a sample or does not."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise ConditionError(f"the condition has more than {MOST_CHARACTERS} characters")
        try:
            self._tree = ast.parse(text.strip(), "<condition>", "eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            place = getattr(error, "offset", None)
            where = f" at character {place}" if place else ""
            raise ConditionError(f"this is no condition{where}: {getattr(error, 'msg', error)}") from None
        nodes = list(ast.walk(self._tree))
        if len(nodes) > MOST_NODES:
            raise ConditionError("the condition has too many parts")
        for node in nodes:
            _check(node)

    def holds(self, value_of: Callable[[str], Any], facts_of: Callable[[str, str], Any] | None = None) -> bool:
        """Whether it holds; `value_of(field)` raises KeyError where there is none, and then it does not.

        `facts_of(function, field)` is the value of one of OF_FIELDS.
        """
        try:
            return bool(_Evaluation(value_of, facts_of).value(self._tree))
        except MissingValueError:
            return False


class MissingValueError(Exception):
    """The sample has no such field, or the value no such entry."""


def is_about_keys(query: str) -> bool:
    """Whether a query is a part of a key, rather than a condition.

    >>> is_about_keys("000123"), is_about_keys("train/n01 x"), is_about_keys("cls == 3")
    (True, True, False)
    """
    return not _LOOKS_LIKE_KEY & set(query)


class _Evaluation:
    def __init__(self, value_of: Callable[[str], Any], facts_of: Callable[[str, str], Any] | None) -> None:
        self._value_of = value_of
        self._facts_of = facts_of

    def value(self, node: ast.expr) -> Any:
        found: Any = getattr(self, f"_{type(node).__name__.lower()}")(node)
        return found

    def _constant(self, node: ast.Constant) -> object:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self._field(node.id)

    def _field(self, name: str) -> Any:
        try:
            return self._value_of(name)
        except KeyError:
            raise MissingValueError(name) from None

    def _attribute(self, node: ast.Attribute) -> Any:
        return self._entry(node.value, node.attr)

    def _subscript(self, node: ast.Subscript) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "_":
            return self._field(str(self.value(node.slice)))
        return self._entry(node.value, self.value(node.slice))

    def _entry(self, node: ast.expr, entry: Any) -> Any:
        value = self.value(node)
        try:
            if isinstance(value, dict) or (isinstance(value, (list, tuple, str)) and isinstance(entry, int)):
                return value[entry]
        except (KeyError, IndexError, TypeError):
            raise MissingValueError(str(entry)) from None
        if getattr(value, "ndim", 0) and isinstance(entry, int) and entry < len(value):
            return value[entry]
        raise MissingValueError(str(entry))

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> list[Any]:
        return [self.value(element) for element in node.elts]

    _tuple = _set = _list

    def _boolop(self, node: ast.BoolOp) -> bool:
        results = (self._truth(value) for value in node.values)
        return all(results) if isinstance(node.op, ast.And) else any(results)

    def _truth(self, node: ast.expr) -> bool:
        """A part that speaks of a field which is not there does not hold; the others still may."""
        try:
            return bool(self.value(node))
        except MissingValueError:
            return False

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._truth(node.operand)
        value = self.value(node.operand)
        return -value if isinstance(node.op, ast.USub) else +value

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if not all(isinstance(value, (int, float)) for value in (left, right)):
            raise TypeError("only numbers are added, subtracted, multiplied and divided here")
        return _ARITHMETIC[type(node.op)](left, right)

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for comparison, place in zip(node.ops, node.comparators, strict=True):
            right = self.value(place)
            if not bool(_COMPARISONS[type(comparison)](left, right)):
                return False
            left = right
        return True

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute):
            value = self.value(node.func.value)
            if not isinstance(value, (str, dict, list)):
                raise TypeError(f"{type(value).__name__} has no {node.func.attr}()")
            return getattr(value, node.func.attr)(*map(self.value, node.args))
        assert isinstance(node.func, ast.Name)
        if node.func.id in OF_FIELDS:
            name = _field_named(node.args[0])
            if self._facts_of is None or name is None:
                raise MissingValueError(node.func.id)
            try:
                return self._facts_of(node.func.id, name)
            except KeyError:
                raise MissingValueError(name) from None
        return _FUNCTIONS[node.func.id](*map(self.value, node.args))


def _check(node: ast.AST) -> None:
    """Refuse whatever is not understood, before anything is evaluated."""
    if isinstance(node, ast.Call):
        function = node.func
        known = isinstance(function, ast.Name) and (function.id in _FUNCTIONS or function.id in OF_FIELDS)
        if node.keywords or not (known or (isinstance(function, ast.Attribute) and function.attr in _METHODS)):
            raise ConditionError(
                f"{ast.unparse(node)} is not understood: there are {' '.join([*_FUNCTIONS, *OF_FIELDS])}"
            )
        if isinstance(function, ast.Name) and function.id in OF_FIELDS and len(node.args) != 1:
            raise ConditionError(f"{function.id}() takes the name of a field")
    elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
        raise ConditionError(f"{node.attr} is not understood")
    elif not isinstance(node, _UNDERSTOOD):
        raise ConditionError(f"{_told(node)} is not understood in a condition")


_UNDERSTOOD = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.List, ast.Tuple, ast.Set, ast.BoolOp, ast.UnaryOp,
    ast.BinOp, ast.Compare, ast.Load, ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd, *_COMPARISONS, *_ARITHMETIC,
)  # fmt: skip


def _told(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__


def _field_named(node: ast.AST) -> str | None:
    """The field that a part of a condition names: `cls`, `_["caption.txt"]` or, in a call, "caption.txt"."""
    if isinstance(node, ast.Name):
        return None if node.id in _FUNCTIONS or node.id in OF_FIELDS or node.id == "_" else node.id
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "_":
        return _field_named(node.slice)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
