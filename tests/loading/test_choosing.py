"""Which workers `workers="auto"` takes."""

from __future__ import annotations

import pytest

import webdataset as wds
from webdataset.images import flip, pipeline, resize
from webdataset.loading.choosing import chosen_workers


def shards():
    return wds.WebDataset("a-{0..3}.tar", shardshuffle=4, nodesplitter=wds.split_by_node)


class OwnStep:
    def __call__(self, canvas, rng):
        canvas.mirror()


DATASETS = {
    "bytes": (shards, "thread"),
    "images": (lambda: shards().shuffle(9).decode(wds.images.train(8)).to_tuple("jpg", "cls").batched(4), "thread"),
    "a spec": (lambda: shards().decode("rgb8", mask="pixels").to_tuple("jpg").batched(4), "thread"),
    "own operations": (lambda: shards().decode(pipeline(resize(8), flip())), "thread"),
    "a handler of errors": (lambda: shards().decode("rgb8", handler=lambda exn: True), "thread"),
    "a step": (lambda: shards().decode(pipeline(resize(8), OwnStep())), "process"),
    "map": (lambda: shards().map(lambda sample: sample), "process"),
    "select": (lambda: shards().select(lambda sample: True), "process"),
    "a decoder": (lambda: shards().decode(lambda key, data: None), "process"),
    "a field's decoder": (lambda: shards().decode(fields={"x": lambda data: data}), "process"),
    "a stage": (lambda: shards().compose(lambda data: data), "process"),
    "a collation": (lambda: shards().batched(4, collation_fn=lambda samples: samples), "process"),
    "a source": (lambda: wds.DataPipeline(lambda: iter(())), "process"),
    "a list": (lambda: [1, 2, 3], "process"),
}


@pytest.mark.parametrize("name", DATASETS)
def test_threads_are_taken_if_nothing_is_the_programs_own(name):
    make, wanted = DATASETS[name]
    choice = chosen_workers(make())
    assert choice.workers == wanted
    assert "GIL" in choice.reason


def test_a_loader_takes_them():
    loader = wds.WebLoader(shards().batched(4), batch_size=None, num_workers=2, workers="auto")
    assert loader.state_dict()["kind"] == "threads"
    loader = wds.WebLoader(shards().map(len).batched(4), batch_size=None, num_workers=2, workers="auto")
    assert loader.state_dict()["kind"] == "loader"


def test_options_for_processes_mean_processes():
    loader = wds.WebLoader(shards(), batch_size=None, num_workers=1, workers="auto", worker_init_fn=print)
    assert loader.state_dict()["kind"] == "loader"


def test_another_word_is_an_error():
    with pytest.raises(ValueError, match="fast"):
        wds.WebLoader([1], workers="fast")
