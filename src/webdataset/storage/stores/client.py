"""One object, or one prefix, of a store that speaks HTTP: how it is asked, and what its errors mean."""

from __future__ import annotations

import re
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.connect import validator_in
from webdataset.storage.http.reader import reading_ahead
from webdataset.storage.http.requests import Answer, request
from webdataset.storage.http.stream import HttpStream, Version
from webdataset.storage.patience import Patience

from .lookup import Store
from .uploads import Upload

# Answers that are final; the others are worth another try.
FINAL = tuple(status for status in range(200, 500) if status not in (408, 425, 429))
CONNECTION = ("connect_timeout", "read_timeout", "patience", "retries", "first_pause", "proxy", "cafile")
PARTIAL_CONTENT, NOT_FOUND, BAD_RANGE = 206, 404, 416
MAX_MESSAGE = 200
NEAR_MICROSECONDS = 3000
TIDYING_SECONDS = 2.0
_ANSWERED = re.compile(r"the server answers [34]\d\d")

Query = Iterable[tuple[str, str]]


class Cure(NamedTuple):
    """What an error code of a store means to the user."""

    line: str
    hint: str
    kind: type[StorageError] = StorageError


class ObjectStream(HttpStream):
    """The bytes of an object; its errors name it as the user does, not by its address."""

    def is_near(self) -> bool:
        """Whether the server is next door: a store may take long to find an object, wherever it is."""
        try:
            info = self._reply.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104) if self._reply else b""
            return 0 < int.from_bytes(info[68:72], sys.byteorder) < NEAR_MICROSECONDS
        except (OSError, AttributeError):  # only Linux tells
            return False


class Client(ABC):
    """Asks one store for one object; made anew for every stream, so nothing is shared between processes."""

    cures: ClassVar[Mapping[str, Cure]] = {}

    def __init__(self, url: str, *, connections: int | None = None, **connection: Any) -> None:
        self.url = url
        self.connections = connections
        self.connection = connection
        self.headers: dict[str, str] = dict(connection.get("headers") or {})
        """What the user wants every request to say, too."""

    # -- what a store is made of -----------------------------------------------------------------

    @abstractmethod
    def address(self, query: Query = ()) -> str:
        """The web address of the object."""

    @abstractmethod
    def prepare(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:
        """The headers with what proves who asks."""

    @abstractmethod
    def list(self) -> Iterator[tuple[str, int]]:
        """Url and size of every object whose url begins with this one."""

    @abstractmethod
    def upload(self) -> Upload:
        """A stream to write the object through."""

    @abstractmethod
    def error_of(self, answer: Answer) -> tuple[str, str]:
        """The store's own code and message in an answer."""

    def moved(self, answer: Answer) -> bool:  # noqa: ARG002 - for stores that have several places
        """Whether the answer says that the object is elsewhere, and the next request will go there."""
        return False

    def passing(self, answer: Answer) -> str:  # noqa: ARG002 - for stores that tell of trouble with a good status
        """The trouble that an answer tells of, if it will pass."""
        return ""

    def size_of(self, answer: Answer) -> int:
        return _count(answer.headers.get("Content-Length"))

    # -- asking ----------------------------------------------------------------------------------

    def stream(self) -> Any:
        """The bytes of the object, read ahead in the background."""
        try:
            stream = self._stream()
        except StorageError as exn:
            if not self.explained(exn):
                raise
            stream = self._stream()
        return reading_ahead(stream, self.connections)

    def part(self, start: int, stop: int, version: Version | None) -> HttpStream:
        """Some bytes of the object, asked for at the first read."""
        return self._stream(start=start, stop=stop, version=version)

    def size(self) -> int:
        """The size of the object in bytes."""
        return self.size_of(self._head())

    def stated(self) -> Version:
        """What the store says of the object without giving it."""
        answer = self._head()
        validator = validator_in(answer.headers.get)
        return Version.named(self.size_of(answer), validator, validator)

    def delete(self) -> None:
        """Remove the object."""
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
    ) -> Answer:
        """One request and its whole answer; any other status than these is an error.

        What only tidies up is not worth waiting for a store that is down.
        """
        for attempt in range(2):
            answer = self._request(method, address or self.address, headers, body, tidying=tidying)
            if answer.status in ok:
                return answer
            if attempt or not self.moved(answer):
                break
        raise self.failure(answer)

    def failure(self, answer: Answer) -> StorageError:
        """One line with the cure for an answer that is an error."""
        code, message = self.error_of(answer)
        cure = self.cures.get(code) or self.cures.get(str(answer.status)) or Cure("the store refuses", "")
        kind = MissingShardError if answer.status == NOT_FOUND else cure.kind
        said = " ".join(f"{answer.status} {code}".split()) + (f": {_short(message)}" if message else "")
        return kind(f"{cure.line} ({said})", url=self.url, hint=cure.hint)

    def explained(self, exn: StorageError) -> bool:
        """Ask once more for the reason of a refusal, which a stream does not keep; true when it may work now."""
        if not _ANSWERED.match(exn.message):
            return False
        answer = self._request("GET", self.address, {"Range": "bytes=0-0"}, b"")
        if answer.status in (200, PARTIAL_CONTENT, BAD_RANGE):
            return False
        if self.moved(answer):
            return True
        raise self.failure(answer) from None

    # -- inside ----------------------------------------------------------------------------------

    def _stream(self, **part: Any) -> ObjectStream:
        try:
            return ObjectStream(self.address(), shown=self.url, prepare=self.prepare, **part, **self.connection)
        except StorageError as exn:
            exn.url = self.url
            raise

    def _head(self) -> Answer:
        try:
            return self.ask("HEAD")
        except StorageError:
            self.ask("GET", headers={"Range": "bytes=0-0"}, ok=(200, PARTIAL_CONTENT, BAD_RANGE))  # tells why
            raise

    def _request(
        self,
        method: str,
        address: Callable[[], str],
        headers: Mapping[str, str] | None,
        body: bytes,
        *,
        tidying: bool = False,
    ) -> Answer:
        options = {name: value for name, value in self.connection.items() if name in CONNECTION}
        if tidying:
            options["patience"] = min(TIDYING_SECONDS, Patience(options.get("patience")).limit)
        options |= {"headers": {**self.headers, **(headers or {})}, "prepare": partial(self.prepare, body=body)}
        options |= {"ok": FINAL, "passing": self.passing, "shown": self.url}
        try:
            return request(method, address(), body=body, **options)
        except StorageError as exn:
            exn.url = self.url  # the address may hold what is nobody else's business
            raise


class ClientStore(Store):
    """A store whose every operation is one client's."""

    def __init__(self, client: Callable[..., Client]) -> None:
        self.client = client

    def open(self, url: str, **options: Any) -> Any:
        return self.client(url, **options).stream()

    def list(self, prefix: str, **options: Any) -> Iterator[tuple[str, int]]:
        return self.client(prefix, **options).list()

    def size(self, url: str, **options: Any) -> int:
        return self.client(url, **options).size()

    def object(self, url: str, **options: Any) -> Client:
        return self.client(url, **options)

    def put(self, url: str, **options: Any) -> Upload:
        return self.client(url, **options).upload()

    def delete(self, url: str, **options: Any) -> None:
        self.client(url, **options).delete()


def bucket_and_key(url: str) -> tuple[str, str]:
    """The two parts of an object's url.

    >>> bucket_and_key("s3://bucket/a/b.tar"), bucket_and_key("s3://bucket")
    (('bucket', 'a/b.tar'), ('bucket', ''))
    """
    bucket, _, key = url.split(":", 1)[1].removeprefix("//").partition("/")
    if not bucket:
        raise StorageError("this url names no bucket", url=url, hint="write scheme://bucket/name")
    return bucket, key


def query_text(query: Query) -> str:
    """The part of an address after the question mark, in the order that signatures want.

    >>> query_text([("prefix", "a/b"), ("list-type", "2")])
    '?list-type=2&prefix=a%2Fb'
    """
    pairs = sorted((quoted(name, ""), quoted(value, "")) for name, value in query)
    return "?" + "&".join(f"{name}={value}" for name, value in pairs) if pairs else ""


def pages(
    first: Any, turn: Callable[[Any], tuple[Iterable[tuple[str, int]], Any]], url: str
) -> Iterator[tuple[str, int]]:
    """The entries of all pages of a list; `turn(marker)` gives one page and the marker of the next."""
    marker, seen = first, {first}
    while True:
        entries, following = turn(marker)
        yield from entries
        if not following:
            return
        if following in seen:  # some come back to an earlier page, not to the same one
            raise StorageError("the list of the store does not advance", url=url)
        seen.add(following)
        marker = following


def _count(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _short(message: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}..."
