"""How an attempt at an item ended, and what that means: it is done, try again, give it up, or stop the whole run.

The same meanings are exit codes of `wl task`, with the numbers that sysexits.h has for them, so that Kubernetes can
tell them apart.
"""

from __future__ import annotations

import errno
from enum import StrEnum

from webdataset.errors import (
    EncodingError,
    MissingPackageError,
    SampleError,
    SecurityError,
    ShardError,
    StorageError,
    WebDatasetError,
)


class Verdict(StrEnum):
    """What follows from an attempt."""

    DONE = "done"
    RETRY = "retry"
    GIVE_UP = "give up"
    STOP = "stop"


class StopRunError(WebDatasetError):
    """An error that every other shard would meet, too."""


EXIT_CODES = {Verdict.DONE: 0, Verdict.GIVE_UP: 65, Verdict.RETRY: 75, Verdict.STOP: 78}
"""EX_DATAERR, EX_TEMPFAIL and EX_CONFIG."""

OF_CODES = {
    0: Verdict.DONE,
    64: Verdict.STOP,  # EX_USAGE
    65: Verdict.GIVE_UP,
    77: Verdict.STOP,  # EX_NOPERM
    78: Verdict.STOP,
    126: Verdict.STOP,  # the shell could not run the command
    127: Verdict.STOP,  # there is no such command
}

_HOPELESS = {errno.EACCES, errno.EPERM, errno.EROFS}


def verdict_of_code(code: int, more: dict[int, Verdict] | None = None) -> Verdict:
    """Return what an exit code means; a negative one is the signal that killed the process.

    >>> verdict_of_code(0), verdict_of_code(-9), verdict_of_code(65), verdict_of_code(127)
    (<Verdict.DONE: 'done'>, <Verdict.RETRY: 'retry'>, <Verdict.GIVE_UP: 'give up'>, <Verdict.STOP: 'stop'>)
    """
    return (OF_CODES | (more or {})).get(code, Verdict.RETRY)


def verdict_of_error(error: BaseException) -> Verdict:
    """Return what an exception means: bad data stays bad, a server or a disk may recover.

    >>> verdict_of_error(ShardError("cut")), verdict_of_error(OSError(errno.ENOSPC, "full"))
    (<Verdict.GIVE_UP: 'give up'>, <Verdict.RETRY: 'retry'>)
    """
    if isinstance(error, (MissingPackageError, SecurityError, StopRunError)):
        return Verdict.STOP
    if isinstance(error, FileNotFoundError):
        return Verdict.GIVE_UP
    if isinstance(error, StorageError):
        return Verdict.GIVE_UP if error.errno in _HOPELESS else Verdict.RETRY
    if isinstance(error, (ShardError, SampleError, EncodingError, WebDatasetError)):
        return Verdict.GIVE_UP
    return Verdict.RETRY


def parsed_codes(text: str, verdict: Verdict) -> dict[int, Verdict]:
    """Read `3,7-9`.

    >>> sorted(parsed_codes("3,7-9", Verdict.STOP))
    [3, 7, 8, 9]
    """
    found: dict[int, Verdict] = {}
    for word in text.split(","):
        first, _, last = word.partition("-")
        try:
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), verdict)
        except ValueError:
            raise ValueError(f"exit codes are written 3 or 3,7-9, got {text!r}") from None
    return found
