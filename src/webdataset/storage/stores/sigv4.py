"""AWS Signature Version 4, for requests to S3 and compatible stores.

The secret itself is never sent, only a keyed hash over the request.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, unquote, urlsplit

from webdataset.storage.http.addresses import host_field

ALGORITHM = "AWS4-HMAC-SHA256"
_SIGNED = ("content-md5", "content-type", "range")


@dataclass(frozen=True)
class Keys:
    """Access key and secrets, which stay out of `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def signed(
    method: str,
    url: str,
    headers: dict[str, str],
    keys: Keys,
    *,
    region: str,
    body: bytes = b"",
    service: str = "s3",
    now: datetime | None = None,
) -> dict[str, str]:
    """The headers of a request with its signature; the url must be encoded already."""
    moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = headers | {"x-amz-date": moment}
    if service == "s3":
        headers["x-amz-content-sha256"] = digest
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names, canonical = _canonical(method, url, headers, digest)
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    text = "\n".join([ALGORITHM, moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = _signing_key(keys.secret_key, moment[:8], region, service)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{keys.access_key}/{scope}"
    headers["Authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return headers


def _canonical(method: str, url: str, headers: dict[str, str], digest: str) -> tuple[str, str]:
    """The names of the signed headers, and the request as it is signed."""
    parts = urlsplit(url)
    chosen = {"host": host_field(parts)}
    for name, value in headers.items():
        lower = name.lower()
        if lower.startswith("x-amz-") or lower in _SIGNED:
            chosen[lower] = " ".join(value.split())
    names = ";".join(sorted(chosen))
    lines = "".join(f"{name}:{chosen[name]}\n" for name in sorted(chosen))
    return names, "\n".join([method, parts.path or "/", _query(parts.query), lines, names, digest])


def _query(query: str) -> str:
    """Names and values encoded and sorted; a name without a value gets an equals sign."""
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    encoded = sorted((_encoded(name), _encoded(value)) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded)


def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for word in (day, region, service, "aws4_request"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return key


def _encoded(text: str) -> str:
    return quote(unquote(text, errors="surrogateescape").encode("utf-8", "surrogateescape"), safe="-_.~")
