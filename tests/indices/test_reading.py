"""Samples by number: those that iterating yields, however many are read at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import webdataset as wds
from webdataset.base.reports import Report
from webdataset.indices.files import StaleIndexError
from webdataset.indices.reading import Samples


@pytest.fixture
def read(make_shard: Callable[..., str]) -> Iterator[Callable[..., Any]]:
    shard = make_shard(samples=100)

    def reading(numbers: list[int], **options: Any) -> tuple[list[Any], list[Any], Report]:
        report = Report(strict=False)
        with closing(Samples(wds.index(shard), report=report, **options)) as samples:
            expected = list(wds.WebDataset(shard, shardshuffle=False))
            return samples.read(0, numbers), [expected[number] for number in numbers], report

    return reading


@pytest.mark.parametrize("numbers", [[0], [99], [3, 4, 5], list(range(100)), list(range(0, 100, 7)), [0, 50, 99]])
def test_samples_are_those_that_iterating_yields(read: Any, numbers: list[int]) -> None:
    found, expected, report = read(numbers)
    assert found == expected
    assert report.counts["samples_read"] == len(numbers)


def test_files_are_selected_by_their_new_names(read: Any) -> None:
    found, expected, _ = read([1, 2], rename_files=lambda name: name + ".x", select_files=lambda name: "cls" in name)
    assert [set(sample) - {"__url__", "__local_path__"} for sample in found] == [{"__key__", "cls.x"}] * 2
    assert [sample["cls.x"] for sample in found] == [sample["cls"] for sample in expected]


def test_a_sample_of_which_no_file_is_selected_is_none(read: Any) -> None:
    assert read([4, 5], select_files=lambda _: False)[0] == [None, None]


def test_a_shard_that_was_replaced_is_an_error(make_shard: Callable[..., str]) -> None:
    catalogue = wds.index(make_shard(samples=10))
    catalogue.index(0)
    make_shard(samples=11)
    with closing(Samples(catalogue, report=Report(strict=False))) as samples, pytest.raises(StaleIndexError):
        samples.read(0, [1])
