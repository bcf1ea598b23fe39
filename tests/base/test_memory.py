"""Reused memory: what somebody holds is never overwritten, and what nobody holds is used again."""

from __future__ import annotations

import threading

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset.base.memory import LARGE, PATIENCE, Memory, large_array, of_this_thread

SHAPES = [(LARGE,), (2, LARGE), (3, LARGE // 2)]


def filled(memory, shape, value):
    array = memory.array(shape, np.uint8)
    array[...] = value
    return array


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(0, 6)), max_size=40))
def test_what_is_held_stays_as_it_is_whatever_is_held_and_dropped(actions):
    memory, held = Memory(), {}
    for value, (shape, dropped) in enumerate(actions):
        held[value] = filled(memory, shape, value)
        held.pop(value - dropped - 1, None)
        for number, array in held.items():
            assert (array[..., :: LARGE // 4] == number).all()


def test_a_view_a_tensor_and_a_view_of_a_tensor_hold_the_memory():
    memory = Memory()
    for hold in (lambda a: a[1:], torch.from_numpy, lambda a: torch.from_numpy(a)[1:].view(-1), memoryview):
        array = filled(memory, (2, LARGE), 7)
        place = array.ctypes.data
        held = hold(array)
        del array
        assert filled(memory, (2, LARGE), 9).ctypes.data != place
        assert np.asarray(held).max() == 7
        del held
        assert any(block.memory.ctypes.data == place and block.is_free for block in memory.blocks)


def test_a_loop_that_drops_its_arrays_needs_one_block():
    memory = Memory()
    assert len({filled(memory, (LARGE,), n).ctypes.data for n in range(20)}) == 1


def test_free_memory_that_nothing_fits_is_given_back():
    memory = Memory()
    filled(memory, (64, LARGE), 0)
    for _ in range(PATIENCE + 2):
        filled(memory, (LARGE,), 0)
    assert [block.size for block in memory.blocks] == [LARGE]


def test_threads_do_not_share_memory():
    places, memories = [], []

    def work():
        places.append(large_array((LARGE,), np.uint8).ctypes.data)
        memories.append(of_this_thread())

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert memories[0] is not memories[1]


def test_small_arrays_and_arrays_of_objects_are_ordinary_ones():
    before = len(of_this_thread().blocks)
    large_array((10,), np.float32)
    large_array((LARGE,), object)
    assert len(of_this_thread().blocks) == before
