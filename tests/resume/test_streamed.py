"""The runner of a streamed pipeline: where it is, and where it goes on."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest

import webdataset as wds
from webdataset.resume.streamed import StreamedRunner


def numbers() -> wds.DataPipeline:
    return wds.DataPipeline([list(range(9))], wds.listed(2))


def test_a_pipeline_is_run_as_its_stages_are_now() -> None:
    pipeline = numbers()
    assert isinstance(pipeline.runner, StreamedRunner)
    assert pipeline.runner.progress is pipeline.runner.progress


def test_items_have_positions_that_a_state_is_made_of() -> None:
    pairs = list(numbers().placed())
    for count, (position, _) in enumerate(pairs, 1):
        resumed = numbers()
        resumed.load_state_dict(numbers().state_from_mark(pickle.loads(pickle.dumps(position))))
        assert list(resumed) == [item for _, item in pairs[count:]]


def test_a_copy_counts_passes_in_common_and_a_composition_does_not() -> None:
    pipeline = numbers()
    list(pipeline)
    assert copy.copy(pipeline).runner.next_epoch() == 1
    assert pipeline.compose().runner.next_epoch() == 0
    list(copy.copy(pipeline))
    assert pipeline.runner.next_epoch() == 2


def test_a_pass_that_is_abandoned_keeps_no_pipeline() -> None:
    pipeline = numbers()
    next(iter(pipeline))
    gone = weakref.ref(pipeline)
    del pipeline
    gc.collect()
    assert gone() is None


def test_a_streamed_pipeline_has_no_length() -> None:
    assert not hasattr(numbers(), "__len__")
    with pytest.raises(TypeError, match="with_length"):
        numbers().runner.length()
