"""wl split and its old names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archives import archive

RELAXED = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


SAMPLES = st.lists(
    st.tuples(st.sampled_from(["a", "b/c", "d-é", "x y"]), st.integers(-5, 5), st.binary(max_size=1500)), max_size=30
)


@RELAXED
@given(samples=SAMPLES, maxcount=st.integers(1, 7), maxsize=st.sampled_from([1, 1000, 10**9]))
def test_split_then_concat_is_the_identity(
    wl: Any,
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[tuple[str, int, bytes]],
    maxcount: int,
    maxsize: int,
) -> None:
    folder = tmp_path_factory.mktemp("split")
    source = archive(folder / "in.tar", samples)
    assert wl("split", "--maxcount", maxcount, "--maxsize", maxsize, source, "-o", folder / "p-%06d.tar").code == 0
    shards = sorted(folder.glob("p-*"))
    whole = wl("concat", source).out
    assert (wl("concat", *shards).out if shards else wl("concat", source).out) == whole
    assert len(shards) >= -(-len(samples) // maxcount)


def test_tarsplit_and_tarp_split(wl: Any, make_shard: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shard = make_shard(samples=5)
    assert wl.old("tarsplit", "-n", 2, "-z", "-o", "t", shard).code == 0
    assert wl.old("tarp", "split", "-c", 3, "-p", "cp %s copy-of-last", shard).code == 0
    assert sorted(path.name for path in tmp_path.glob("*")) == [
        *("a.tar", "copy-of-last", "split-000000.tar", "split-000001.tar"),
        *("t-000000.tgz", "t-000001.tgz", "t-000002.tgz"),
    ]
    assert wl.old("tarsplit", "-n", 5, "-C", "cp {abspath} kept; echo {base}", "-o", "u", shard).code == 0
    assert (tmp_path / "kept").exists()
    assert not (tmp_path / "u-000000.tar").exists()
