"""What worker processes leave for the loader that started them: their counts, and the error that ended them.

A mailbox is a folder, so that it works with every way to start a process, and also after a worker has died.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .reports import Report
from .stops import Stop, Thread
from .workers import pytorch_worker_info

WATCHED = "watched"
"""A file in the folder of a loader that somebody watches."""
SECONDS = 1.0


def publish(folder: str | None, report: Report) -> None:
    """Leave the counts of a pass that ends now for the loader that started this worker, if one did."""
    if folder is not None and not sys.is_finalizing():  # a pass that nobody ended, when the program ends
        leave(folder, report)


def leave(folder: str, report: Report) -> None:
    """Leave the counts of a pass that ends now in this worker, and the error that is being handled, if any."""
    rank, _, worker, workers = pytorch_worker_info()
    name = f"{rank}-{worker}-{os.getpid()}"
    error = sys.exc_info()[1]
    try:
        _put(folder, f"{name}.json", json.dumps(report.as_dict()).encode())
        if isinstance(error, Exception):
            with suppress(Exception):  # what cannot be pickled arrives in torch's own way
                _put(folder, f"{worker}.error", packed(error, f"in worker {worker} of {workers}"))
    except OSError:
        # the loader has gone and took its folder along: nobody is left to tell
        return


@contextmanager
def left_regularly(folder: str | None, report: Report) -> Iterator[None]:
    """Leave the counts of a pass while it lasts, if somebody watches the loader that started this worker."""
    if folder is None or not os.path.exists(os.path.join(folder, WATCHED)):
        yield
        return
    ended = Stop.apart()

    def work() -> None:
        while not ended.wait(SECONDS):
            with suppress(RuntimeError):  # counted on meanwhile
                leave(folder, report)

    thread = Thread(target=work, name="webdataset-counts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Mailbox:
    """The folder; it goes when the last loader that shares it goes."""

    def __init__(self) -> None:
        import shutil
        import tempfile

        self.folder = tempfile.mkdtemp(prefix="webdataset-reports-")
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def reports(self) -> Iterator[dict[str, Any]]:
        """The counts of all workers."""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".json"):
                with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                    yield json.load(file)

    def error(self, worker: int) -> Exception | None:
        """The error that ended a worker, as it was raised there."""
        try:
            with open(os.path.join(self.folder, f"{worker}.error"), "rb") as file:
                return unpacked(file.read())
        except FileNotFoundError:
            return None

    def watch(self) -> None:
        """From the next pass on, ask workers for their counts while it lasts, too."""
        with open(os.path.join(self.folder, WATCHED), "wb"):
            pass

    def clear(self) -> None:
        """Forget the workers of an earlier pass."""
        for name in os.listdir(self.folder):
            if name != WATCHED:
                os.unlink(os.path.join(self.folder, name))


def packed(error: Exception, where: str) -> bytes:
    """An error and its traceback as bytes; raises if it cannot be made again from them."""
    import traceback

    notes = [f"{where}:\n{''.join(traceback.format_exception(error))}"]
    data = pickle.dumps((error, notes))
    pickle.loads(data)  # noqa: S301 - our own bytes
    return data


def unpacked(data: bytes) -> Exception:
    """The error, with what the traceback was in a note.

    >>> unpacked(packed(KeyError("jpg"), "in worker 1")).__notes__
    ["in worker 1:\\nKeyError: 'jpg'\\n"]
    """
    error: Exception
    error, error.__notes__ = pickle.loads(data)  # noqa: S301 - from a worker of ours
    return error


def _put(folder: str, name: str, data: bytes) -> None:
    path = os.path.join(folder, name)
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
    os.replace(f"{path}.tmp", path)
