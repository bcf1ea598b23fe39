"""A source and stages, folded into an iterator."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import webdataset as wds


def count_to(n):
    return iter(range(n))


def five():
    return count_to(5)


def doubled(source):
    for x in source:
        yield 2 * x


class Plus(wds.PipelineStage):
    def __init__(self, n):
        self.n = n

    def run(self, src):
        return [x + self.n for x in src]


def test_functions_objects_and_lists_are_stages():
    assert list(wds.DataPipeline(five, doubled, Plus(1))) == [1, 3, 5, 7, 9]


def test_none_is_left_out_and_a_list_of_stages_is_spliced_in():
    assert list(wds.DataPipeline(five, None, [doubled, doubled])) == [0, 4, 8, 12, 16]


def test_a_pipeline_can_be_the_first_stage_of_another():
    assert list(wds.DataPipeline(wds.DataPipeline(five), doubled)) == [0, 2, 4, 6, 8]


def test_what_is_no_stage_is_refused_by_name():
    with pytest.raises(ValueError, match="42"):
        list(wds.DataPipeline(five, 42))


def test_an_empty_pipeline_says_so():
    with pytest.raises(ValueError, match="source"):
        list(wds.DataPipeline())


def test_compose_leaves_the_original_alone_and_append_does_not():
    pipeline = wds.DataPipeline(five)
    longer = pipeline.compose(doubled)
    assert (len(pipeline.pipeline), len(longer.pipeline)) == (1, 2)
    assert pipeline.append(doubled) is pipeline
    assert len(pipeline.pipeline) == 2


def test_with_epoch_repeats_and_cuts_and_starts_again_each_time():
    pipeline = wds.DataPipeline(five)
    assert pipeline.with_epoch(7) is pipeline
    assert list(pipeline) == [0, 1, 2, 3, 4, 0, 1]
    assert list(pipeline) == [0, 1, 2, 3, 4, 0, 1]
    assert list(wds.DataPipeline(five).with_epoch(nbatches=2)) == [0, 1]


def test_repeat_counts_passes_and_cuts_over_the_whole():
    assert list(wds.DataPipeline(five).repeat(2)) == [0, 1, 2, 3, 4] * 2
    assert list(wds.DataPipeline(five).repeat(2, nbatches=7)) == [0, 1, 2, 3, 4, 0, 1]
    assert list(wds.DataPipeline(five).repeat(nbatches=3)) == [0, 1, 2]


def test_an_empty_pass_ends_the_repetition():
    assert list(wds.DataPipeline(lambda: iter([])).repeat()) == []


def test_an_empty_pass_does_not_end_the_repetition_where_it_is_the_rest_of_one():
    pipeline, resumed = wds.DataPipeline(range(1, 4)).repeat(2), wds.DataPipeline(range(1, 4)).repeat(2)
    items = iter(pipeline)
    assert [next(items) for _ in range(3)] == [1, 2, 3]
    resumed.load_state_dict(pipeline.state_dict())
    assert list(resumed) == [1, 2, 3]


def test_a_state_of_rounds_of_another_length_is_refused():
    with pytest.raises(wds.StateError):
        wds.DataPipeline(range(9)).with_epoch(3).load_state_dict(wds.DataPipeline(range(9)).repeat(2).state_dict())


def test_without_with_length_there_is_no_len():
    pipeline = wds.DataPipeline(five)
    assert not hasattr(pipeline, "__len__")
    assert pipeline
    assert list(pipeline) == list(five())
    with pytest.raises(TypeError, match="exact=True"):
        len(pipeline)


def test_completion_shows_what_users_call():
    names = [name for name in dir(wds.DataPipeline(five)) if name[:2] != "__"]
    assert {"compose", "state_dict", "with_epoch"} <= {*names}
    assert [name for name in names if name[0] == "_" or name in ("invoke", "iterator1", "placed")] == []


def test_with_length_gives_a_len_that_survives_pickling_and_composing():
    pipeline = wds.DataPipeline(five).with_length(10, silent=True)
    copy = pickle.loads(pickle.dumps(pipeline)).compose(doubled)
    assert (len(copy), list(copy)) == (10, [0, 2, 4, 6, 8])
    assert type(pipeline).__name__ == "DataPipeline_Length"


def test_with_length_warns_that_the_data_stays_as_it_is():
    with pytest.warns(UserWarning, match="with_epoch"):
        wds.DataPipeline(five).with_length(10)


def test_closing_the_iterator_closes_every_stage():
    closed = []

    def source():
        try:
            yield from range(10)
        finally:
            closed.append("source")

    def stage(src):
        try:
            yield from src
        finally:
            closed.append("stage")

    items = iter(wds.DataPipeline(source, stage).repeat(3))
    assert next(items) == 0
    items.close()
    assert sorted(closed) == ["source", "stage"]


def test_close_closes_stages_and_ends_the_pipeline():
    class Held(wds.PipelineStage):
        closed = False

        def run(self, src):
            return src

        def close(self):
            self.closed = True

    held = Held()
    pipeline = wds.DataPipeline(five, held)
    pipeline.close()
    pipeline.close()
    assert held.closed
    with pytest.raises(ValueError, match="closed"):
        list(pipeline)


def test_torch_takes_a_pipeline_as_an_iterable_dataset_even_if_imported_later():
    program = """
import webdataset as wds
pipeline = wds.DataPipeline(range(4))
import sys
assert "torch" not in sys.modules
from torch.utils.data import DataLoader, IterableDataset
assert isinstance(pipeline, IterableDataset)
print([batch.tolist() for batch in DataLoader(pipeline, batch_size=2)])
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout == "[[0, 1], [2, 3]]\n"


def test_stats_are_those_of_the_latest_pass_and_of_nested_pipelines():
    pipeline = wds.DataPipeline(wds.DataPipeline(["1", "x", "3"].copy, wds.map(int, handler=wds.ignore_and_continue)))
    for _ in range(2):
        assert list(pipeline) == [1, 3]
        assert pipeline.stats()["samples_dropped"] == 1


def test_interleaved_pipelines_count_apart():
    bad = wds.DataPipeline(["x", "1", "y"].copy, wds.map(int, handler=wds.ignore_and_continue))
    good = wds.DataPipeline(["1", "2", "3"].copy, wds.map(int, handler=wds.ignore_and_continue))
    assert list(zip(good, bad, strict=False)) == [(1, 1)]
    assert (bad.stats()["samples_dropped"], good.stats()["samples_dropped"]) == (2, 0)
