"""Dask: clusters that run, that we start, that do not answer, and a machine without Dask."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import runs_support
import webdataset as wds
from runs_support import PYTHON, calls_of, make_inputs
from servers.clusters import needs_package
from waiting import soon
from webdataset.errors import MissingPackageError
from webdataset.runs.engines import engine_named
from webdataset.runs.engines.base import EngineError
from webdataset.runs.options import TaskOptions
from webdataset.runs.runs import Run

pytestmark = pytest.mark.xdist_group("dask")


def test_a_cluster_of_this_process(tmp_path: Path) -> None:
    needs_package("distributed", "distributed")
    pairs = make_inputs(tmp_path, 5)
    assert wds.distributed_map_unordered(runs_support.doubled, pairs, on="dask", workers=2) == [3] * 5
    assert [calls_of(source) for source, _ in pairs] == [1] * 5


def test_a_cluster_that_runs(tmp_path: Path, dask_address: str) -> None:
    pairs = make_inputs(tmp_path, 6)
    told = list(wds.jobs(runs_support.kills_itself_for_one, pairs, on="dask", address=dask_address, retries=1))
    assert sorted((done.item, done.ok) for done in told) == [(f"out-00{n}", n != 1) for n in range(6)]


def test_names_mean_the_same_on_a_worker_as_here(
    tmp_path: Path, dask_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_inputs(tmp_path, 3)
    (tmp_path / "code.py").write_text("def transform(sample):\n    return sample\n")
    monkeypatch.chdir(tmp_path)
    words = ["map", "-l", "code.py", "in-{000..002}.tar", "-o", "out/e-{}.tar", "--state", "run"]
    assert subprocess.run([*PYTHON, *words, "--on", "dask", "--address", dask_address], check=False).returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").glob("e-*")) == [f"e-00{n}.tar" for n in range(3)]
    command = ["jobs", "-s", "{000..002}", "--on", "dask", "--address", dask_address, "--output", "./copy-{}.tar"]
    assert subprocess.run([*PYTHON, *command, "--", "cp", "in-{}.tar", "./copy-{}.tar"], check=False).returncode == 0
    assert len(list(tmp_path.glob("copy-*.tar"))) == 3
    monkeypatch.chdir("/")
    told = subprocess.run([*PYTHON, "jobs", "status", tmp_path / "run", "--json"], capture_output=True, check=False)
    assert json.loads(told.stdout)["done"] == 3
    (tmp_path / "out" / "e-001.tar").unlink()
    assert subprocess.run([*PYTHON, "jobs", "resume", tmp_path / "run"], check=False).returncode == 0
    assert (tmp_path / "out" / "e-001.tar").exists()


def test_tasks_of_an_interrupted_run_publish_nothing(tmp_path: Path, dask_address: str) -> None:
    """Dask cannot end what a worker has begun."""
    make_inputs(tmp_path, 4)
    code = f"import os, time; open({str(tmp_path / 'begun')!r}, 'w').close()\n"
    code += f"while not os.path.exists({str(tmp_path / 'go on')!r}): time.sleep(0.01)\ncls = 1"
    inputs, outputs = str(tmp_path / "in-{000..003}.tar"), str(tmp_path / "out-{}.tar")
    words = [*PYTHON, "map", inputs, "-o", outputs, "--state", str(tmp_path / "run"), "--on"]
    first = [*words, "dask", "--address", dask_address, "--shards-per-task", "2", "-c", code]
    with subprocess.Popen(first, stderr=subprocess.PIPE, text=True) as child:
        assert soon((tmp_path / "begun").exists)
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=60)
    assert child.returncode == 130, told
    assert subprocess.run([*words, "local", "-q", "-c", "cls = 2"], check=False).returncode == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("out-*")}
    (tmp_path / "go on").touch()
    records = Run(str(tmp_path / "run")).records
    assert soon(lambda: [record for record in records() if record.status == "superseded"])
    assert {path.name: path.read_bytes() for path in tmp_path.glob("out-*")} == before
    again = subprocess.run([*words, "local", "-c", "cls = 2"], capture_output=True, text=True, check=False)
    assert "4 done" in again.stderr
    assert not list(tmp_path.glob(".webdataset-*"))


def test_a_shard_that_kills_its_worker_costs_the_others_of_its_task_nothing(tmp_path: Path, dask_address: str) -> None:
    pairs = make_inputs(tmp_path, 6)
    options = {"on": "dask", "address": dask_address, "retries": 2, "shards_per_task": 6}
    told = list(wds.jobs(runs_support.kills_its_worker_for_one, pairs, **options))
    assert sorted((done.item, done.ok) for done in told) == [(f"out-00{n}", n != 1) for n in range(6)]
    assert [calls_of(source) for source, _ in pairs if "in-001" not in source] == [1] * 5
    assert len((tmp_path / "in-001.tar.begun").read_text().splitlines()) == 4, "once more, as a worker may just die"


SEED = """
import dask
shards = list(wds.shardlists.expand_urls("{000..002}"))
inputs = [f"{folder}/in-{shard}.tar" for shard in shards]
outputs = [f"{folder}/augmented-{shard}.tar" for shard in shards]
results = [dask.delayed(augment_wds)(args) for args in zip(inputs, outputs)]
dask.compute(*results, scheduler="synchronous")
"""


def test_the_one_liner_of_the_seed(tmp_path: Path) -> None:
    """It passes both names as one argument."""
    needs_package("dask", "distributed")
    make_inputs(tmp_path, 3)

    def augment_wds(args: tuple[str, str]) -> int:
        return runs_support.doubled(*args)

    exec(SEED, {"wds": wds, "folder": tmp_path, "augment_wds": augment_wds})
    assert len(list(tmp_path.glob("augmented-*.tar"))) == 3


def test_a_scheduler_that_does_not_answer(tmp_path: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_package("distributed", "distributed")
    from webdataset.runs.engines import dask

    monkeypatch.setattr(dask, "PATIENCE", "500ms")
    address = f"tcp://127.0.0.1:{closed_port}"
    with pytest.raises(EngineError, match=address):
        list(wds.jobs(runs_support.doubled, make_inputs(tmp_path, 1), on="dask", address=address))


def test_dask_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPackageError, match="distributed") as raised:
        list(wds.jobs(runs_support.doubled, make_inputs(tmp_path, 1), on="dask"))
    assert "webdataset[dask]" in raised.value.hint


def test_a_cluster_of_jobqueue_that_does_not_exist(tmp_path: Path) -> None:
    needs_package("dask_jobqueue", "dask-jobqueue")
    with pytest.raises(ValueError, match="'custer'"):
        list(wds.jobs(runs_support.doubled, make_inputs(tmp_path, 1), on="dask", dask={"custer": "x"}))


PLACES = 61
"""Of a cluster that is not this machine's size."""


@pytest.fixture
def wide_cluster() -> Iterator[Any]:
    """A cluster of one worker with many threads, two GPUs and eight cores."""
    needs_package("distributed", "distributed")
    import distributed

    own = {"n_workers": 1, "threads_per_worker": PLACES, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(
        **own, resources={"GPU": 2, "CPU": 8}, protocol="tcp://", host="127.0.0.1"
    ) as cluster:
        yield cluster


def places(**options: Any) -> int:
    with closing(engine_named("dask", TaskOptions.of(options))) as engine:
        return int(engine.places())  # type: ignore[attr-defined]


def test_a_clients_cluster_is_used_and_stays_connected(tmp_path: Path, wide_cluster: Any) -> None:
    import distributed

    pairs = make_inputs(tmp_path, 3)
    with distributed.Client(wide_cluster, set_as_default=False) as client:
        assert engine_named(client, TaskOptions()).places() == PLACES  # type: ignore[attr-defined]
        client.get_task_stream()  # from now on
        assert wds.distributed_map_unordered(runs_support.doubled, pairs, on=client) == [3, 3, 3]
        assert len(client.get_task_stream()) == 3
        assert client.submit(int, "7").result() == 7
    with pytest.raises(TypeError, match="Client"):
        engine_named(wide_cluster, TaskOptions())


def test_a_client_of_a_coroutine_is_refused() -> None:
    needs_package("distributed", "distributed")
    import distributed

    async def refused() -> None:
        own = {"n_workers": 0, "processes": False, "dashboard_address": "127.0.0.1:0", "protocol": "tcp://"}
        async with (
            distributed.LocalCluster(**own, asynchronous=True) as cluster,
            distributed.Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            with pytest.raises(EngineError, match="asynchronous"):
                engine_named(client, TaskOptions())

    asyncio.run(refused())


def test_a_cluster_is_found_without_an_address(wide_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the program's Client, or of Dask's own variable."""
    import dask
    import distributed

    with distributed.Client(wide_cluster):
        assert places() == PLACES
    assert places() != PLACES
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", wide_cluster.scheduler_address)
    try:
        dask.config.refresh()
        assert places() == PLACES
    finally:
        monkeypatch.undo()
        dask.config.refresh()


def test_tasks_are_sized_by_the_workers_of_the_cluster(wide_cluster: Any) -> None:
    options = TaskOptions(address=wide_cluster.scheduler_address)
    with closing(engine_named("dask", options)) as engine:
        assert [engine.shards_per_task(count) for count in (100, 2 * 16 * PLACES, 10**6)] == [1, 2, 20]


@pytest.mark.parametrize(
    ("options", "found"), [({"cpus": 2}, 4), ({"gpus": 1}, 2), ({"cpus": 4, "gpus": 2}, 1), ({"memory": "1Gi"}, PLACES)]
)
def test_a_task_has_what_it_asks_for(wide_cluster: Any, options: dict[str, Any], found: int) -> None:
    assert places(address=wide_cluster.scheduler_address, **options) == found


@pytest.mark.parametrize(("options", "name"), [({"cpus": 9}, "CPU=9"), ({"gpus": 3}, "GPU=3")])
def test_a_task_that_would_wait_forever_is_refused(wide_cluster: Any, options: dict[str, Any], name: str) -> None:
    with pytest.raises(EngineError, match=name):
        places(address=wide_cluster.scheduler_address, **options)


def test_workers_of_a_queue_must_say_what_they_have(tmp_path: Path) -> None:
    needs_package("dask_jobqueue", "dask-jobqueue")
    own = {"cluster": "SLURMCluster", "cluster_options": {"cores": 1, "memory": "1GB"}}
    pairs = make_inputs(tmp_path, 1)
    with pytest.raises(EngineError, match="CPU=2") as raised:
        list(wds.jobs(runs_support.doubled, pairs, on="dask", dask=own, cpus=2))
    assert "worker_extra_args" in raised.value.hint


@pytest.mark.parametrize("certificates", ["none", "wrong"])
def test_a_cluster_that_wants_other_certificates(certificates: str) -> None:
    needs_package("distributed", "distributed")
    import dask
    import distributed

    own = {"n_workers": 0, "dashboard_address": "127.0.0.1:0", "protocol": "tls", "host": "127.0.0.1"}
    wrong = distributed.Security.temporary()
    name = "distributed.comm.tls"
    names = {f"{name}.ca-file": wrong.tls_ca_file, f"{name}.client.cert": wrong.tls_client_cert}
    names |= {f"{name}.client.key": wrong.tls_client_key}
    with (
        distributed.LocalCluster(**own, processes=False, security=distributed.Security.temporary()) as cluster,
        dask.config.set(names if certificates == "wrong" else {}),
        pytest.raises(EngineError, match=r"authentication .*tls://"),
    ):
        places(address=cluster.scheduler_address)
