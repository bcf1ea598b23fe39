"""Values of any depth and size as a tree that a page or notebook can show, cut where it would be too much.

>>> tree({"a": [1, None]})
{'type': 'dict', 'size': 1, 'items': [['a', {'type': 'list', 'size': 2, 'items': [1, None]}]]}
"""

from __future__ import annotations

import math
from typing import Any

from webdataset.base.printing import printable, short_repr
from webdataset.codecs.packages import is_array, is_tensor

from .rasters import array_facts

MOST_NODES = 5000
MOST_ITEMS = 500
MOST_DEPTH = 30
MOST_TEXT = 4000
MOST_ARRAYS = 32


def tree(value: object, nodes: int = MOST_NODES) -> object:
    """The value as JSON: numbers and texts as they are, dicts and lists as nodes with their size and first items."""
    return _Tree(nodes).node(value, 0)


def arrays_in(value: object) -> dict[str, Any]:
    """The arrays in a value, each with the way to it; a value that is an array itself has an empty one.

    >>> import numpy as np
    >>> list(arrays_in({"a": np.zeros(2), "b": [np.ones(3)]}))
    ['a', 'b.0']
    """
    found: dict[str, Any] = {}
    pending = [("", value)]
    seen = 0
    while pending and len(found) < MOST_ARRAYS and seen < MOST_NODES:
        path, value = pending.pop(0)
        seen += 1
        if is_array(value) or is_tensor(value):
            found[path] = value
        elif isinstance(value, (dict, list, tuple)):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for count, (name, inner) in enumerate(pairs):
                if count >= MOST_ITEMS:
                    break
                pending.append((f"{path}.{printable(str(name), 100)}" if path else printable(str(name), 100), inner))
    return found


class _Tree:
    def __init__(self, nodes: int) -> None:
        self.left = nodes

    def node(self, value: object, depth: int) -> object:
        self.left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return _number(value)
        if isinstance(value, str):
            return value if len(value) <= MOST_TEXT else {"type": "text", "size": len(value), "text": value[:MOST_TEXT]}
        if is_array(value) or is_tensor(value):
            return {"type": "array", **array_facts(value)}
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            return self._inner(value, depth)
        return {"type": type(value).__name__, "text": short_repr(value, 200)}

    def _inner(self, value: Any, depth: int) -> dict[str, Any]:
        kind = "dict" if isinstance(value, dict) else "list"
        items: list[Any] = []
        pairs = value.items() if kind == "dict" else ((None, inner) for inner in value)
        for name, inner in pairs:
            if self.left <= 0 or len(items) >= MOST_ITEMS or depth >= MOST_DEPTH:
                break
            node = self.node(inner, depth + 1)
            items.append([printable(str(name), 300), node] if kind == "dict" else node)
        return {"type": kind, "size": len(value), "items": items}


def _number(value: int | float) -> float | dict[str, str]:
    """A number that a page can read: one that JSON or JavaScript would change is a text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {"type": "number", "text": str(value)}
    if abs(value) < 2**53:
        return value
    return {"type": "number", "text": str(value) if value.bit_length() < 4000 else f"{value.bit_length()} bits"}
