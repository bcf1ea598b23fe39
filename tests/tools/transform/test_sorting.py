"""Sorting is stable, keeps everything, and needs little memory."""

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


def labels(data: bytes, members: Any) -> list[int]:
    return [int(content) for (name, content) in members(data) if name.endswith(".cls")]


@RELAXED
@given(samples=SAMPLES, memory=st.sampled_from(["1", "3k", "100M"]), reverse=st.booleans())
def test_sorting_is_stable_and_keeps_everything(
    wl: Any, tmp_path: Path, members: Any, *, samples: list[tuple[str, int, bytes]], memory: str, reverse: bool
) -> None:
    source = archive(tmp_path / "in.tar", samples)
    flags = ["-r"] if reverse else []
    ended = wl("sort", "-k", "cls", "--as", "int", "--memory", memory, *flags, source)
    assert ended.code == 0
    assert members(ended.out) == members(source)
    expected = sorted(labels(source.read_bytes(), members), reverse=reverse)
    assert labels(ended.out, members) == expected
    in_order = [name for name, _ in members(source) if name.endswith(".cls")]
    values = dict(zip(in_order, labels(source.read_bytes(), members), strict=True))
    result = [name for name, _ in members(ended.out) if name.endswith(".cls")]
    assert result == sorted(in_order, key=values.__getitem__, reverse=reverse)


def test_sorting_by_key_text_and_numbers(wl: Any, make_shard: Any, names: Any) -> None:
    files = [("b.n", b"10"), ("a.n", b"9"), ("c.n", b"-1.5")]
    shard = make_shard(files=files)
    assert names(wl("sort", shard).out) == ["a.n", "b.n", "c.n"]
    assert names(wl("sort", "-k", "n", shard).out) == ["c.n", "b.n", "a.n"]
    assert names(wl("sort", "-k", "n", "--as", "float", shard).out) == ["c.n", "a.n", "b.n"]


def test_a_value_that_is_no_number_and_a_field_that_is_not_there(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(files=[("a.n", b"1"), ("b.n", b"many"), ("c.n", b"0")])
    ended = wl("sort", "-k", "n", "--as", "int", shard)
    assert ended.code == 1
    assert "b'many'" in ended.err
    assert names(wl("sort", "-k", "n", "--as", "int", "--on-error", "skip", shard).out) == ["c.n", "a.n"]
    ended = wl("sort", "-k", "m", shard)
    assert (ended.code, "'m'" in ended.err) == (1, True)


def test_numbers_that_are_no_numbers_come_last(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(files=[("a.n", b"nan"), ("b.n", b"inf"), ("c.n", b"nan"), ("d.n", b"1")])
    assert names(wl("sort", "-k", "n", "--as", "float", shard).out) == ["d.n", "b.n", "a.n", "c.n"]


def test_many_runs_are_merged_in_steps(wl: Any, make_shard: Any, members: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import webdataset.tools.transform.sorting

    monkeypatch.setattr(webdataset.tools.transform.sorting, "MAX_RUNS", 3)
    shard = make_shard(samples=100)
    ended = wl("sort", "-r", "--memory", "2k", shard)
    assert members(ended.out) == members(shard)
    assert labels(ended.out, members) == list(reversed(range(100)))
