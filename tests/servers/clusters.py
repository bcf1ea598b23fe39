"""A Dask cluster and a Ray of one node, each started when a test asks for it, until the last test of its group.

Both take CPU time while nobody uses them (Dask: 5 s in a minute), which other tests would miss.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from servers.programs import PLACES, leave_out

DASK = """
import json, sys
import dask
from distributed import LocalCluster
if __name__ == "__main__":
    # seconds after it has lost a worker, the cluster gives up the nanny of any that is being restarted just then
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as cluster:
        print(json.dumps(cluster.scheduler_address), flush=True)
        sys.stdin.read()
"""
RAY = """
import json, sys
import ray
if __name__ == "__main__":
    given = {"address": "local", "num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 << 20}
    ray.init(**given, log_to_driver=False, _temp_dir=sys.argv[1])
    print(json.dumps(ray.get_runtime_context().gcs_address), flush=True)
    sys.stdin.read()
    ray.shutdown()
"""


def needs_package(module: str, package: str) -> None:
    """A test that needs a package which is not there is left out."""
    if not PLACES["pip"] or importlib.util.find_spec(module) is None:
        leave_out(f"pip {package}")


_running: dict[str, tuple[str, contextlib.ExitStack]] = {}
"""The address of each cluster that runs, and what ends it."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or _group(nextitem) != _group(item):
        end_clusters()


def _group(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else None


def end_clusters() -> None:
    while _running:
        _running.popitem()[1][1].close()


@pytest.fixture
def dask_address() -> str:
    needs_package("distributed", "distributed")
    return _started("dask", _answering([sys.executable, "-c", DASK]))


@pytest.fixture
def ray_address() -> str:
    needs_package("ray", "ray[data]")
    return _started("ray", _ray())


@pytest.fixture
def ray_with_token() -> Iterator[str]:
    """A cluster that wants a token which nobody is told."""
    needs_package("ray._private.authentication", "ray[data]")
    with _ray({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}) as address:
        yield address


def _started(name: str, cluster: contextlib.AbstractContextManager[str]) -> str:
    """The address of a cluster that runs, or is started now."""
    if name not in _running:
        stack = contextlib.ExitStack()
        _running[name] = stack.enter_context(cluster), stack
    return _running[name][0]


@contextlib.contextmanager
def _ray(variables: Mapping[str, str] = MappingProxyType({"RAY_AUTH_MODE": "disabled"})) -> Iterator[str]:
    # the path of a socket has at most 108 characters
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        for name, value in variables.items():
            patch.setenv(name, value)
        with _answering([sys.executable, "-c", RAY, folder]) as address:
            yield address


@contextlib.contextmanager
def _answering(words: list[str]) -> Iterator[str]:
    """A program that prints an address and runs until its stdin ends."""
    here = str(Path(__file__).resolve().parent.parent)
    # spawned processes import the main module, which needs a file
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "cluster.py")
        program.write_text(words[2])
        process = subprocess.Popen(
            [words[0], str(program), *words[3:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=here, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, "the cluster did not start"
            yield json.loads(line)
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
