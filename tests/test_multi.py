"""MultiLoader: worker processes without torch."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from garbage import left_to_this_process
from webdataset.errors import WebDatasetError
from webdataset.multi import MultiLoader


class Numbers:
    """Each worker's own numbers."""

    def __iter__(self) -> Iterator[int]:
        worker, workers = int(os.environ["WORKER"]), int(os.environ["NUM_WORKERS"])
        yield from range(worker, 10, workers)


class Failing:
    def __iter__(self) -> Iterator[int]:
        yield 1
        raise KeyError("no such field")


class Dying:
    def __iter__(self) -> Iterator[int]:
        yield 1
        os._exit(3)


def test_workers_know_their_number() -> None:
    loader = MultiLoader(Numbers(), workers=3)
    assert sorted(loader) == list(range(10))
    assert sorted(loader) == list(range(10))


def test_an_error_in_a_worker_is_raised_with_its_place() -> None:
    with pytest.raises(KeyError, match="no such field") as caught:
        list(MultiLoader(Failing(), workers=1))
    assert "worker 0" in caught.value.__notes__[0]


def test_a_worker_that_dies_is_an_error() -> None:
    with pytest.raises(WebDatasetError, match="3"):
        list(MultiLoader(Dying(), workers=1))


def test_stopping_early_ends_the_workers() -> None:
    others = multiprocessing.active_children()  # of loaders that have not been collected
    loader = MultiLoader(Numbers(), workers=2)
    items = iter(loader)
    next(items)
    items.close()  # type: ignore[attr-defined]  # it is a generator
    assert set(multiprocessing.active_children()) <= set(others)


def test_a_loader_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="0"):
        MultiLoader(Numbers(), workers=0)


class Collecting:
    def __iter__(self) -> Iterator[int]:
        yield 0 * gc.collect()


def test_workers_do_not_collect_the_garbage_of_the_program(tmp_path: Path) -> None:
    with left_to_this_process(tmp_path):
        assert list(MultiLoader(Collecting(), workers=2, start_method="fork")) == [0, 0]
