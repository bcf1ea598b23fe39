"""Dask: clusters that run, that we start, that do not answer, and a machine without Dask."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import runs_support
import webdataset as wds
from runs_support import calls_of, make_inputs
from servers.clusters import needs_package
from webdataset.errors import MissingPackageError
from webdataset.runs.engines import engine_named
from webdataset.runs.engines.base import EngineError
from webdataset.runs.options import TaskOptions

pytestmark = pytest.mark.together("dask")


def test_a_cluster_of_this_process(tmp_path: Path) -> None:
    needs_package("distributed", "distributed")
    pairs = make_inputs(tmp_path, 5)
    assert wds.distributed_map_unordered(runs_support.doubled, pairs, on="dask", workers=2) == [3] * 5
    assert [calls_of(source) for source, _ in pairs] == [1] * 5


def test_a_cluster_that_runs(tmp_path: Path, dask_address: str) -> None:
    pairs = make_inputs(tmp_path, 6)
    told = list(wds.jobs(runs_support.kills_itself_for_one, pairs, on="dask", address=dask_address, retries=1))
    assert sorted((done.item, done.ok) for done in told) == [(f"out-00{n}", n != 1) for n in range(6)]


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


def test_a_scheduler_that_does_not_answer(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_package("distributed", "distributed")
    from webdataset.runs.engines import dask

    monkeypatch.setattr(dask, "PATIENCE", "500ms")
    engine = engine_named("dask", TaskOptions(address=f"tcp://127.0.0.1:{closed_port}"))
    with pytest.raises(EngineError, match="no Dask scheduler answers at tcp://"):
        engine.connect()  # type: ignore[attr-defined]


def test_dask_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        MissingPackageError, match=r"distributed is needed to run on Dask; pip install 'webdataset\[dask\]'"
    ):
        engine_named("dask", TaskOptions()).connect()  # type: ignore[attr-defined]


def test_a_cluster_of_jobqueue_that_does_not_exist() -> None:
    needs_package("dask_jobqueue", "dask-jobqueue")
    with pytest.raises(ValueError, match=r"\[dask\] has no option 'custer'"):
        engine_named("dask", TaskOptions.of({"dask": {"custer": "x"}})).connect()  # type: ignore[attr-defined]
