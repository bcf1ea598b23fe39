"""Files of this machine as streams."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
from typing import BinaryIO, cast

from webdataset.base.reports import current_report
from webdataset.base.settings import settings
from webdataset.errors import MissingShardError, SecurityError, StorageError

from .streams import count_received
from .urls import local_path

_SCHEME_WITHOUT_COLON = re.compile(r"(https?|s3|gs|gcs|az|abfss?|hf|ais|ssh|sftp|scp)//")


def open_local(url: str, mode: str = "rb", *, buffering: int = -1) -> BinaryIO:
    """Open a path or `file:` url; `buffering=0` returns the raw file, which suits reads of a megabyte.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file, open_local(file.name) as stream:
    ...     stream.read()
    b''
    """
    path = local_path(url)
    if path is None:
        raise StorageError("this is no local file", url=url)
    path = allowed_path(path, url)
    try:
        if mode == "rb" and buffering != 0:
            return cast(BinaryIO, ReadFile(path, buffering))
        return cast(BinaryIO, open(path, mode, buffering=buffering))
    except OSError as exn:
        raise _as_storage_error(exn, path, url) from exn


def expect_reads(url: str) -> None:
    """Let the system read a whole file into its memory, in the background, if it can; errors are ignored."""
    with contextlib.suppress(StorageError, OSError, AttributeError), open_local(url, buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


class ReadFile(io.BufferedReader):
    """A file, by its path or descriptor, that counts the bytes read as all streams do."""

    def __init__(self, file: str | int, buffering: int = -1) -> None:
        super().__init__(io.FileIO(file, "rb"), buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        self._report = current_report()

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(OSError):  # a named pipe has no position
                count_received(self._report, self.tell())
        super().close()


def allowed_path(path: str, url: str | None = None) -> str:
    """The path itself, or in secure mode the real path, which must lie in one of `WDS_SECURE_ROOTS`."""
    if not settings.secure:
        return path
    real = os.path.realpath(path)
    for root in settings.secure_roots:
        top = os.path.realpath(root)
        if real == top or real.startswith(os.path.join(top, "")):
            return real
    raise SecurityError(
        "local files are refused in secure mode", url=url or path, hint="add their folder to WDS_SECURE_ROOTS"
    )


def standard_stream(mode: str) -> BinaryIO:
    """Standard input or output as bytes: the process's own stream, so closing it is for good."""
    import sys

    source = sys.stdin if mode.startswith("r") else sys.stdout
    stream = getattr(source, "buffer", source)
    if isinstance(stream, io.TextIOBase) or stream is None:
        raise StorageError("'-' needs standard input or output with bytes underneath", url="-")
    return cast(BinaryIO, stream)


def _as_storage_error(exn: OSError, path: str, url: str) -> StorageError:
    """An error of the operating system as StorageError, with the url and a hint."""
    error: StorageError
    if exn.errno == errno.ENOENT:
        error = MissingShardError("no such file", url=url, hint=_missing_hint(path))
    elif exn.errno == errno.EISDIR:
        pattern = os.path.join(path, "*.tar")
        error = StorageError("this is a directory, not a shard", url=url, hint=f"name its files, such as {pattern}")
    elif exn.errno == errno.EACCES:
        error = StorageError("permission denied", url=url, hint="check the owner and mode of the file and its folders")
    else:
        error = StorageError(f"cannot open this file: {exn.strerror or exn}", url=url)
    error.errno = exn.errno
    error.strerror = exn.strerror
    error.filename = path
    return error


def _missing_hint(path: str) -> str:
    if scheme := _SCHEME_WITHOUT_COLON.match(path):
        return f"did you mean {scheme[1]}://{path[scheme.end() :]}?"
    folder = os.path.dirname(os.path.abspath(path))
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return "" if os.path.dirname(os.path.abspath(path)) == folder else f"the path exists up to {folder}"
