"""What errors and exit codes mean: bad data stays bad, a server or a disk may recover."""

from __future__ import annotations

import errno

import pytest

from webdataset.errors import (
    DecodingError,
    MissingPackageError,
    MissingShardError,
    SecurityError,
    ShardError,
    StorageError,
    UnavailableError,
)
from webdataset.runs.outcomes import EXIT_CODES, OF_CODES, Verdict, verdict_of_error


def storage_error(number: int) -> StorageError:
    error = StorageError("x")
    error.errno = number
    return error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ShardError("cut"), Verdict.GIVE_UP),
        (DecodingError("no png"), Verdict.GIVE_UP),
        (MissingShardError("gone"), Verdict.GIVE_UP),
        (UnavailableError("down"), Verdict.RETRY),
        (storage_error(errno.ENOSPC), Verdict.RETRY),
        (storage_error(errno.EROFS), Verdict.GIVE_UP),
        (ValueError("of the user"), Verdict.RETRY),
        (MemoryError(), Verdict.RETRY),
        (MissingPackageError("x"), Verdict.STOP),
        (SecurityError("x"), Verdict.STOP),
    ],
)
def test_errors(error: BaseException, verdict: Verdict) -> None:
    assert verdict_of_error(error) is verdict


def test_the_exit_codes_of_a_task_mean_what_they_say() -> None:
    assert {OF_CODES.get(code, Verdict.RETRY): code for code in EXIT_CODES.values()} == EXIT_CODES
