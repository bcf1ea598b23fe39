"""What a process that is forked from this one must leave alone."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Forking(threading.local):
    """Whether this thread forks processes of ours."""

    now = False


_forking = _Forking()


@contextmanager
def leaving_garbage() -> Iterator[None]:
    """Processes that this thread forks in this block leave alone what is garbage of this one.

    Collecting it can wait forever: a filter graph of PyAV, for one, waits for its threads, which a copy has not.
    """
    outer, _forking.now = _forking.now, True
    try:
        yield
    finally:
        _forking.now = outer


def _leave_garbage() -> None:
    if _forking.now:
        _forking.now = False
        gc.freeze()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_garbage)
