"""Waits that others end, and that an interrupt does not break."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from interrupts import in_another_thread, interrupted
from waiting import HANG_SECONDS, soon
from webdataset.base.stops import Bell, Stop, Thread

MOST_MOMENTS = 1000

OPERATIONS: dict[str, Callable[[Stop], object]] = {
    "set": Stop.set,
    "is_set": Stop.is_set,
    "wait": lambda stop: stop.wait(0.0001),
    "one below it": lambda stop: _below(stop),
}


def _below(stop: Stop) -> Stop:
    with stop.in_force():
        return Stop()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_stop_that_is_interrupted_at_any_moment_can_still_be_set_and_waited_for(name):
    operation = OPERATIONS[name]
    for moment in range(MOST_MOMENTS):
        stop = Stop()
        below = _below(stop)
        was_interrupted = interrupted(lambda stop=stop: operation(stop), moment)
        assert in_another_thread(lambda stop=stop: stop.is_set() or stop.wait(0.0001)) == [stop.is_set()]
        assert in_another_thread(stop.set) == [None]
        assert in_another_thread(lambda stop=stop, below=below: (stop.wait(60), below.wait(60))) == [(True, True)]
        if not was_interrupted:
            break
    assert 0 < moment < MOST_MOMENTS - 1


def test_a_stop_does_not_hold_those_below_it():
    stop = Stop()
    gone = weakref.ref(_below(stop))
    assert gone() is None
    stop.set()


def test_a_thread_that_waits_is_woken():
    stop = Stop()
    waited: list[bool] = []
    thread = threading.Thread(target=lambda: waited.append(stop.wait(600)))
    thread.start()
    stop.set()
    thread.join(HANG_SECONDS)
    assert waited == [True]


def test_a_wait_returns_what_was_found():
    found: list[int] = []
    bell = Bell()

    def work() -> None:
        bell.ring()  # for nothing
        found.append(7)
        bell.ring()

    thread = threading.Thread(target=work)
    thread.start()
    assert bell.wait(lambda: found) == [7]
    thread.join()


def test_a_wait_ends_when_its_time_is_over():
    assert Bell().wait(list, 0.001) == []
    assert Bell().wait(list, -1) == []


def test_a_ring_ends_all_waits():
    bell, rung, looked = Bell(), threading.Event(), []

    def look() -> bool:
        looked.append(threading.get_ident())
        return rung.is_set()

    waiting = [threading.Thread(target=bell.wait, args=(look,)) for _ in range(3)]
    for thread in waiting:
        thread.start()
    assert soon(lambda: len(set(looked)) == 3)
    rung.set()
    bell.ring()
    for thread in waiting:
        thread.join(HANG_SECONDS)
    assert not any(thread.is_alive() for thread in waiting)


def test_what_is_looked_for_may_ring_the_bell():
    bell, looks = Bell(), []

    def look() -> bool:
        looks.append(1)
        bell.ring()
        return len(looks) == 3

    assert bell.wait(look)


def test_a_thread_that_is_interrupted_while_it_starts_runs_or_has_not_begun():
    before = len(sys._current_frames())
    for moment in range(MOST_MOMENTS):
        thread = Thread(target=int, daemon=True)
        was_interrupted = interrupted(thread.start, moment)
        # none hangs before its function begins; threads of other tests may end meanwhile
        assert soon(lambda: len(sys._current_frames()) <= before and not thread.is_alive())  # noqa: B023 - called now
        if not was_interrupted:
            break
    assert 0 < moment < MOST_MOMENTS - 1
