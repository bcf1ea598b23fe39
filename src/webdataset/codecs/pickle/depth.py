"""How deep the containers of a pickle lie within each other.

Python frees a container by freeing what is in it first, and for some types (deques, defaultdicts, arrays of objects)
that recursion has no limit but the stack: a hundred thousand of them within each other end the process. So all
containers of a pickle are kept until their depth is known, and emptied one by one if it is too great.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

MAX_DEPTH = 1000
UNKNOWN = -1
NESTING = (list, tuple, dict, set, frozenset, deque)
"""What can hold other values; dict and set stand for their subclasses too."""


def check_depth(containers: list[Any]) -> None:
    """Refuse containers that lie too deep within each other.

    >>> check_depth([[], [[]]])
    """
    if len(containers) <= MAX_DEPTH:
        return
    heights: dict[int, int] = dict.fromkeys(map(id, containers), UNKNOWN)
    for container in containers:
        if heights[id(container)] == UNKNOWN and _height(container, heights) > MAX_DEPTH:
            raise pickle.UnpicklingError(f"the pickle has more than {MAX_DEPTH} containers within each other")


def dismantle(containers: list[Any]) -> None:
    """Empty containers one by one; all of them are held by the list, so that nothing is freed recursively."""
    for container in containers:
        if isinstance(container, (list, dict, set, deque)):
            container.clear()
        elif not isinstance(container, NESTING):
            container[...] = None  # an array of objects


def _height(container: object, heights: dict[int, int]) -> int:
    """Levels below a container, itself included. What is still being visited (a cycle) counts as none."""
    path: list[list[Any]] = []
    inner, below = _inner(container, heights), 0
    heights[id(container)] = 0
    while True:
        for child in inner:
            known = heights[id(child)]
            if known == UNKNOWN:
                path.append([container, inner, below])
                container, inner, below = child, _inner(child, heights), 0
                heights[id(child)] = 0
                break
            below = max(below, known)
        else:
            heights[id(container)] = height = below + 1
            if not path:
                return height
            container, inner, below = path.pop()
            below = max(below, height)


def _inner(container: Any, heights: dict[int, int]) -> Iterator[Any]:
    values: Iterable[Any] = container
    if isinstance(container, dict):
        values = container.values()
    elif not isinstance(container, NESTING):
        values = container.flat
    return iter([value for value in values if id(value) in heights])
