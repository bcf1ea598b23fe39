"""Map whole shards in several processes, each of which reads a shard and packs the results.

Reading and packing small samples takes longer than most functions do, so only this makes several processes worthwhile.
The results of a shard are kept in a temporary file until its turn comes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from webdataset.base.reports import Report, current_report
from webdataset.errors import SampleError, WebDatasetError
from webdataset.tools.parallel import call, process_pool, submitted

from .mapping import Pack, batches
from .spilling import read_frames, temporary_folder, write_frames

Counts = Callable[[], dict[str, Any]]
Read = Callable[[str], tuple[Iterable[Any], Counts]]


def map_shards(
    urls: Sequence[str],
    make: Callable[[], Read],
    *,
    pack: Callable[[], Pack],
    processes: int,
    ordered: bool = True,
    tick: Callable[[], object] = lambda: None,
) -> Iterator[Any]:
    """Yield the results of all shards.

    Each process calls `make` and `pack` once. `make()` returns a function that reads a shard: it returns the samples
    and a function that returns the counts afterwards. What `pack()` returns is applied to lists of samples. `tick` is
    called now and then while they work.
    """
    return _mapped(urls, partial(_ShardMapper, make, pack), processes, ordered, report=current_report(), tick=tick)


def _mapped(
    urls: Sequence[str],
    start: Callable[[str], _ShardMapper],
    processes: int,
    ordered: bool,
    *,
    report: Report,
    tick: Callable[[], object],
) -> Iterator[Any]:
    with ExitStack() as opened:
        folder = opened.enter_context(temporary_folder(None))
        pool = opened.enter_context(process_pool(processes, partial(start, folder)))
        for _, future in submitted(pool, call, enumerate(urls), workers=processes, ordered=ordered, tick=tick):
            path, counts, error = future.result()
            for made in read_frames(path):
                yield from made
            os.unlink(path)
            report.add(counts)
            if error is not None:
                raise error


class _ShardMapper:
    """Maps shards, in a worker process."""

    def __init__(self, make: Callable[[], Read], pack: Callable[[], Pack], folder: str) -> None:
        self.read, self.pack, self.folder = make(), pack(), folder

    def __call__(self, job: tuple[int, str]) -> tuple[str, dict[str, Any], WebDatasetError | None]:
        """Return the file with the results, the counts, and the error that ended it early."""
        number, url = job
        path = os.path.join(self.folder, f"{number:09d}")
        samples, counts = self.read(url)
        failures: list[WebDatasetError] = []
        write_frames(path, map(self.pack, batches(_until_failure(samples, failures, number))))
        return path, counts(), failures[0] if failures else None


def _until_failure(samples: Iterable[Any], failures: list[WebDatasetError], shard: int) -> Iterator[Any]:
    try:
        yield from samples
    except WebDatasetError as error:
        if error.shard is not None:
            error.shard = shard
        failures.append(error)
    except Exception as error:
        # not every exception can be pickled
        failures.append(SampleError(f"{type(error).__name__}: {error}"))
