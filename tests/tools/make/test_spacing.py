"""Samples with equal keys, kept apart."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.cli.flow import PackedSamples, Packer
from webdataset.tools.make.spacing import TAIL, kept_apart

KEYS = st.lists(st.sampled_from("aaabcd"), max_size=40)


def samples(keys: Any) -> list[dict[str, Any]]:
    return [{"__key__": key, "n": b"%d" % n} for n, key in enumerate(keys)]


def clashes(result: list[dict[str, Any]]) -> int:
    keys = [sample["__key__"] for sample in result]
    return sum(one == other for one, other in pairwise(keys))


@given(KEYS)
def test_every_sample_comes_once(keys: list[str]) -> None:
    result = list(kept_apart()(samples(keys)))
    assert sorted(result, key=lambda sample: int(sample["n"])) == samples(keys)


@given(st.lists(st.integers(0, 9), max_size=TAIL * 4).map(lambda turns: [f"{n % 10}" for n in turns]))
def test_what_has_no_equal_neighbours_stays_as_it_is(keys: list[str]) -> None:
    apart = [key for n, key in enumerate(keys) if n == 0 or key != keys[n - 1]]
    assert list(kept_apart()(samples(apart))) == samples(apart)


@given(st.permutations([key for key in "abcdefgh" for _ in range(3)]))
def test_no_equal_keys_are_neighbours_where_that_can_be(keys: list[str]) -> None:
    assert clashes(list(kept_apart()(samples(keys)))) == 0


def test_keys_that_are_one_to_readers_are_kept_apart_too() -> None:
    result = list(kept_apart()(samples(["v1.0/a.1", "v1.0/a.2", "v1.0/b"])))
    assert [sample["__key__"] for sample in result] == ["v1.0/a.1", "v1.0/b", "v1.0/a.2"]


def test_where_all_keys_are_equal_the_writer_has_to_say_so() -> None:
    assert list(kept_apart()(samples("aaa"))) == samples("aaa")


@given(KEYS, st.integers(1, 5))
def test_samples_in_one_piece_come_in_the_same_order(keys: list[str], size: int) -> None:
    pack = Packer()
    items = [item for n in range(0, len(keys), size) for item in pack(samples(keys)[n : n + size])]
    result = [
        sample
        for item in kept_apart()(items)
        for sample in (item.unpacked() if isinstance(item, PackedSamples) else [item])
    ]
    expected = list(kept_apart()(samples(keys)))
    assert clashes(result) <= clashes(expected)
    if not clashes(expected):
        assert result == expected


@pytest.mark.parametrize("early", [0, 3])
def test_the_source_is_closed(early: int) -> None:
    closed = []

    def source() -> Any:
        try:
            yield from samples("abcabcabcabcabc")
        finally:
            closed.append(True)

    stream = kept_apart()(source())
    for _ in range(early):
        next(stream)
    stream.close()
    assert closed == [True] * bool(early)
