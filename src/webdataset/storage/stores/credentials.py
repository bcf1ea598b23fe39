"""Credentials that expire: fetched again before they do, and never shown."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar
from urllib.parse import urlsplit

METADATA_SECONDS = 1.0
SPARE_SECONDS = 300.0
METADATA_BYTES = 1 << 20

Secret = TypeVar("Secret")


@dataclass(frozen=True)
class Lease(Generic[Secret]):
    """A secret and when it expires (seconds since 1970, None for never)."""

    secret: Secret = field(repr=False)
    expires: float | None = None

    def is_fresh(self) -> bool:
        return self.expires is None or time.time() < self.expires - SPARE_SECONDS


class RenewableSecret(Generic[Secret]):
    """A secret that is fetched when it is first needed, and again before it expires.

    There is no lock on purpose: two threads that fetch at once both get a good secret, while a lock that was
    held during a fork would stop the child for ever.

    >>> RenewableSecret(lambda: Lease("hush")).get()
    'hush'
    """

    def __init__(self, fetch: Callable[[], Lease[Secret]]) -> None:
        self._fetch = fetch
        self._lease: Lease[Secret] | None = None

    def get(self) -> Secret:
        lease = self._lease
        if lease is None or not lease.is_fresh():
            lease = self._lease = self._fetch()
        return lease.secret


def metadata(
    url: str, headers: Mapping[str, str], *, method: str = "GET", seconds: float = METADATA_SECONDS
) -> str | None:
    """A value of the machine's metadata service, or None where there is none: without proxy or retries."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), headers=dict(headers))
        response = connection.getresponse()
        body = response.read(METADATA_BYTES)
        return body.decode() if response.status == 200 else None
    except (OSError, http.client.HTTPException, UnicodeError):
        return None
    finally:
        connection.close()


def moment(text: object) -> float | None:
    """Seconds since 1970 of a time such as 2030-01-02T03:04:05Z.

    >>> moment("1970-01-01T00:01:00Z")
    60.0
    """
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
