"""A pool of threads whose results come in the order of the tasks, and which leaves no thread."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcomes import outcome
from webdataset.base.pool import ordered_map

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@given(st.lists(st.integers(0, 9)), st.integers(1, 5), st.integers(1, 7))
@settings(deadline=None, max_examples=50)
def test_results_come_in_the_order_of_the_tasks(tasks, threads, ahead):
    def slow_if_even(n):
        if n % 2 == 0:
            time.sleep(0.0005)
        return n * n

    assert list(ordered_map(tasks, slow_if_even, threads=threads, ahead=ahead)) == [n * n for n in tasks]


@given(st.integers(0, 20), st.integers(1, 4), st.integers(1, 6), st.booleans())
@settings(deadline=None, max_examples=50)
def test_an_error_comes_at_its_place(at, threads, ahead, in_tasks):
    def tasks():
        for n in range(25):
            if in_tasks and n == at:
                raise KeyError(n)
            yield n

    def function(n):
        if not in_tasks and n == at:
            raise KeyError(n)
        return n

    assert outcome(ordered_map(tasks(), function, threads=threads, ahead=ahead)) == (list(range(at)), f"KeyError({at})")


@given(st.integers(1, 4), st.integers(1, 8))
@settings(deadline=None, max_examples=20)
def test_no_more_tasks_are_read_than_allowed(threads, ahead):
    read = []

    def tasks():
        for n in range(50):
            read.append(n)
            yield n

    results = ordered_map(tasks(), str, threads=threads, ahead=ahead)
    for taken in range(1, 20):
        next(results)
        assert len(read) <= taken + ahead
    results.close()


def test_a_slow_first_task_does_not_let_the_others_run_away():
    release, started = threading.Event(), []

    def function(n):
        started.append(n)
        if n == 0:
            release.wait()
        return n

    results = ordered_map(itertools.count(), function, threads=3, ahead=5)
    first = []
    consumer = threading.Thread(target=lambda: first.append(next(results)))
    consumer.start()
    while len(started) < 5:
        time.sleep(0.001)
    assert sorted(started) == [0, 1, 2, 3, 4]
    release.set()
    consumer.join()
    assert first == [0]
    results.close()


def test_closing_does_not_wait_for_a_task_that_blocks():
    release = threading.Event()
    results = ordered_map(range(10), lambda n: n if n == 0 else release.wait(), threads=2, ahead=4)
    assert next(results) == 0
    results.close()
    release.set()


def test_closing_does_not_wait_for_a_source_that_blocks():
    release, closed = threading.Event(), threading.Event()

    def tasks():
        try:
            yield 0
            release.wait()
            yield 1
        finally:
            closed.set()

    results = ordered_map(tasks(), str, threads=2, ahead=4)
    assert next(results) == "0"
    results.close()
    release.set()
    assert closed.wait(60)


@pytest.mark.parametrize("leave", ["exhausted", "closed", "dropped", "failed", "never begun"])
def test_no_thread_is_left_and_the_source_is_closed(leave):
    closed = []

    def tasks():
        try:
            yield from range(100)
        finally:
            closed.append(True)

    def function(n):
        if leave == "failed" and n == 50:
            raise ValueError(n)
        return n

    results = ordered_map(tasks(), function, threads=3, ahead=6)
    if leave == "exhausted":
        assert list(results) == list(range(100))
    elif leave == "failed":
        with pytest.raises(ValueError, match="50"):
            list(results)
    elif leave == "closed":
        assert next(results) == 0
        results.close()
    elif leave == "dropped":
        assert next(results) == 0
        del results
    assert [t.name for t in threading.enumerate() if t.name.startswith("webdataset")] == []
    assert closed == ([] if leave == "never begun" else [True])


def test_the_traceback_shows_where_in_the_worker_it_happened():
    def broken(n):
        return 1 // n

    with pytest.raises(ZeroDivisionError) as caught:
        list(ordered_map([1, 0], broken, threads=2, ahead=2))
    assert "broken" in [entry.name for entry in caught.traceback]


def test_threads_join_in_while_calls_wait():
    together = threading.Barrier(4, timeout=60)

    def function(number):
        if number < 40:
            time.sleep(0.02)
        else:
            together.wait()  # only four threads at once come through
        return number

    assert list(ordered_map(range(44), function, threads=4, begin_with=1, ahead=8)) == list(range(44))


@pytest.mark.parametrize("options", [{"threads": 0, "ahead": 1}, {"threads": 1, "ahead": 0}])
def test_a_pool_needs_a_thread_and_a_place(options):
    with pytest.raises(ValueError, match="at least 1"):
        ordered_map([], str, **options)


def test_a_program_may_end_with_threads_at_work():
    program = """
import time, webdataset.loading.pools as threads
results = threads.ordered_map(iter(int, 1), lambda n: time.sleep(0.01), threads=4, ahead=8)
next(results)
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
