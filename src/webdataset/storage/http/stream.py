"""HTTP bodies as streams: complete, resumed at the exact byte when a connection breaks, or an error.

A body is complete when as many bytes came as the server announced. When the connection breaks or stalls before that,
the rest is requested with `Range` and `If-Range`, so that an object which changed in between is noticed; with a server
that does not support this, the break is an error that says so.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from webdataset.base.reports import Report, current_report
from webdataset.errors import NoRangesError, StorageError, UnavailableError
from webdataset.storage.patience import RetriesExhaustedError
from webdataset.storage.streams import PiecewiseStream, count_received

from .connect import ConnectionOptions, Connector, OpenResponse, md5_from, strong_etag, validator_from
from .faults import RETRIED_STATUS, TRANSIENT_ERRORS, describe, status_error, wait_after
from .requests import request

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SCRATCH_BYTES = 256 << 10
NO_HEAD = (401, 403, 405, 501)
"""Statuses of HEAD where GET may still work, as for a url that is signed for GET."""


@dataclass(frozen=True)
class ObjectVersion:
    """Which version of an object the first response was of: the rest must be of the same one."""

    length: int | None
    validator: str | None
    condition: str | None
    """The value of `If-Range`."""
    ranges: bool
    strong: bool
    md5: bytes | None = None
    """Of the whole object, if the server sent it."""

    @classmethod
    def of(cls, response: OpenResponse, identity: Callable[[OpenResponse], str | None] | None) -> ObjectVersion:
        validator = identity(response) if identity is not None else response.validator
        ranges = (response.header("Accept-Ranges") or "").lower()
        strong = validator is not None and (identity is not None or strong_etag(response.header) is not None)
        md5 = md5_from(response.header) if response.status == 200 else None
        return cls(response.length, validator, response.validator, ranges != "none", strong and ranges == "bytes", md5)

    @classmethod
    def from_head(cls, length: int | None, validator: str | None, condition: str | None = None) -> ObjectVersion:
        """A version that is known by its validator, from a response to HEAD."""
        return cls(length, validator, condition, ranges=True, strong=validator is not None)

    @property
    def resumable(self) -> bool:
        """Whether the rest can be requested and recognised."""
        return self.validator is not None and self.ranges


class HttpStream(PiecewiseStream):
    """The body of a GET request.

    `identity(response)` names the version of the object where the server does so in a header of its own. `start` and
    `stop` make it a part of an object, which is requested at the first read; it must be of the given `version`, if any.
    Errors name `shown` instead of the address. `fields` are those of ConnectionOptions, where no `options` are given.
    """

    def __init__(
        self,
        url: str,
        options: ConnectionOptions | None = None,
        *,
        identity: Callable[[OpenResponse], str | None] | None = None,
        start: int = 0,
        stop: int | None = None,
        version: ObjectVersion | None = None,
        shown: str = "",
        **fields: Any,
    ) -> None:
        super().__init__()
        self.address = url
        self.url = shown or url
        self.options = options or ConnectionOptions(**fields)
        self.position = start
        self.version = version
        self.waited = 0.0
        self.proxied = False
        self.report: Report | None = current_report()
        self._start = start
        self._stop = stop
        self._identity = identity
        self._response: OpenResponse | None = None
        self._finished = False
        self._scratch = bytearray()
        self._connector = Connector(url, self.options)
        self._retries = self.options.retry_state(self.url, self._connector.server)
        if version is None and stop is None:
            self._open()

    @property
    def length(self) -> int | None:
        """The number of bytes of the whole object, if the server said so."""
        return None if self.version is None else self.version.length

    @property
    def retried(self) -> int:
        return self._retries.total

    def part(self, start: int, stop: int) -> HttpStream:
        """Some bytes of the same object, over a connection of their own."""
        with self._retries.report.in_force():
            part: dict[str, Any] = {"start": start, "stop": stop, "version": self.version, "shown": self.url}
            return HttpStream(self.address, self.options, identity=self._identity, **part)

    def stop_at(self, stop: int) -> None:
        """Read no further than to this byte."""
        self._stop = stop

    def has_low_rtt(self) -> bool:
        """Whether the round-trip time is known to be short, however long the server took to respond."""
        return False

    def read1(self, size: int = -1, /) -> bytes:
        """What has arrived, up to `size` bytes; waits only while nothing has."""
        if not self._scratch:
            self._scratch = bytearray(SCRATCH_BYTES)
        view = memoryview(self._scratch)
        count = self.readinto1(view if size < 0 else view[:size])
        return bytes(view[:count])

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        """What has arrived, straight into the buffer."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        view = memoryview(buffer).cast("B")
        while len(view) and not self._finished:
            if self._response is None:
                self._open()
                continue
            count = self._receive(self._response, view)
            if count:
                self.position += count
                self._retries.renew()
                return count
        return 0

    def abort(self) -> None:
        """End what another thread is waiting for; the stream itself is left to be closed by its reader."""
        self._retries.stopped.set()
        self._connector.abort()

    def close(self) -> None:
        """Close the connection at once, whatever the server does."""
        if not self.closed:
            self._retries.stopped.set()
            self._retries.close()
            if self._response is not None and not self._finished:
                self.abort()
            self._drop()
            if self.report is not None:
                count_received(self.report, self.position - self._start, self.retried)
            super().close()

    @property
    def _end(self) -> int | None:
        return self.length if self._stop is None else self._stop

    def _receive(self, response: OpenResponse, view: memoryview) -> int:
        """The number of bytes that arrived; 0 when the body has ended or the connection was lost."""
        end = self._end
        left = len(view) if end is None else end - self.position
        count = 0
        try:
            if left > 0:
                count = response.readinto1(view[:left])
        except Exception as exn:
            # http.client raises anything when another thread closes the connection under it
            if not (self._retries.stopped.is_set() or isinstance(exn, TRANSIENT_ERRORS)):
                raise
            self._pause_to_resume(describe(exn, self.options.read_timeout))
            return 0
        if count:
            return count
        if left > 0 and end is not None:
            self._pause_to_resume("the connection was closed")
        else:
            self._finished = True
            self._retries.renew()
            self._drop()
        return 0

    def _open(self) -> None:
        """Request the whole body, or the rest of it, until a response can be used or the retries are used up."""
        with self._unavailable_after_retries():
            while True:
                self._retries.check_open()
                try:
                    response = self._connector.send("GET", self._range_headers())
                except TRANSIENT_ERRORS as exn:
                    self._retries.check_open()
                    wait_after(self._retries, exn, self.options.read_timeout)
                    continue
                if response.status not in RETRIED_STATUS:
                    break
                response.drain()
                reason = f"the server answers {response.status} {response.raw.reason}"
                self._retries.pause(reason, response.retry_after, status=response.status)
        self._retries.answered()
        self._accept(response)

    @contextlib.contextmanager
    def _unavailable_after_retries(self) -> Iterator[None]:
        try:
            yield
        except RetriesExhaustedError as exn:
            raise self._error(str(exn), UnavailableError, hint=exn.hint, status=exn.status) from None

    def _range_headers(self) -> dict[str, str]:
        if not self.position and self._stop is None:
            return {}
        last = "" if self._stop is None else self._stop - 1
        condition = None if self.version is None else self.version.condition
        return {"Range": f"bytes={self.position}-{last}"} | ({} if condition is None else {"If-Range": condition})

    def _accept(self, response: OpenResponse) -> None:
        """Check that the response is to what was requested."""
        try:
            if self.position or self._stop is not None:
                self._check_range(response)
            elif response.status != 200:
                if response.status == 206:
                    raise StorageError("the server answers 206 to a request for the whole", url=self.url)
                raise status_error(response, self.url)
            else:
                self.version = ObjectVersion.of(response, self._identity)
                self.waited = response.waited
                self.proxied = response.proxied
        except BaseException:
            response.close()
            raise
        self._response = response
        if self._retries.stopped.is_set():
            self._drop()
            self._retries.check_open()

    def _check_range(self, response: OpenResponse) -> None:
        """Check that the rest is of the same version, and begins where the last response stopped."""
        if response.status == 416:
            raise self._error("the server says that the object ends here")
        if response.status not in (200, 206, 412):
            error = status_error(response, self.url)
            raise self._error(error.message) if self.position > self._start else error
        version, found = self.version, ObjectVersion.of(response, self._identity)
        if response.status == 412 or (version is not None and found.validator != version.validator):
            raise self._error("the object changed while it was read")
        if response.status == 200 and version is None:
            raise NoRangesError("the server does not support range requests for this object", url=self.url)
        if response.status == 200:
            kind = NoRangesError if self.position == self._start else StorageError
            raise self._error("the server cannot continue in the middle", kind)
        start, total = response.range_start_and_total
        if start != self.position or (None not in (total, self.length) and total != self.length):
            raise self._error(f"the server continues at byte {start} of {total} instead")
        if version is None:
            self.version = replace(found, length=total)

    def _pause_to_resume(self, reason: str) -> None:
        """Pause before the rest is requested, or raise that the body ends early."""
        self._retries.check_open()
        self._drop()
        if self.position > self._start and (self.version is None or not self.version.resumable):
            raise self._error(reason, retryable=True)
        with self._unavailable_after_retries():
            self._retries.pause(reason, quiet=True)  # if the server answers, it is no outage

    def _error(self, reason: str, kind: type[StorageError] = StorageError, **fields: Any) -> StorageError:
        of = "" if self.length is None else f" of {self.length}"
        line = "cannot read: " if self.version is None else f"ends early: got {self.position}{of} bytes, then "
        return kind(line + reason, url=self.url, **fields)

    def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.release()


class RangedObject(ABC):
    """An object of which ranges of bytes can be read."""

    @abstractmethod
    def part(self, start: int, stop: int, version: ObjectVersion | None) -> HttpStream:
        """Some bytes, requested at the first read; of this version, if one is given."""

    @abstractmethod
    def head(self) -> ObjectVersion:
        """The version of the object, from a HEAD request."""

    def raise_reason(self, exn: StorageError) -> bool:  # noqa: ARG002 - for stores that keep it back
        """Raise the reason of a refusal where it can be found out; true when another try may work now."""
        return False


class HttpObject(RangedObject):
    """A file of a web server."""

    def __init__(self, url: str, options: ConnectionOptions) -> None:
        self.url = url
        self.options = options

    def part(self, start: int, stop: int, version: ObjectVersion | None) -> HttpStream:
        return HttpStream(self.url, self.options, start=start, stop=stop, version=version)

    def head(self) -> ObjectVersion:
        response = request("HEAD", self.url, self.options, ok=(200, *NO_HEAD))
        if response.status == 200:
            length, validator = response.headers.get("Content-Length"), validator_from(response.headers.get)
            return ObjectVersion.from_head(int(length) if length and length.isdecimal() else None, validator, validator)
        return version_of_part(self.part(0, 1, None))


def version_of_part(part: HttpStream) -> ObjectVersion:
    """The version of the whole object, from a request for some of its bytes."""
    with part:
        part.read()
    assert part.version is not None
    return part.version
