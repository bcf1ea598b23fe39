"""Shards for tests."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests_support import numbered, tar_bytes

TESTS = Path(__file__).resolve().parent

# how long an example takes says more about the machine than about the code
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# Servers that tests let die are not waited for; a test of patience takes this out again (the fixture `patient`).
os.environ["WDS_RETRIES"] = "4"

# The processes of the tests share the cores, and are forked: torch and OpenBLAS need no threads of their own.
os.environ["OMP_NUM_THREADS"] = "1"

# Looking for garbage takes a tenth of the time, and what is to be collected is collected by the test that needs it.
gc.set_threshold(50_000, 20, 100)

# A shell lets what it runs in the background ignore interrupts; programs that tests interrupt must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A process of a fork server then starts without importing all that, which takes longer than any of these tests. It
# inherits as little as one that is spawned, of which a few are enough, but has the environment of the first test that
# needed it.
multiprocessing.set_forkserver_preload(["torch", "pytest", "webdataset.cli.flow"])

# How tests are run; real servers on loopback, each started when a test asks for it.
pytest_plugins = [
    "left_out",
    "servers.aistore",
    "servers.sshd",
    "servers.object_stores",
    "servers.moto",
    "servers.ceph",
    "servers.azurite",
    "servers.gcs",
    "servers.hub",
    "servers.faults",
    "servers.mortal",
    "servers.outages",
    "servers.nginx",
    "servers.squid",
    "servers.slurm",
    "servers.clusters",
    "servers.kubernetes",
]


# What starts many programs, trains, builds, or waits for processes that die: it is not quick ...
SLOW = {"frameworks", "examples", "website", "fuzz", "engines", "remote"}
SLOW |= {"test_typing.py", "test_benchmarks.py", "test_raydata.py", "test_crashes.py", "test_attacks_local.py"}
SLOW |= {"test_examples_of_help.py", "test_interrupts.py", "test_stage_times.py"}
# ... and comes first, with other files of many tests, so that no process is still busy when the others are done.
LONG = SLOW | {"view", "loading", "exact", "resume", "test_partfiles.py", "test_shuffling.py", "test_speed.py"}

# Stores that take seconds of CPU time to start: one process has all tests of each.
STORES = ("moto", "azurite")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a file share a process, and thus its fixtures, unless they are marked with another group."""
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if _is_of(item, SLOW)])
        items[:] = [item for item in items if not _is_of(item, SLOW)]
    items.sort(key=lambda item: not _is_of(item, LONG))
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            store = next((name for name in STORES if f"{name}_server" in _fixtures(item)), None)
            item.add_marker(pytest.mark.xdist_group(store or item.path.relative_to(TESTS).as_posix()))


def _is_of(item: pytest.Item, kind: set[str]) -> bool:
    return bool(kind & {*item.path.relative_to(TESTS).parts})


def _fixtures(item: pytest.Item) -> set[str]:
    """The fixtures of a test, also those of servers that it names by a parameter, `moto` or `moto_server`."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    named = {f"{each.removesuffix('_server')}_server" for each in parameters if isinstance(each, str)}
    return named.union(getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take off the group that pytest-xdist adds to a test's name, with which `--lf` would not find it again."""
    if hasattr(report, "node"):  # this is the process that collects the reports
        report.nodeid = report.nodeid.rpartition("@")[0]


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what thousands of tests consist of: it would in every forked worker, too."""
    gc.collect()
    gc.freeze()


LONGEST_NAME = 200


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes that are no text are named by their number: some hold the time, and all workers need the same names.

    So is what is long: names are sent to and fro between the processes of the tests, and some were megabytes.
    """
    if isinstance(val, (bytes, str)) and len(val) > LONGEST_NAME:
        return f"{argname}-{len(val)}-long"
    if isinstance(val, bytes) and not (val.isascii() and val.decode("ascii").isprintable()):
        return f"{argname}-{len(val)}-bytes"
    return None


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept in the cache folder of the user goes into one of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of loopback that refuses connections, and that nobody else can get meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """Afterwards the threads are those of before."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


@pytest.fixture
def make_shard(tmp_path: Path) -> Callable[..., str]:
    """Write a shard and return its path: `make_shard("a.tar", samples=10)` or `make_shard("a.tar", files=[...])`."""

    def make(
        name: str = "a.tar",
        samples: int = 10,
        files: Iterable[tuple[str, bytes]] | None = None,
        *,
        start: int = 0,
        end: bool = True,
    ) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tar_bytes(numbered(samples, start) if files is None else files, end=end))
        return str(path)

    return make


@pytest.fixture
def make_shards(make_shard: Callable[..., str]) -> Callable[..., list[str]]:
    """Write several shards with consecutive samples: `make_shards(3, samples=5)`."""

    def make(shards: int, samples: int = 10) -> list[str]:
        return [make_shard(f"shard-{i:06d}.tar", samples, start=i * samples) for i in range(shards)]

    return make
