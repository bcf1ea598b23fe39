"""Which workers `workers="auto"` takes."""

from __future__ import annotations

import os

import pytest

import webdataset as wds
from webdataset.images import flip, pipeline, resize


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
}


@pytest.mark.parametrize("name", DATASETS)
def test_threads_are_taken_if_nothing_is_the_programs_own(name):
    make, wanted = DATASETS[name]
    loader = wds.WebLoader(make(), batch_size=None, num_workers=2, workers="auto")
    assert loader.state_dict()["kind"] == {"thread": "threads", "process": "loader"}[wanted]


class Readers:
    """Items that say which process read them."""

    def __len__(self):
        return 3

    def __getitem__(self, number):
        return os.getpid()


def test_items_of_the_programs_own_are_read_by_processes():
    readers = set(wds.WebLoader(Readers(), batch_size=None, num_workers=1, workers="auto"))
    assert len(readers) == 1
    assert os.getpid() not in readers


def test_options_for_processes_mean_processes():
    loader = wds.WebLoader(shards(), batch_size=None, num_workers=1, workers="auto", worker_init_fn=print)
    assert loader.state_dict()["kind"] == "loader"


def test_another_word_is_an_error():
    with pytest.raises(ValueError, match="fast"):
        wds.WebLoader([1], workers="fast")
