"""The tests themselves: none measures wall time, and none has a port of its own choice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FILES = {str(path.relative_to(TESTS)): path for path in sorted(TESTS.rglob("*.py"))}

STOPWATCHES = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "default_timer", "timeit"}
CALENDARS = {"time", "time_ns", "now", "utcnow"}
PORT = re.compile(r"(?:127\.0\.0\.1|localhost|0\.0\.0\.0):[1-9]\d*")
PROGRAM = re.compile(rf"\b(?:{'|'.join(STOPWATCHES)})\(|\btime\.time\(\)\s*[-<>]")

ALLOWED = {
    "waiting.py": "the limit that ends a wait",
    "test_tests.py": "says what is forbidden",
    "fuzz/fuzzer.py": "how long to go on",
    "servers/aistore_nodes.py": "a token has expired, or not",
    "storage/stores/test_azure_account.py": "the address that Azure's emulator has by default; nobody connects to it",
}


def offences(source: str) -> Iterator[str]:
    """What a test must not do, as `line: what`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = PORT.search(node.value) or PROGRAM.search(node.value)
            if found:
                yield f"{node.lineno}: {found[0]}"
        elif isinstance(node, ast.Call) and _called(node) in STOPWATCHES:
            yield f"{node.lineno}: {_called(node)}"
        elif isinstance(node, ast.Compare) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
            clocks = [each for each in ast.walk(node) if isinstance(each, ast.Call) and _called(each) in CALENDARS]
            yield from (f"{each.lineno}: a difference of times" for each in clocks)
        elif isinstance(node, ast.Tuple) and _is_fixed_address(node):
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.keyword) and node.arg == "port" and _number(node.value):
            yield f"{node.value.lineno}: port={_number(node.value)}"


def _called(call: ast.Call) -> str:
    """The last word of what is called: `time.monotonic` and `monotonic` are the same."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_fixed_address(node: ast.Tuple) -> bool:
    """`("127.0.0.1", 8080)`; port 0 is any that is free."""
    values = node.elts
    return (
        len(values) == 2
        and isinstance(values[0], ast.Constant)
        and PORT.match(f"{values[0].value}:1") is not None
        and _number(values[1]) > 0
    )


def _number(node: ast.expr) -> int:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else 0


def test_no_test_measures_wall_time_or_picks_a_port() -> None:
    found = {name: lines for name, path in FILES.items() if (lines := list(offences(path.read_text())))}
    assert ALLOWED.keys() <= found.keys(), "no longer an exception"
    others = {name: lines for name, lines in found.items() if name not in ALLOWED}
    assert others == {}, "wait with waiting.soon, count events, or use CPU time; let the system choose the port"


@pytest.mark.parametrize(
    "source",
    [
        "start = time.monotonic()",
        "assert perf_counter() - start < 1",
        "while time.time() < deadline: pass",
        "assert (datetime.now(UTC) - before).seconds < 5",
        "timeit.timeit(work)",
        "run('t = time.perf_counter(); work()')",
        "f'{x}; print(time.time() - {begun})'",
        "open_http('http://127.0.0.1:8080/a.tar')",
        "f'http://localhost:80/{name}'",
        "socket.create_server(('127.0.0.1', 8080))",
        "Server(port=7)",
    ],
)
def test_the_check_finds(source: str) -> None:
    assert list(offences(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "expires = time.time() + 3600",
        "begun = time.process_time(); assert time.process_time() - begun < 5",
        "socket.create_server(('127.0.0.1', 0))",
        "f'http://127.0.0.1:{port}/a.tar'",
        "Server(port=port)",
    ],
)
def test_the_check_passes(source: str) -> None:
    assert list(offences(source)) == []
