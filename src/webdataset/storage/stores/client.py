"""One object, or one prefix, of a store that speaks HTTP: its requests, and what its errors mean."""

from __future__ import annotations

import base64
import hashlib
import socket
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.connect import ConnectionOptions, validator_from
from webdataset.storage.http.faults import RETRIED_STATUS, printable
from webdataset.storage.http.reader import reading_ahead
from webdataset.storage.http.requests import WholeResponse, request
from webdataset.storage.http.stream import HttpStream, ObjectVersion, RangedObject
from webdataset.storage.patience import Patience
from webdataset.storage.streams import QuietStream

from .uploads import Upload

# Statuses that are final; the others are worth another try.
FINAL = tuple(status for status in range(200, 500) if status not in (408, 425, 429))
PARTIAL_CONTENT, NOT_FOUND, BAD_RANGE = 206, 404, 416
MAX_MESSAGE = 200
LOW_RTT_MICROSECONDS = 3000
TIDYING_SECONDS = 2.0
_REFUSED = range(300, 500)

Query = Iterable[tuple[str, str]]
Entry = TypeVar("Entry")


class StoredObject(RangedObject):
    """An object of a store, or all objects whose urls begin with its url."""

    has_ranges = True

    @abstractmethod
    def stream(self) -> QuietStream:
        """The bytes of the object, read ahead in the background."""

    @abstractmethod
    def size(self) -> int:
        """The size of the object in bytes."""

    @abstractmethod
    def list(self) -> Iterator[tuple[str, int]]:
        """Url and size of every object whose url begins with this one."""

    def versions(self) -> Iterator[tuple[str, int, str]] | None:
        """The same with the version of each object, as a read names it; None if lists of the store have none."""
        return None

    def unfinished(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Url of every upload under this one that is not complete, and what discards it, in stores that tell."""
        return iter(())

    @abstractmethod
    def upload(self) -> Upload:
        """A stream to write the object through; the object appears when it is closed."""

    @abstractmethod
    def delete(self) -> None:
        """Remove the object."""


class ErrorHint(NamedTuple):
    """What an error code of a store means to the user."""

    line: str
    hint: str
    kind: type[StorageError] = StorageError


class ObjectStream(HttpStream):
    """The bytes of an object; its errors name it as the user does, not by its address."""

    def has_low_rtt(self) -> bool:
        """Whether the server is close by: a store may take long to find an object, wherever it is."""
        try:
            info = self._response.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104) if self._response else b""
            return 0 < int.from_bytes(info[68:72], sys.byteorder) < LOW_RTT_MICROSECONDS
        except (OSError, AttributeError):  # only Linux has it
            return False


class Client(StoredObject):
    """Requests to one store for one object; every stream has its own, so that processes share nothing."""

    error_hints: ClassVar[Mapping[str, ErrorHint]] = {}

    def __init__(self, url: str, *, connections: int | None = None, **options: Any) -> None:
        self.url = url
        self.connections = connections
        self.options = replace(ConnectionOptions(**options), prepare=self.prepare)

    # -- what a store is made of -----------------------------------------------------------------

    @abstractmethod
    def address(self, query: Query = ()) -> str:
        """The web address of the object."""

    @abstractmethod
    def prepare(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:
        """The headers with a signature or token."""

    @abstractmethod
    def error_of(self, response: WholeResponse) -> tuple[str, str]:
        """The store's own error code and message in a response."""

    def moved(self, response: WholeResponse) -> bool:  # noqa: ARG002 - for stores that have several places
        """Whether the response says that the object is elsewhere, and the next request will go there."""
        return False

    def transient_error(self, response: WholeResponse) -> str:  # noqa: ARG002 - for stores that send them with a good status
        """The error in a response, if another try may succeed."""
        return ""

    def size_of(self, response: WholeResponse) -> int:
        text = response.headers.get("Content-Length")
        return int(text) if text and text.isdecimal() else 0

    # -- requests --------------------------------------------------------------------------------

    def stream(self) -> QuietStream:
        try:
            stream = self._stream()
        except StorageError as exn:
            if not self.raise_reason(exn):
                raise
            stream = self._stream()
        return reading_ahead(stream, self.connections)

    def part(self, start: int, stop: int, version: ObjectVersion | None) -> HttpStream:
        return self._stream(start=start, stop=stop, version=version)

    def size(self) -> int:
        return self.size_of(self._head())

    def head(self) -> ObjectVersion:
        response = self._head()
        validator = validator_from(response.headers.get)
        return ObjectVersion.from_head(self.size_of(response), validator, validator)

    def delete(self) -> None:
        self.ask("DELETE", ok=(200, 202, 204, NOT_FOUND))

    def ask(
        self,
        method: str,
        address: Callable[[], str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        ok: tuple[int, ...] = (200,),
        tidying: bool = False,
    ) -> WholeResponse:
        """One request and its whole response; any other status than these is an error.

        A request that only tidies up does not wait long for a store that is down.
        """
        for attempt in range(2):
            response = self._request(method, address or self.address, headers, body, tidying=tidying)
            if response.status in ok:
                return response
            if attempt or not self.moved(response):
                break
        raise self.failure(response)

    def failure(self, response: WholeResponse) -> StorageError:
        """The error that a response stands for, in one line with a hint."""
        code, message = self.error_of(response)
        found = self.error_hints.get(code) or self.error_hints.get(str(response.status))
        line, hint, kind = found or ErrorHint("the store refuses", "")
        kind = MissingShardError if response.status == NOT_FOUND else kind
        detail = " ".join(f"{response.status} {code}".split()) + (f": {_short(message)}" if message else "")
        retryable = response.status in RETRIED_STATUS
        return kind(f"{line} ({detail})", url=self.url, hint=hint, status=response.status, retryable=retryable)

    def raise_reason(self, exn: StorageError) -> bool:
        """Request the reason of a refusal, which a stream does not keep, and raise it; true when it may work now."""
        if exn.retryable or exn.status not in _REFUSED:
            return False
        response = self._request("GET", self.address, {"Range": "bytes=0-0"}, b"")
        if response.status in (200, PARTIAL_CONTENT, BAD_RANGE):
            return False
        if self.moved(response):
            return True
        raise self.failure(response) from None

    def _stream(self, **part: Any) -> ObjectStream:
        try:
            return ObjectStream(self.address(), self.options, shown=self.url, **part)
        except StorageError as exn:
            exn.url = self.url
            raise

    def _head(self) -> WholeResponse:
        try:
            return self.ask("HEAD")
        except StorageError:
            self.ask("GET", headers={"Range": "bytes=0-0"}, ok=(200, PARTIAL_CONTENT, BAD_RANGE))  # has the reason
            raise

    def _request(
        self,
        method: str,
        address: Callable[[], str],
        headers: Mapping[str, str] | None,
        body: bytes,
        *,
        tidying: bool = False,
    ) -> WholeResponse:
        every = {**self.options.headers, **(headers or {})}
        options = replace(self.options, headers=every, prepare=partial(self.prepare, body=body))
        if tidying:
            options = replace(options, patience=min(TIDYING_SECONDS, Patience(options.patience).limit))
        try:
            return request(
                method, address(), options, body=body, ok=FINAL, transient=self.transient_error, shown=self.url
            )
        except StorageError as exn:
            exn.url = self.url  # the address may hold what is nobody else's business
            raise


def bucket_and_key(url: str) -> tuple[str, str]:
    """The two parts of an object's url.

    >>> bucket_and_key("s3://bucket/a/b.tar"), bucket_and_key("s3://bucket")
    (('bucket', 'a/b.tar'), ('bucket', ''))
    """
    bucket, _, key = url.split(":", 1)[1].removeprefix("//").partition("/")
    if not bucket:
        raise StorageError("this url names no bucket", url=url, hint="write scheme://bucket/name")
    return bucket, key


def object_key(key: str, url: str) -> str:
    """The name of an object; a url without one is that of the bucket, which is not to be read, made or deleted."""
    if not key:
        raise StorageError("this url names a bucket, not an object", url=url, hint="write scheme://bucket/name")
    return key


def query_text(query: Query) -> str:
    """The part of an address after the question mark, in the order that signatures want.

    >>> query_text([("prefix", "a/b"), ("list-type", "2")])
    '?list-type=2&prefix=a%2Fb'
    """
    pairs = sorted((quoted(name, ""), quoted(value, "")) for name, value in query)
    return "?" + "&".join(f"{name}={value}" for name, value in pairs) if pairs else ""


def md5_base64(data: bytes) -> str:
    """The value of `Content-MD5`."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def pages(first: str, fetch: Callable[[str], tuple[Iterable[Entry], str]], url: str) -> Iterator[Entry]:
    """The entries of all pages of a list; `fetch(marker)` returns one page and the marker of the next."""
    marker, seen = first, {first}
    while True:
        entries, following = fetch(marker)
        yield from entries
        if not following:
            return
        if following in seen:  # some come back to an earlier page, not to the same one
            raise StorageError("the list of the store does not advance", url=url)
        seen.add(following)
        marker = following


def _short(message: str) -> str:
    line = " ".join(printable(message).split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}..."
