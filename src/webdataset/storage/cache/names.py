"""Names of cached files: readable, and one for each object.

>>> unique_cache_name("https://one/a.tar") == unique_cache_name("https://two/a.tar")
False
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from webdataset.base.redact import is_secret_name, redacted

NAME_CHARACTERS = 160
QUOTED_CHARACTERS = 128
# Schemes whose last path component was the whole name of a cached file in older versions.
PATH_SCHEMES = ("", "file", "http", "https", "ftp", "ftps", "gs", "s3", "ais")
# Parameters of signed urls, which say nothing about the object: a new signature must not fetch the shard again.
SIGNATURES = re.compile(
    r"(?i)x-(amz|goog)-(algorithm|credential|date|expires|security-token|signature|signedheaders|id|storage-class)"
    r"|signature|expires|awsaccesskeyid|googleaccessid|key-pair-id|policy"
    r"|sig|se|st|sp|sv|sr|spr|ske|skoid|sks|skt|sktid|skv"
)


def pipe_cleaner(spec: str) -> str:
    """The url inside `spec`, a `pipe:` command, for names; anything else as it is.

    >>> pipe_cleaner("pipe:curl -s http://host/a.tar | cat")
    'http://host/a.tar'
    """
    if not spec.startswith("pipe:"):
        return spec
    command = spec[len("pipe:") :]
    for word in command.split():
        if re.match(r"(https?|hdfs|gs|ais|s3):/", word):
            return word
    return command


def url_to_cache_name(url: str, ndir: int = 0) -> str:
    """The name of a cached file in older versions: the last path component, which two buckets may share.

    >>> url_to_cache_name("http://host/a/b.tar"), url_to_cache_name("http://host/a/b.tar", ndir=1)
    ('b.tar', 'a/b.tar')
    """
    parts = urlsplit(url)
    if parts.scheme in PATH_SCHEMES:
        return "/".join(parts.path.strip("/").split("/")[-1 - ndir :])
    return quote(url, safe="_+{}*,-")[-QUOTED_CHARACTERS:]


def unique_cache_name(url: str, identity: str = "") -> str:
    """A name for one url only: a digest of the whole url but its signature, and the last part of its path.

    `identity` tells objects apart that have the same url, as in two stores.

    >>> unique_cache_name("https://host/a/train-000.tar.gz")
    'dc4df5273e7e024dcf58-train-000.tar.gz'
    """
    import hashlib

    whole = without_signature(url) + (f" {identity}" if identity else "")
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()
    source = pipe_cleaner(url)
    path = urlsplit(source).path if "://" in source else source
    base = re.sub(r"[^A-Za-z0-9._-]+", "_", redacted(path).rstrip("/").rsplit("/", 1)[-1])
    return f"{digest}-{base[-NAME_CHARACTERS:]}"


def without_signature(url: str) -> str:
    """The url without what changes from one signature to the next, and without user and password.

    >>> without_signature("https://me:pass@host/a.tar?X-Amz-Signature=abc"), without_signature("ais://@far#space/b/a.tar")
    ('https://host/a.tar', 'ais://@far#space/b/a.tar')
    """
    return _without(url, lambda name: SIGNATURES.fullmatch(name) is not None)


def without_secrets(url: str) -> str:
    """The url without signatures, tokens, keys, user and password, fit to be kept in a file.

    >>> without_secrets("https://me:pw@host/a.tar?token=abc&part=1")
    'https://host/a.tar?part=1'
    """
    return _without(url, lambda name: SIGNATURES.fullmatch(name) is not None or is_secret_name(name))


def _without(url: str, unwanted: Callable[[str], bool]) -> str:
    if "://" not in url or url.startswith("pipe:"):
        return url
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query, True) if not unwanted(name)]
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host if user else parts.netloc, query=urlencode(kept)).geturl()
