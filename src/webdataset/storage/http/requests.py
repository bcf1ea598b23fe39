"""Small requests whose whole response is read, with the retries, redirects and checks of a stream."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from webdataset.errors import StorageError, UnavailableError
from webdataset.storage.patience import RetriesExhaustedError, RetryState

from .connect import Body, ConnectionOptions, Connector, OpenResponse
from .faults import RETRIED_STATUS, TRANSIENT_ERRORS, status_error, wait_after
from .headers import HeaderFields

MOST_BYTES = 256 << 20
REFUSED_UNREAD = frozenset({429, 503})
"""Statuses that say that nothing was done."""


@dataclass(frozen=True)
class WholeResponse:
    """A response with its body; `headers.get(name)` takes a name in any case."""

    status: int
    headers: HeaderFields
    body: bytes
    url: str

    @classmethod
    def read(cls, response: OpenResponse, most_bytes: int = MOST_BYTES) -> WholeResponse:
        """Read the body; a longer one is an error, and so is one that was cut."""
        try:
            body = response.raw.read(most_bytes + 1)
            if response.raw.length:  # read(n) does not mind a body that was cut
                if len(body) > most_bytes:
                    raise StorageError(f"the answer is longer than {most_bytes} bytes", url=response.url)
                raise http.client.IncompleteRead(b"")
        except BaseException:
            response.close()
            raise
        response.release()
        return cls(response.status, response.raw.headers, body, response.url)


def request(
    method: str,
    url: str,
    options: ConnectionOptions | None = None,
    *,
    body: Body = None,
    ok: Collection[int] = (200, 204, 206),
    idempotent: bool = True,
    follow: bool = True,
    most_bytes: int = MOST_BYTES,
    transient: Callable[[WholeResponse], str] | None = None,
    shown: str = "",
    **fields: Any,
) -> WholeResponse:
    """Send one request and return the whole response if its status is one of `ok`; else an error with a hint.

    A request that is not idempotent is repeated only where the server cannot have acted on it. A redirect keeps method
    and body (307, 308) or is followed for GET and HEAD only; with `follow=False` it is returned as it is.
    `transient(response)` names the error that a response with a good status holds, if another try may succeed. Errors
    name `shown` instead of the address. `fields` are those of ConnectionOptions, where no `options` are given.
    """
    options = options or ConnectionOptions(**fields)
    connector = Connector(url, options)
    with contextlib.closing(options.retry_state(shown or url, connector.server)) as retries:
        while True:
            try:
                response = connector.send(method, None, body, follow=follow, reuse=idempotent)
                if response.status not in ok:
                    _refuse(response, retries, idempotent)
                    continue
                whole = WholeResponse.read(response, most_bytes)
                if transient is None or not (trouble := transient(whole)):
                    retries.answered()
                    return whole
                with _unavailable(retries):
                    retries.pause(f"the server answers {trouble}", status=whole.status)
            except TRANSIENT_ERRORS as exn:
                if not idempotent and not isinstance(exn, (ConnectionRefusedError, StorageError)):
                    line = f"no answer to {method}, and it is not sent twice: {exn}"
                    raise StorageError(line, url=retries.url) from exn
                with _unavailable(retries, "cannot reach the server: "):
                    wait_after(retries, exn, options.read_timeout)


def _refuse(response: OpenResponse, retries: RetryState, idempotent: bool) -> None:
    """Wait before the next try, or raise."""
    error = status_error(response, retries.url)
    response.drain()
    if response.status not in (RETRIED_STATUS if idempotent else REFUSED_UNREAD):
        retries.answered()
        raise error
    with _unavailable(retries):
        retries.pause(error.message, response.retry_after, status=error.status)


@contextlib.contextmanager
def _unavailable(retries: RetryState, before: str = "") -> Iterator[None]:
    try:
        yield
    except RetriesExhaustedError as exn:
        raise UnavailableError(f"{before}{exn}", url=retries.url, hint=exn.hint, status=exn.status) from None
