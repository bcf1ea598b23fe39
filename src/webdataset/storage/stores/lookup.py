"""Object stores by scheme: the object behind a url, and the urls that a pattern stands for.

A url names an object as users write it (`s3://bucket/key`), its characters taken as they are. Stores are reached over
HTTP; every request is signed by itself, and a response that is an error becomes one line with a hint.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from itertools import islice
from typing import TYPE_CHECKING

from webdataset.errors import MissingShardError, StorageError, UnavailableError
from webdataset.storage.options import LIST, StorageOptions
from webdataset.storage.urls import FAMILIES, address_of, is_replaced, opened_scheme, rewritten_url, unrewritten

if TYPE_CHECKING:
    from .client import StoredObject

_CLASSES = {
    "s3": "stores.s3.S3Client",
    "gs": "stores.gcs.GcsClient",
    "az": "stores.azure.AzureClient",
    "hf": "stores.hf.HubClient",
    "ais": "ais.objects.AisObject",
}
STORES = {scheme: _CLASSES[family] for scheme, family in FAMILIES.items() if family in _CLASSES}
"""Scheme -> module and class of its objects."""
_MAGIC = re.compile(r"[*[]|\?(?!(?:arch|etl_)[a-z]+=)")  # AIStore's options are no pattern


def stored_object(url: str, **options: object) -> StoredObject:
    """The object of a store behind a url; the options are the store's own and those of ConnectionOptions.

    >>> type(stored_object("s3://bucket/a.tar", region="eu-central-1", anonymous=True)).__name__
    'S3Client'
    """
    scheme = opened_scheme(url)
    if scheme not in STORES:
        names = ", ".join(sorted(STORES))
        raise StorageError("this is no url of an object store", url=url, hint=f"the stores are {names}")
    module, _, name = STORES[scheme].rpartition(".")
    found: StoredObject = getattr(importlib.import_module(f"webdataset.storage.{module}"), name)(url, **options)
    return found


def open_store(url: str, mode: str = "rb", *, bufsize: int = 0, **options: object) -> BufferedIOBase:  # noqa: ARG001 - all openers take it
    """Open an object for reading or writing."""
    found = stored_object(url, **options)
    return found.stream() if mode == "rb" else found.upload()


def is_pattern(url: str) -> bool:
    """Whether this is a url of a store with `*`, `?` or `[` after the bucket.

    >>> is_pattern("s3://bucket/train-*.tar"), is_pattern("s3://bucket/a.tar"), is_pattern("http://host/a?x=[1]")
    (True, False, False)
    """
    return is_stored(url) and _MAGIC.search(url, _root(url)) is not None


SHARD_ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4")


def is_stored(url: str) -> bool:
    """Whether this is a url of a store."""
    return opened_scheme(url) in STORES


def object_or_folder(url: str, options: StorageOptions | None = None) -> str:
    """The url of an object as it is, that of a bucket or folder with a slash at its end; neither is an error.

    A name that ends as those of shards do, or stands for several, is that of objects; for others the store is asked.
    """
    address = rewritten_url(url)
    if not is_stored(address) or is_replaced(address) or is_pattern(address):
        return url
    if address.endswith(("/", *SHARD_ENDINGS)) or "?" in url or "{" in url:
        return url
    folder = f"{address}/"
    if _root(address) == len(address):
        return f"{url}/"
    given = StorageOptions.of(options)
    try:
        stored_object(address, **given.for_url(address)).size()
        return url
    except UnavailableError:
        raise
    except StorageError as error:
        inside = stored_object(folder, **given.for_url(folder, LIST)).list()
        try:
            if any(found.startswith(folder) for found, _ in inside):
                return f"{url}/"
        except MissingShardError:  # some know folders, and all know that there is no bucket
            raise error from None
        if not isinstance(error, MissingShardError):
            raise
    hint = f"wl ls {url.rpartition('/')[0]}/ lists what is there"
    raise MissingShardError("there is no object and no folder of this name", url=url, hint=hint)


def shards_in_folder(folder: str, options: StorageOptions | None = None) -> list[str]:
    """The shards directly in a folder of a store, whose address ends in a slash, sorted by name."""
    names = [url for url, _ in _objects(folder, options) if "/" not in url[len(folder) :]]
    found = [url for url in names if url.endswith(SHARD_ENDINGS)]
    if not found:
        hint = f"it has {len(names)} other objects" if names else "list the store to see its names"
        raise MissingShardError("the folder has no shards", url=folder, hint=hint)
    return found


def matching(pattern: str, options: StorageOptions | None = None) -> list[str]:
    """The objects that a pattern stands for, sorted; one whose name only looks like a pattern stands for itself.

    `*` and `?` stay within a folder, `**` does not.
    """
    first = _MAGIC.search(pattern, _root(pattern))
    prefix = pattern[: first.start()] if first else pattern
    matches = _regex(pattern, _root(pattern)).fullmatch
    found = [url for url, _ in _objects(prefix, options) if url == pattern or matches(url)]
    if not found:
        raise MissingShardError("no object matches this pattern", url=pattern, hint="list the store to see its names")
    return [pattern] if pattern in found else found


def listed(prefix: str, options: StorageOptions | None = None) -> list[tuple[str, int]]:
    """Url and size of every object whose url begins with this one, sorted by name.

    With GOPEN_REWRITE these are the urls that lead to what was found.
    """
    address = address_of(prefix, "listed")
    found = _objects(address, options)
    urls = unrewritten([url for url, _ in found], prefix, address)
    return [(url, size) for url, (_, size) in zip(urls, found, strict=True)]


def listed_versions(prefix: str, most: int) -> tuple[dict[str, tuple[int, str]], bool] | None:
    """Size and version of objects whose urls begin like this, and whether these are all, as many as asked for.

    None if lists of the store have no versions; then each object has to be asked for.
    """
    address = address_of(prefix, "listed")
    found = stored_object(address, **StorageOptions.of(None).for_url(address, LIST)).versions()
    if found is None:
        return None
    entries = list(islice(found, most + 1))
    urls = unrewritten([url for url, _, _ in entries], prefix, address)
    return {url: entry[1:] for url, entry in zip(urls, entries, strict=True)}, len(entries) <= most


def unfinished(prefix: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Url of every upload whose url begins like this and is not complete, and what discards it."""
    address = address_of(prefix, "listed")
    found = list(stored_object(address, **StorageOptions.of(None).for_url(address, LIST)).unfinished())
    urls = unrewritten([url for url, _ in found], prefix, address)
    return zip(urls, (discard for _, discard in found), strict=True)


def _objects(address: str, options: StorageOptions | None) -> list[tuple[str, int]]:
    found = stored_object(address, **StorageOptions.of(options).for_url(address, LIST)).list()
    return sorted((url, size) for url, size in found if url.startswith(address))


def _root(url: str) -> int:
    """Where the part after the bucket begins."""
    slash = url.find("/", url.find("://") + 3)
    return len(url) if slash < 0 else slash + 1


def _regex(pattern: str, start: int) -> re.Pattern[str]:
    """A shell's pattern as a regular expression.

    >>> bool(_regex("s3://b/**/a-[0-9].tar", 7).fullmatch("s3://b/x/y/a-7.tar"))
    True
    """
    parts = [re.escape(pattern[:start])]
    for word in re.findall(r"\*\*/|\*+|\?|\[!?\]?[^\]]*\]|[^*?[]+|\[", pattern[start:]):
        if word == "**/":
            parts.append("(?:.*/)?")
        elif word.startswith("*"):
            parts.append("[^/]*" if word == "*" else ".*")
        elif word == "?":
            parts.append("[^/]")
        elif word.startswith("[") and len(word) > 2:
            parts.append(_class(word))
        else:
            parts.append(re.escape(word))
    return re.compile("".join(parts), re.DOTALL)


def _class(word: str) -> str:
    """`[a-c]` or `[!a-c]`; a range the wrong way round matches nothing, as in a shell."""
    inside = word[1:-1]
    negated, inside = inside.startswith("!"), inside.removeprefix("!")
    text = inside.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("]", "\\]")
    for operator in ("&&", "~~", "||", "--"):  # reserved in sets
        text = text.replace(operator, "".join(f"\\{character}" for character in operator))
    try:
        found = f"[{'^/' if negated else ''}{text}]"
        re.compile(found)
    except re.error:
        return "(?!)"
    return found
