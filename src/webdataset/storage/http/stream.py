"""Web servers as streams: whole bodies, resumed at the exact byte when a connection breaks, or an error.

A body is whole when as many bytes came as the server announced. When the connection breaks or stalls before that,
the rest is asked for with `Range` and `If-Range`, so that an object which changed in between is noticed; a server
that cannot do that gives an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from webdataset.base.reports import Report, current_report
from webdataset.errors import StorageError, UnavailableError
from webdataset.storage.patience import FIRST_PAUSE, GaveUpError, Patience, Waiting
from webdataset.storage.streams import WHOLE_ONLY, QuietStream, count_received, read_whole

from .connect import CONNECT_SECONDS, STALL_SECONDS, Connector, Prepare, Reply, md5_in, validator_in
from .faults import BROKEN, RETRIED_STATUS, described, status_error, wait_after
from .requests import request

SCRATCH_BYTES = 256 << 10
NO_HEAD = (401, 403, 405, 501)
"""Answers to HEAD where GET may still work, as for a url that is signed for GET."""


@dataclass(frozen=True)
class Version:
    """What the first answer said of the object: the rest of it must be of the same one."""

    length: int | None
    validator: str | None
    condition: str | None
    """For `If-Range`: what the server itself compares."""
    ranges: bool
    strong: bool
    md5: bytes | None = None
    """Of the whole object, if the server gave it."""

    @classmethod
    def of(cls, reply: Reply, identity: Callable[[Reply], str | None] | None) -> Version:
        validator = identity(reply) if identity is not None else reply.validator
        ranges = (reply.header("Accept-Ranges") or "").lower()
        strong = validator is not None and (identity is not None or reply.etag is not None)
        md5 = md5_in(reply.header) if reply.status == 200 else None
        return cls(reply.length, validator, reply.validator, ranges != "none", strong and ranges == "bytes", md5)

    @classmethod
    def named(cls, length: int | None, validator: str | None, condition: str | None = None) -> Version:
        """A version that is known by its name, from the answer to HEAD."""
        return cls(length, validator, condition, ranges=True, strong=validator is not None)

    @property
    def resumable(self) -> bool:
        """Whether the rest can be asked for and recognised."""
        return self.validator is not None and self.ranges


class HttpStream(QuietStream):
    """The body of a GET request.

    `prepare(method, url, headers)` gives the headers to send, anew for every request to the url's own host.
    `patience` is for how many seconds, `retries` how many times in a row to try again without a byte; progress renews
    both. `identity(reply)` names the version of the object where the server does so in a header of its own. `start` and
    `stop` make it a part of an object, which is asked for at the first read; it must be of the `version` that is given,
    or any one if none is. What users are told names `shown` instead of the address.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        prepare: Prepare | None = None,
        connect_timeout: float = CONNECT_SECONDS,
        read_timeout: float = STALL_SECONDS,
        patience: float | None = None,
        retries: int | None = None,
        first_pause: float = FIRST_PAUSE,
        proxy: str | None = None,
        cafile: str | None = None,
        foreign: bool = False,
        identity: Callable[[Reply], str | None] | None = None,
        start: int = 0,
        stop: int | None = None,
        version: Version | None = None,
        shown: str = "",
    ) -> None:
        super().__init__()
        self.address = url
        self.url = shown or url
        self.position = start
        self.version = version
        self.waited = 0.0
        self.proxied = False
        self.report: Report | None = current_report()
        self._start = start
        self._stop = stop
        self._identity = identity
        self._reply: Reply | None = None
        self._finished = False
        self._scratch = bytearray()
        self._connector = Connector(
            url,
            headers=headers,
            prepare=prepare,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            proxy=proxy,
            cafile=cafile,
            foreign=foreign,
        )
        self._waiting = Waiting(Patience(patience, retries, first_pause), self.url, self._connector.server)
        self._options: dict[str, Any] = {
            "headers": headers,
            "prepare": prepare,
            "connect_timeout": connect_timeout,
            "read_timeout": read_timeout,
            "patience": patience,
            "retries": retries,
            "first_pause": first_pause,
            "proxy": proxy,
            "cafile": cafile,
            "foreign": foreign,
            "identity": identity,
            "shown": shown,
        }
        if version is None and stop is None:
            self._open()

    @property
    def length(self) -> int | None:
        """The number of bytes of the whole object, if the server said so."""
        return None if self.version is None else self.version.length

    @property
    def retried(self) -> int:
        return self._waiting.total

    def part(self, start: int, stop: int) -> HttpStream:
        """Some bytes of the same object, over a connection of their own."""
        with self._waiting.report.in_force():
            return HttpStream(self.address, start=start, stop=stop, version=self.version, **self._options)

    def stop_at(self, stop: int) -> None:
        """Read no further than to this byte."""
        self._stop = stop

    def is_near(self) -> bool:
        """Whether the way to the server is known to be short, however long it took to answer."""
        return False

    # -- reading ---------------------------------------------------------------------------------

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end of the body."""
        return read_whole(self.read1, -1 if size is None or size < 0 else size)

    def read1(self, size: int = -1, /) -> bytes:
        """What has arrived, up to `size` bytes; waits only while nothing has."""
        if not self._scratch:
            self._scratch = bytearray(SCRATCH_BYTES)
        view = memoryview(self._scratch)
        count = self.readinto1(view if size < 0 else view[:size])
        return bytes(view[:count])

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        count = got = 0
        while count < len(view) and (got := self.readinto1(view[count:])):
            count += got
        return count

    def readinto1(self, buffer: Any, /) -> int:
        """What has arrived, straight into the buffer."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        view = memoryview(buffer).cast("B")
        while len(view) and not self._finished:
            if self._reply is None:
                self._open()
                continue
            count = self._receive(self._reply, view)
            if count:
                self.position += count
                self._waiting.renew()
                return count
        return 0

    def tell(self) -> int:
        return self.position

    # -- the end ---------------------------------------------------------------------------------

    def abort(self) -> None:
        """End what another thread is waiting for; the stream itself is left to be closed by its reader."""
        self._waiting.stopped.set()
        self._connector.abort()

    def close(self) -> None:
        """Close the connection at once, whatever the server does."""
        if not self.closed:
            self._waiting.stopped.set()
            self._waiting.close()
            if self._finished or self._reply is None:
                self._drop()
            else:
                self.abort()
                self._drop()
            if self.report is not None:
                count_received(self.report, self.position - self._start, self.retried)
            super().close()

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _end(self) -> int | None:
        return self.length if self._stop is None else self._stop

    def _receive(self, reply: Reply, view: memoryview) -> int:
        """The number of bytes that arrived; none means: the body is over or was lost on the way."""
        end = self._end
        left = len(view) if end is None else end - self.position
        count = 0
        try:
            if left > 0:
                count = reply.readinto1(view[:left])
        except Exception as exn:
            # http.client raises anything when another thread closes the connection under it
            if not (self._waiting.stopped.is_set() or isinstance(exn, BROKEN)):
                raise
            self._lost(described(exn, self._connector.read_timeout))
            return 0
        if count:
            return count
        if left > 0 and end is not None:
            self._lost("the connection was closed")
        else:
            self._finished = True
            self._waiting.renew()
            self._drop()
        return 0

    def _open(self) -> None:
        """Ask for the whole body, or for the rest of it, until an answer can be used or the retries are used up."""
        reply: Reply | None = None
        while reply is None:
            self._check_open()
            try:
                reply = self._connector.send("GET", self._range_headers())
                if reply.status in RETRIED_STATUS:
                    retry_after = reply.retry_after
                    reply.drain()
                    reason = f"the server answers {reply.status} {reply.response.reason}"
                    reply = None
                    self._waiting.pause(reason, retry_after)
            except BROKEN as exn:
                self._check_open()
                self._again(exn)
            except GaveUpError as exn:
                raise self._early(str(exn), exn.hint, UnavailableError) from None
        self._waiting.answered()
        self._accept(reply)

    def _again(self, error: BaseException) -> None:
        try:
            wait_after(self._waiting, error, self._connector.read_timeout)
        except GaveUpError as exn:
            raise self._early(str(exn), exn.hint, UnavailableError) from None

    def _range_headers(self) -> dict[str, str]:
        if not self.position and self._stop is None:
            return {}
        last = "" if self._stop is None else self._stop - 1
        condition = None if self.version is None else self.version.condition
        return {"Range": f"bytes={self.position}-{last}"} | ({} if condition is None else {"If-Range": condition})

    def _accept(self, reply: Reply) -> None:
        """Check that the answer is what was asked for."""
        try:
            if self.position or self._stop is not None:
                self._check_rest(reply)
            elif reply.status != 200:
                if reply.status == 206:
                    raise StorageError("the server answers 206 to a request for the whole", url=self.url)
                raise status_error(reply, self.url)
            else:
                self.version = Version.of(reply, self._identity)
                self.waited = reply.waited
                self.proxied = reply.proxied
        except BaseException:
            reply.close()
            raise
        self._reply = reply
        if self._waiting.stopped.is_set():
            self._drop()
            self._check_open()

    def _check_rest(self, reply: Reply) -> None:
        """The rest is of the same object, and begins where the last answer stopped."""
        if reply.status == 416:
            raise self._early("the server says that the object ends here")
        if reply.status not in (200, 206, 412):
            error = status_error(reply, self.url)
            raise self._early(error.message) if self.position > self._start else error
        version, found = self.version, Version.of(reply, self._identity)
        if reply.status == 412 or (version is not None and found.validator != version.validator):
            raise self._early("the object changed while it was read")
        if reply.status == 200 and version is None:
            raise StorageError("the server gives no parts of this object", url=self.url, hint=WHOLE_ONLY)
        if reply.status == 200:
            nothing_yet = self.position == self._start
            raise self._early("the server cannot continue in the middle", WHOLE_ONLY if nothing_yet else "")
        start, total = reply.range_start_and_total
        if start != self.position or (None not in (total, self.length) and total != self.length):
            raise self._early(f"the server continues at byte {start} of {total} instead")
        if version is None:
            self.version = replace(found, length=total)

    def _lost(self, reason: str) -> None:
        """Go on where the body stopped, or say that it ends early."""
        self._check_open()
        self._drop()
        if self.position > self._start and (self.version is None or not self.version.resumable):
            raise self._early(reason)
        try:
            self._waiting.pause(reason, quiet=True)  # if the server answers, it is no outage
        except GaveUpError as exn:
            raise self._early(str(exn), exn.hint, UnavailableError) from None

    def _check_open(self) -> None:
        """Another thread may have closed the stream under this one's read."""
        if self._waiting.stopped.is_set():
            raise ValueError("I/O operation on closed file")

    def _early(self, reason: str, hint: str = "", kind: type[StorageError] = StorageError) -> StorageError:
        if self.version is None:
            return kind(f"cannot read: {reason}", url=self.url, hint=hint)
        of = "" if self.length is None else f" of {self.length}"
        return kind(f"ends early: got {self.position}{of} bytes, then {reason}", url=self.url, hint=hint)

    def _drop(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.release()


class HttpObject:
    """A file of a web server, to be read in parts; the options are those of HttpStream."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self._options = options

    def part(self, start: int, stop: int, version: Version | None) -> HttpStream:
        """Some bytes, asked for at the first read."""
        return HttpStream(self.url, start=start, stop=stop, version=version, **self._options)

    def stated(self) -> Version:
        """What the server says of the file without giving it."""
        answer = request("HEAD", self.url, ok=(200, *NO_HEAD), **self._options)
        if answer.status == 200:
            length, validator = answer.headers.get("Content-Length"), validator_in(answer.headers.get)
            return Version.named(int(length) if length and length.isdecimal() else None, validator, validator)
        return version_read(self.part(0, 1, None))

    def explained(self, exn: StorageError) -> bool:  # noqa: ARG002 - the first answer says all there is
        return False


def version_read(part: HttpStream) -> Version:
    """What the answer to a request for some bytes says of the whole object."""
    with part:
        part.read()
    assert part.version is not None
    return part.version
