"""Every error WebLoader raises, as one tree.

    WebDatasetError                 knows url, shard, offset, member, key, field; str() is one line
    ├── ShardError                  a shard's bytes are not a whole tar archive   (also tarfile.ReadError)
    │   ├── LimitError              ... or would need more memory than allowed
    │   └── NotATarError            ... but something else altogether             (also ValueError)
    ├── SampleError                 members do not form a sample                  (also ValueError)
    ├── DecodingError               a field's bytes are not what its extension says
    ├── EncodingError               a value cannot be written under its extension (also ValueError)
    ├── StorageError                a url could not be read or written            (also OSError)
    │   ├── MissingShardError       ... because nothing is there                  (also FileNotFoundError)
    │   ├── UnavailableError        ... because its server did not answer for as long as it was waited for
    │   ├── NoRangesError           ... in parts, only as a whole
    │   ├── ExistingShardsError     ... because shards are there already           (also FileExistsError)
    │   └── CommandError            ... because the command behind it failed
    ├── SecurityError               refused because it could run code or leave its bounds (also ValueError)
    │   └── UnsafePickleError       ... a pickle that names more than plain data  (also pickle.UnpicklingError)
    ├── EmptyDatasetError           no sample at all                              (also ValueError)
    ├── StateError                  a state does not fit, or cannot be had         (also ValueError)
    ├── WorkerError                 a loader's worker process died                (also RuntimeError)
    └── MissingPackageError         an optional package is needed                 (also ImportError)

    ShardWarning                    what strict mode turns into an error          (a UserWarning)

The second base is the type that programs written for older versions catch.
"""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Callable
from typing import Any

from .base.printing import printable
from .base.redact import redacted

PLACES = ("url", "shard", "offset", "member", "key", "field")


class WebDatasetError(Exception):
    """Something went wrong at a known place of a dataset.

    Args:
        message: what is wrong
        url: the shard
        shard: its number in the list
        offset: the byte in it
        member: the name of the member
        key: the key of the sample
        field: its field
        hint: what to do about it

    >>> str(WebDatasetError("the header's checksum is wrong", url="a.tar", offset=512))
    "the header's checksum is wrong [url a.tar, offset 512]"
    """

    def __init__(
        self,
        message: str = "",
        *,
        url: str | None = None,
        shard: int | None = None,
        offset: int | None = None,
        member: str | None = None,
        key: str | None = None,
        field: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.url = url
        self.shard = shard
        self.offset = offset
        self.member = member
        self.key = key
        self.field = field
        self.hint = hint

    def at(self, **places: object) -> WebDatasetError:
        """Fill in `places` that were not known where the error arose, and return the error itself."""
        for name, value in places.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        known = [f"{name} {_shown(name, value)}" for name in PLACES if (value := getattr(self, name)) is not None]
        line = redacted(_without_traceback(self.message)) + (f" [{', '.join(known)}]" if known else "")
        line += f"; {self.hint}" if self.hint else ""
        return printable(" ".join(line.split("\n")))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuild, (type(self), self.message, self._state())

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*PLACES, "hint")}


def _without_traceback(message: str) -> str:
    """The last line of what torch's DataLoader makes of the message of an error in a worker: all of its traceback."""
    if not message.startswith("Caught ") or "\nOriginal Traceback " not in message:
        return message
    where = message[: message.index("\n")].partition(" in ")[2].rstrip(".")
    line = message.rstrip().rpartition("\n")[2]
    return f"{line.partition(': ')[2] or line} (in {where})"


class ShardError(WebDatasetError, tarfile.ReadError):
    """A shard's bytes are not a whole, well formed tar archive."""


class LimitError(ShardError):
    """A shard asks for more memory than the limits allow; the hint says which limit to raise."""


class NotATarError(ShardError, ValueError):
    """What is there is no tar archive at all, but an error page, say, or a compressed file.

    Args:
        message: what is wrong
        format: what its first bytes look like, such as `"gzip"` or `"HTML"`, None if that cannot be told
        **places: `url`, `offset` and so on
    """

    def __init__(self, message: str = "", *, format: str | None = None, **places: Any) -> None:
        super().__init__(message, **places)
        self.format = format

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"format": self.format}


class SampleError(WebDatasetError, ValueError):
    """The members of a shard do not form a sample."""


class DecodingError(WebDatasetError):
    """A field's bytes could not be decoded; `__cause__` is the decoder's own error.

    The old attributes `k` (the field) and `sample` are kept for programs that read them; `sample`
    stays in the process where the error arose.

    Args:
        message: what is wrong
        key: the key of the sample
        k: the field
        sample: the sample
        **places: `url`, `shard`, `offset` and so on
    """

    def __init__(
        self, message: str = "", key: str | None = None, k: str | None = None, sample: Any = None, **places: Any
    ) -> None:
        places.setdefault("field", k)
        super().__init__(message, key=key, **places)
        self.sample = sample

    @property
    def k(self) -> str | None:
        """The field, under its old name."""
        return self.field


class EncodingError(WebDatasetError, ValueError):
    """A value cannot be written under its extension."""


class StorageError(WebDatasetError, OSError):
    """A url could not be read or written.

    Args:
        message: what is wrong
        status: the HTTP status of the server's answer, or the exit status of a command
        retryable: whether the same may succeed later
        **places: `url`, `hint` and so on

    >>> MissingShardError("nothing is there", status=404).status, UnavailableError("no answer").retryable
    (404, True)
    """

    def __init__(self, message: str = "", *, status: int | None = None, retryable: bool = False, **places: Any) -> None:
        super().__init__(message, **places)
        self.status = status
        self.retryable = retryable

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"status": self.status, "retryable": self.retryable}


class MissingShardError(StorageError, FileNotFoundError):
    """Nothing is stored under this url."""


class UnavailableError(StorageError):
    """A server did not answer for as long as it was waited for; it may do so later.

    Args:
        message: what is wrong
        retryable: whether the same may succeed later
        **places: `url`, `status` and so on
    """

    def __init__(self, message: str = "", *, retryable: bool = True, **places: Any) -> None:
        super().__init__(message, retryable=retryable, **places)


class NoRangesError(StorageError):
    """Parts of an object cannot be read, only the whole; a local copy has parts.

    Args:
        message: what is wrong
        hint: what to do about it
        **fields: `url`, `status` and so on
    """

    def __init__(
        self, message: str = "", *, hint: str = "give cache_dir=... so that a local copy is read", **fields: Any
    ) -> None:
        super().__init__(message, hint=hint, **fields)


class ExistingShardsError(StorageError, FileExistsError):
    """Shards of the pattern that is to be written are there already."""


class CommandError(StorageError):
    """The command behind a url failed."""


class SecurityError(WebDatasetError, ValueError):
    """Refused, because it could run code or reach what it must not reach."""


class UnsafePickleError(SecurityError, pickle.UnpicklingError):
    """A pickle asks for more than plain data; the message names the refused object and how to allow it."""


class EmptyDatasetError(WebDatasetError, ValueError):
    """A dataset, or a worker's part of it, has no sample at all."""


class StateError(WebDatasetError, ValueError):
    """A state that does not fit the dataset, states that do not fit each other, or a pipeline that has none."""


class WorkerError(WebDatasetError, RuntimeError):
    """A worker process of a loader died; the message says which, and of what."""


class MissingPackageError(WebDatasetError, ImportError):
    """An optional package is needed; the hint says what to install."""


class ObsoleteError(WebDatasetError):
    """A call that exists for old programs only and was not allowed."""


class ShardWarning(UserWarning):
    """Data that is readable but not as it should be; strict mode raises a ShardError instead."""


def _rebuild(kind: type[WebDatasetError], message: str, state: dict[str, Any]) -> WebDatasetError:
    error = kind(message)
    for name, value in state.items():
        setattr(error, name, value)
    return error


def _shown(name: str, value: Any) -> str:
    if name == "url":
        return redacted(os.fspath(value))
    if name in ("member", "key", "field"):
        return printable(str(value), 120)
    return str(value)
