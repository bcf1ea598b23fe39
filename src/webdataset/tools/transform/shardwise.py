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
from webdataset.tools.parallel import process_pool, submitted

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
) -> Iterator[Any]:
    """Yield the results of all shards.

    Each process calls `make` and `pack` once. `make()` returns a function that reads a shard: it returns the samples
    and a function that returns the counts afterwards. What `pack()` returns is applied to lists of samples.
    """
    return _mapped(urls, partial(_start, make, pack), processes, ordered, current_report())


def _mapped(
    urls: Sequence[str], start: Callable[[str], None], processes: int, ordered: bool, report: Report
) -> Iterator[Any]:
    with ExitStack() as opened:
        folder = opened.enter_context(temporary_folder(None))
        pool = opened.enter_context(process_pool(processes, start, folder))
        for _, future in submitted(pool, _map_shard, enumerate(urls), workers=processes, ordered=ordered):
            path, counts, error = future.result()
            for made in read_frames(path):
                yield from made
            os.unlink(path)
            report.add(counts)
            if error is not None:
                raise error


class _Worker:
    """What a worker process was started with."""

    folder: str
    read: Read
    pack: Pack


def _start(make: Callable[[], Read], pack: Callable[[], Pack], folder: str) -> None:
    _Worker.folder = folder
    _Worker.read = staticmethod(make())
    _Worker.pack = staticmethod(pack())


def _map_shard(job: tuple[int, str]) -> tuple[str, dict[str, Any], WebDatasetError | None]:
    """Return the file with the results, the counts, and the error that ended it early."""
    number, url = job
    path = os.path.join(_Worker.folder, f"{number:09d}")
    samples, counts = _Worker.read(url)
    failures: list[WebDatasetError] = []
    write_frames(path, map(_Worker.pack, batches(_until_failure(samples, failures, number))))
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
