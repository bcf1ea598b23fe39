"""Mixtures of datasets as a YAML file says, and tarmix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webdataset.errors import MissingShardError, SampleError
from webdataset.handlers import ignore_and_continue
from webdataset.tools.transform.mixtures import MixtureSource, mixed, mixture_sources, read_mixture

Make = Callable[..., str]


@pytest.fixture
def two(make_shard: Make) -> list[str]:
    """a.tar has 000 to 299, b.tar 1000 to 1099."""
    return [make_shard("a.tar", 300), make_shard("b.tar", 100, start=1000)]


def keys(sources: list[MixtureSource], **options: Any) -> list[int]:
    return [int(sample["__key__"]) for sample in mixed(sources, **options)]


def test_all_samples_of_all_sources_come_once(two: list[str]) -> None:
    found = keys([MixtureSource([two[0]], 3.0), MixtureSource([two[1]])], seed=1)
    assert sorted(found) == [*range(300), *range(1000, 1100)]
    assert found == keys([MixtureSource([two[0]], 3.0), MixtureSource([two[1]])], seed=1)


def test_weights_say_how_often_a_source_is_drawn(two: list[str]) -> None:
    first = keys([MixtureSource([two[0]], 3.0), MixtureSource([two[1]])], seed=2)[:200]
    assert 30 < sum(key >= 1000 for key in first) < 70


def test_repeats_streams_and_shuffle(two: list[str]) -> None:
    assert Counter(keys([MixtureSource([two[1]], repeats=2)])) == Counter([*range(1000, 1100)] * 2)
    assert keys([MixtureSource(two, streams=2)])[:4] == [0, 1000, 1, 1001]
    shuffled = keys([MixtureSource([two[1]], shuffle=1000)], seed=3)
    assert sorted(shuffled) == [*range(1000, 1100)] != shuffled


def test_missing_shards_are_left_out_where_that_is_allowed(two: list[str]) -> None:
    there = [two[1], "missing.tar"]
    assert len(keys([MixtureSource(there, allow_missing=True)])) == 100
    with pytest.raises(MissingShardError) as raised:
        keys([MixtureSource(there)])
    assert raised.value.url == "missing.tar"
    assert len(keys([MixtureSource(there)], handler=ignore_and_continue)) == 100


BAD: list[Any] = [
    None,
    {"sources": []},
    [{"weight": 1}],
    [{"shards": "a", "wieght": 1}],
    [{"shards": "a", "weight": "heavy"}],
    [{"shards": "a", "weight": 0}],
    [{"shards": "a", "weight": float("nan")}],
    [{"shards": "a", "nstreams": 0}],
    [{"shards": "a", "weight": 1, "probability": 1}],
]


@pytest.mark.parametrize("spec", BAD, ids=str)
def test_a_spec_that_makes_no_sense(spec: Any) -> None:
    with pytest.raises(SampleError) as raised:
        mixture_sources(spec, "mix.yaml")
    assert raised.value.url == "mix.yaml"


def test_a_spec_from_a_server_cannot_name_files_or_commands() -> None:
    from webdataset.errors import SecurityError

    for shards in ("pipe:date", "/etc/passwd"):
        with pytest.raises(SecurityError):
            mixture_sources([{"shards": shards}], "http://server/mix.yaml")


def test_a_spec_is_read_from_a_file(two: list[str], tmp_path: Path) -> None:
    (tmp_path / "mix.yaml").write_text(f"sources:\n- shards: {two[0]}\n  probability: 0.3\n")
    assert read_mixture(str(tmp_path / "mix.yaml")) == [MixtureSource([two[0]], 0.3)]
