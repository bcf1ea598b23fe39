"""Web servers as streams: whole bodies, resumed at the exact byte when a connection breaks, or an error.

A body is whole when as many bytes came as the server announced. When the connection breaks or stalls before that,
the rest is asked for with `Range` and `If-Range`, so that an object which changed in between is noticed; a server
that cannot do that gives an error that says so.
"""

from __future__ import annotations

import http.client
import io
import random
import ssl
import time
from collections.abc import Mapping
from typing import Any

from webdataset.errors import MissingShardError, StorageError
from webdataset.redact import redacted
from webdataset.reports import current_report

from .connect import Connector, Reply, refused

CONNECT_SECONDS = 30.0
STALL_SECONDS = 60.0
RETRIES = 4
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 15.0
LONGEST_RETRY_AFTER = 120.0
CHUNK_BYTES = 1 << 20
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

# What breaks a connection and may be gone the next time; a wrong certificate is not among them.
_BROKEN = (OSError, http.client.HTTPException)


def open_http(url: str, mode: str = "rb", **options: Any) -> HttpStream:
    """Open an `http:` or `https:` url for reading."""
    if mode != "rb":
        raise StorageError(
            "writing to a web server is not supported", url=url, hint="write a file, or pipe: to a command that uploads"
        )
    return HttpStream(url, **options)


class HttpStream(io.BufferedIOBase):
    """The body of a GET request.

    `retries` counts attempts in a row that bring no byte; progress renews it.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = CONNECT_SECONDS,
        read_timeout: float = STALL_SECONDS,
        retries: int = RETRIES,
        first_pause: float = FIRST_PAUSE,
        proxy: str | None = None,
    ) -> None:
        super().__init__()
        self.url = url
        self.position = 0
        self.length: int | None = None
        self.retried = 0
        self._retries = retries
        self._first_pause = first_pause
        self._read_timeout = read_timeout
        self._report = current_report()
        self._reply: Reply | None = None
        self._first: Reply | None = None
        self._connector = Connector(url, headers, connect_timeout, read_timeout, proxy)
        self._failures = 0
        self._closing = False
        self._open()

    # -- reading ---------------------------------------------------------------------------------

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end of the body."""
        wanted = -1 if size is None or size < 0 else size
        data = self.read1(wanted)
        if not data or len(data) == wanted:
            return data
        parts = [data]
        missing = wanted - len(data)
        while wanted < 0 or missing > 0:
            data = self.read1(missing if wanted >= 0 else -1)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read1(self, size: int = -1, /) -> bytes:
        """What has arrived, up to `size` bytes; waits only while nothing has."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        size = CHUNK_BYTES if size < 0 else size
        if size == 0:
            return b""
        while self._reply is not None:
            data = self._receive(self._reply, size)
            if data:
                self.position += len(data)
                self._failures = 0
                return data
        return b""

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readinto1(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        return self.position

    def close(self) -> None:
        """Close the connection at once, whatever the server does."""
        if not self.closed:
            self._closing = True
            self._drop()
            super().close()

    # -- inside ----------------------------------------------------------------------------------

    def _receive(self, reply: Reply, size: int) -> bytes:
        """Bytes that arrived; none means: the body is over (no reply any more) or was taken up anew."""
        try:
            data = reply.response.read1(size)
        except Exception as exn:
            # http.client raises anything when another thread closes the connection under it
            if not (self._closing or isinstance(exn, _BROKEN)):
                raise
            self._resume(_reason(exn, self._read_timeout))
            return b""
        if data:
            if self.length is not None and self.position + len(data) > self.length:
                raise StorageError(f"got more than the announced {self.length} bytes", url=self.url)
            return data
        if self.length is not None and self.position < self.length:
            self._resume("the connection was closed")
            return b""
        self._drop()
        return b""

    def _open(self) -> None:
        """Ask for the whole body, or for the rest of it, until an answer can be used or the retries are used up."""
        while True:
            try:
                reply = self._connector.get(self.position, self._first)
            except ssl.SSLCertVerificationError as exn:
                raise StorageError(
                    f"the server's certificate is not trusted: {exn.verify_message}",
                    url=self.url,
                    hint="set SSL_CERT_FILE to a file with your authority's certificate",
                ) from None
            except _BROKEN as exn:
                if isinstance(exn, StorageError):
                    raise
                self._pause(_reason(exn, self._read_timeout), 0)
                continue
            if reply.status in RETRIED_STATUS:
                reply.close()
                self._pause(f"the server answers {reply.status} {reply.response.reason}", reply.retry_after)
                continue
            self._accept(reply)
            return

    def _accept(self, reply: Reply) -> None:
        """Check that the answer is what was asked for."""
        try:
            if reply.status not in (200, 206):
                raise _status_error(reply, self.url)
            if self.position:
                self._check_rest(reply)
            else:
                if reply.status != 200:
                    raise StorageError(f"the server answers {reply.status} to a request for the whole", url=self.url)
                self.length = reply.length
                self._first = reply
        except BaseException:
            reply.close()
            raise
        self._reply = reply

    def _check_rest(self, reply: Reply) -> None:
        first = self._first
        assert first is not None
        if reply.status == 200:
            changed = reply.validator != first.validator
            why = "the object changed while it was read" if changed else "the server cannot continue in the middle"
            raise self._early(why)
        start, total = reply.range_start_and_total
        if start != self.position or (None not in (total, self.length) and total != self.length):
            raise self._early(f"the server continues at byte {start} of {total} instead")
        if reply.validator != first.validator:
            raise self._early("the object changed while it was read")

    def _resume(self, reason: str) -> None:
        """Go on where the body stopped, or say that it ends early."""
        if self._closing:  # by another thread, under this one's read
            raise ValueError("I/O operation on closed file")
        self._drop()
        first = self._first
        if self.position and (first is None or not first.resumable):
            raise self._early(reason)
        self._pause(reason, 0)
        self._open()

    def _pause(self, reason: str, retry_after: float) -> None:
        """Wait a little longer each time; an error when the retries are used up."""
        self._failures += 1
        if self._failures > self._retries:
            raise self._early(f"{reason}, {self._failures} times in a row")
        if not self.retried:
            self._report.count("shards_retried")
        self.retried += 1
        longest = min(LONGEST_PAUSE, self._first_pause * 2 ** (self._failures - 1))
        time.sleep(max(min(retry_after, LONGEST_RETRY_AFTER), random.uniform(longest / 2, longest)))

    def _early(self, reason: str) -> StorageError:
        if not self.position and self._first is None:
            return StorageError(f"cannot read: {reason}", url=self.url)
        of = "" if self.length is None else f" of {self.length}"
        return StorageError(f"ends early: got {self.position}{of} bytes, then {reason}", url=self.url)

    def _drop(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.close()


def _status_error(reply: Reply, url: str) -> StorageError:
    """One line with the cure for an answer that is no data."""
    line = f"the server answers {reply.status} {redacted(reply.response.reason)}"
    if reply.status in (404, 410):
        return MissingShardError(line, url=url, hint="check the name and the range of shards")
    if reply.status in (401, 403, 407):
        return refused(line, url)
    return StorageError(line, url=url)


def _reason(exn: BaseException, seconds: float) -> str:
    """A foreign error in a few words, without the parts of a url it may quote."""
    import socket

    if isinstance(exn, TimeoutError):
        return f"no byte came for {seconds:g} s"
    if isinstance(exn, http.client.IncompleteRead):
        return "the body was cut"
    if isinstance(exn, socket.gaierror):
        return f"the host name was not found ({exn.strerror})"
    if isinstance(exn, http.client.HTTPException):
        return f"the answer is not HTTP ({type(exn).__name__})"
    return f"the connection failed ({getattr(exn, 'strerror', None) or type(exn).__name__})"
