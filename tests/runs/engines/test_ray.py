"""Ray: a cluster that runs, one that does not answer, and a machine without Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runs_support import PYTHON, make_inputs
from servers.clusters import needs_package
from webdataset.errors import MissingPackageError
from webdataset.runs.engines import engine_named
from webdataset.runs.engines.base import EngineError
from webdataset.runs.options import TaskOptions

pytestmark = pytest.mark.together("ray")


def test_a_cluster_that_runs(tmp_path: Path, ray_address: str) -> None:
    make_inputs(tmp_path, 6)
    words = [*PYTHON, "map", "-c", "cls *= 2", str(tmp_path / "in-{000..005}.tar"), "-o", str(tmp_path / "out-{}.tar")]
    told = subprocess.run(
        [*words, "--on", "ray", "--address", ray_address], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "6 shards done, 0 were done before, 0 failed" in told.stderr
    assert len(list(tmp_path.glob("out-*.tar"))) == 6


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_does_not_answer(closed_port: int, form: str) -> None:
    needs_package("ray", "ray[data]")
    engine = engine_named("ray", TaskOptions(address=form.format(closed_port)))
    with pytest.raises(EngineError, match=r"no Ray cluster answers at .*is the cluster running\?"):
        engine.connect()  # type: ignore[attr-defined]


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"ray is needed to run on Ray; pip install 'webdataset\[ray\]'"):
        engine_named("ray", TaskOptions()).connect()  # type: ignore[attr-defined]
