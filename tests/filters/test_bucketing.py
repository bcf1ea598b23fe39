"""Batches of samples of similar length."""

from __future__ import annotations

import pytest

from webdataset.filters import bucketed
from webdataset.filters.mistakes import OptionError

WORDS = ["a" * n for n in (1, 9, 2, 8, 3, 7)]


def lengths(stage) -> list[list[int]]:
    return [[len(word) for word in batch] for batch in stage(WORDS)]


def test_a_batch_is_of_one_bucket_but_for_what_is_left_over() -> None:
    assert lengths(bucketed(len, [5], batchsize=2, collation_fn=None)) == [[1, 2], [9, 8], [3, 7]]


def test_a_batch_holds_no_more_than_its_tokens() -> None:
    batches = lengths(bucketed(len, max_tokens=9, collation_fn=None))
    assert sorted(length for batch in batches for length in batch) == [1, 2, 3, 7, 8, 9]
    assert all(max(batch) * len(batch) <= 9 for batch in batches)


def test_wrong_options_are_refused() -> None:
    for options in ({}, {"boundaries": [5], "batchsize": 0}, {"boundaries": [5], "among": 0}):
        with pytest.raises(OptionError):
            bucketed(len, **options)(WORDS)
