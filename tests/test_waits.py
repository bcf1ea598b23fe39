"""The library waits with `Bell`, `Stop` and `Thread` of its own: Ctrl-C inside those of `threading` can hang it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}

FORBIDDEN = {
    "threading": {"Barrier", "BoundedSemaphore", "Condition", "Event", "Semaphore", "Thread"},
    "queue": {"LifoQueue", "PriorityQueue", "Queue"},
}
ALLOWED = {
    "webdataset/base/stops.py": "what is used instead",
    "webdataset/view/answers.py": "only threads of the server enter it, and the main thread alone is interrupted",
    "webdataset/view/server.py": "the same",
}


def offences(source: str) -> Iterator[str]:
    """What is written in Python and waits with a lock, as `line: name`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in FORBIDDEN.get(node.value.id, ()):
                yield f"{node.lineno}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            names = FORBIDDEN.get(node.module or "", set()) & {alias.name for alias in node.names}
            yield from (f"{node.lineno}: {node.module}.{name}" for name in names)


def test_nothing_waits_where_an_interrupt_leaves_a_lock_locked() -> None:
    found = {name: lines for name, path in FILES.items() if (lines := list(offences(path.read_text())))}
    assert ALLOWED.keys() <= found.keys(), "no longer an exception"
    others = {name: lines for name, lines in found.items() if name not in ALLOWED}
    assert others == {}, "wait with the Bell, Stop and Thread of webdataset.base.stops, and enter the lock itself"


@pytest.mark.parametrize(
    "source",
    [
        "changed = threading.Condition()",
        "with threading.Semaphore(2): work()",
        "from threading import Event, Lock",
        "from queue import Queue",
    ],
)
def test_the_check_finds(source: str) -> None:
    assert list(offences(source)) != []


@pytest.mark.parametrize(
    "source", ["lock = threading.RLock()", "from queue import SimpleQueue", "Condition('cls > 2')"]
)
def test_the_check_passes(source: str) -> None:
    assert list(offences(source)) == []
