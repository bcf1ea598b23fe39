"""The number of the next pass, agreed on by all processes that read a dataset."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest

from webdataset.base.counter import PassCounter


def count_passes(counter, queue):
    queue.put([counter.begin(), counter.begin()])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_passes_begun_in_other_processes_count(method):
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    counter = PassCounter()
    counter.begin()
    for _ in range(2):
        process = context.Process(target=count_passes, args=(counter, queue))
        process.start()
        process.join()
    assert [queue.get(), queue.get(), counter.begin()] == [[1, 2], [3, 4], 5]


def test_a_pickled_copy_of_a_counter_goes_its_own_way():
    counter = PassCounter()
    counter.begin()
    copy = pickle.loads(pickle.dumps(counter))
    assert (copy.begin(), copy.begin(), counter.begin()) == (1, 2, 1)
