"""Whole small requests: a question to a server and its answer, with the retries, redirects and checks of a stream."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from webdataset.errors import StorageError, UnavailableError
from webdataset.storage.patience import FIRST_PAUSE, GaveUpError, Patience, Waiting

from .connect import CONNECT_SECONDS, STALL_SECONDS, Connector, Prepare, Reply
from .faults import BROKEN, RETRIED_STATUS, status_error, wait_after

MOST_BYTES = 256 << 20
REFUSED_UNREAD = frozenset({429, 503})
"""Answers that say that nothing was done."""


@dataclass(frozen=True)
class Answer:
    """What a server said; `headers.get(name)` takes a name in any case."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    url: str


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    prepare: Prepare | None = None,
    connect_timeout: float = CONNECT_SECONDS,
    read_timeout: float = STALL_SECONDS,
    patience: float | None = None,
    retries: int | None = None,
    first_pause: float = FIRST_PAUSE,
    proxy: str | None = None,
    cafile: str | None = None,
    foreign: bool = False,
    ok: Collection[int] = (200, 204, 206),
    idempotent: bool = True,
    follow: bool = True,
    most_bytes: int = MOST_BYTES,
    passing: Callable[[Answer], str] | None = None,
    shown: str = "",
) -> Answer:
    """Send one request and return the whole answer, if its status is one of `ok`; else an error with the cure.

    What is not idempotent is repeated only where the server cannot have acted on it. A redirect keeps method and body
    (307, 308) or is followed for GET and HEAD only; with `follow=False` it is an answer like any other.
    `passing(answer)` names the trouble where a good status tells of one that will pass. What users are told names
    `shown` instead of the address.
    """
    connector = Connector(
        url,
        headers=headers,
        prepare=prepare,
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        proxy=proxy,
        cafile=cafile,
        foreign=foreign,
    )
    waiting = Waiting(Patience(patience, retries, first_pause), shown or url, connector.server)
    try:
        while True:
            try:
                reply = connector.send(method, None, body, follow=follow, reuse=idempotent)
                if reply.status not in ok:
                    _refuse(reply, waiting, idempotent)
                    continue
                answer = _answer(reply, most_bytes)
                if passing is None or not (trouble := passing(answer)):
                    waiting.answered()
                    return answer
                _pause(waiting, f"the server answers {trouble}")
            except BROKEN as exn:
                if not idempotent and not isinstance(exn, (ConnectionRefusedError, StorageError)):
                    line = f"no answer to {method}, and it is not sent twice: {exn}"
                    raise StorageError(line, url=waiting.url) from exn
                _again(waiting, exn, read_timeout)
    finally:
        waiting.close()


def _answer(reply: Reply, most_bytes: int) -> Answer:
    try:
        body = reply.response.read(most_bytes + 1)
        if reply.response.length:  # read(n) says nothing of a body that was cut
            if len(body) > most_bytes:
                raise StorageError(f"the answer is longer than {most_bytes} bytes", url=reply.url)
            raise http.client.IncompleteRead(b"")
    except BaseException:
        reply.close()
        raise
    reply.release()
    return Answer(reply.status, reply.response.headers, body, reply.url)


def _refuse(reply: Reply, waiting: Waiting, idempotent: bool) -> None:
    """Wait before the next try, or raise."""
    error = status_error(reply, waiting.url)
    reply.drain()
    if reply.status not in (RETRIED_STATUS if idempotent else REFUSED_UNREAD):
        waiting.answered()
        raise error
    _pause(waiting, error.message, reply.retry_after)


def _pause(waiting: Waiting, reason: str, retry_after: float = 0.0) -> None:
    try:
        waiting.pause(reason, retry_after)
    except GaveUpError as exn:
        raise UnavailableError(str(exn), url=waiting.url, hint=exn.hint) from None


def _again(waiting: Waiting, error: BaseException, seconds: float) -> None:
    try:
        wait_after(waiting, error, seconds)
    except GaveUpError as exn:
        raise UnavailableError(f"cannot reach the server: {exn}", url=waiting.url, hint=exn.hint) from None
