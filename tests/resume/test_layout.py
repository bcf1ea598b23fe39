"""How the stages of a streamed pipeline are sorted."""

from __future__ import annotations

import pytest

import webdataset as wds
from webdataset.resume.layout import NotResumableError, described, layout_of, segments_of


def test_stages_are_cut_where_one_that_collects_follows_one_that_expands() -> None:
    segments = segments_of([wds.map(str), wds.listed(2), wds.unlisted(), wds.listed(3), wds.slice(2), wds.select(len)])
    assert [(len(each.stages), each.multiplies, each.counts) for each in segments] == [
        (3, True, False),
        (1, False, False),
        (1, False, True),
        (1, False, False),
    ]


def test_a_dataset_has_shards_a_reader_and_what_stands_before_its_shuffle() -> None:
    layout = layout_of(wds.WebDataset("a.tar", shardshuffle=3).map(str).shuffle(5).listed(2).pipeline)
    assert [type(stage).__name__ for stage in layout.reader] == ["_Reader"]
    assert (len(layout.head), len(layout.segments)) == (2, 1)
    assert layout.shuffle is not None


def test_a_stage_that_holds_is_a_reason() -> None:
    with pytest.raises(NotResumableError, match="mcached"):
        layout_of(wds.WebDataset("a.tar").mcached().pipeline)


def test_a_description_has_names_and_numbers_only() -> None:
    dataset = wds.WebDataset(["a.tar", "b.tar"], seed=3, shardshuffle=2).map(str).with_epoch(4)
    told = described(dataset)
    assert told["source"]["shards"] == 2
    assert told["stages"][-1] == "map(str)"
    assert (told["passes"], told["items"]) == (None, 4)
