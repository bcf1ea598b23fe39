"""Object stores behind one seam: open, list, size, put and delete, by scheme.

A url names an object as users write it (`s3://bucket/key`), its characters taken as they are. A store is
asked over HTTP; every request is signed anew, and an answer that is an error becomes one line with the cure.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from webdataset.base.settings import settings
from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.options import LIST, StorageOptions
from webdataset.storage.urls import scheme_of

if TYPE_CHECKING:
    from webdataset.storage.http.stream import HttpStream, Version

    from .uploads import Upload

# scheme -> the module of this package that has the store, under the name STORE
STORES = {
    "s3": "stores.s3",
    "gs": "stores.gcs",
    "gcs": "stores.gcs",
    "htgs": "stores.gcs",
    "az": "stores.azure",
    "abfs": "stores.azure",
    "abfss": "stores.azure",
    "hf": "stores.hf",
    "ais": "ais.objects",
}
_MAGIC = re.compile(r"[*[]|\?(?!(?:arch|etl_)[a-z]+=)")  # AIStore's options are no pattern


class RangedObject(Protocol):
    """An object of which parts can be asked for."""

    def part(self, start: int, stop: int, version: Version | None) -> HttpStream:
        """Some bytes, asked for at the first read; of this version, if one is given."""

    def stated(self) -> Version:
        """What one HEAD request says of it."""

    def explained(self, exn: StorageError) -> bool:
        """Raise what a refusal means where that can be found out; true when another try may work now."""


class Store(ABC):
    """What every store does; `options` are the store's own and those of a connection (timeouts, retries, proxy)."""

    @abstractmethod
    def open(self, url: str, **options: Any) -> Any:
        """The bytes of an object as a stream."""

    @abstractmethod
    def list(self, prefix: str, **options: Any) -> Iterator[tuple[str, int]]:
        """Url and size of every object whose url begins with this one."""

    @abstractmethod
    def size(self, url: str, **options: Any) -> int:
        """The size of an object in bytes."""

    @abstractmethod
    def object(self, url: str, **options: Any) -> RangedObject:
        """An object to be read in parts."""

    @abstractmethod
    def put(self, url: str, **options: Any) -> Upload:
        """A stream to write an object through; it appears when that is closed."""

    @abstractmethod
    def delete(self, url: str, **options: Any) -> None:
        """Remove an object."""


def store_for(url: str) -> Store:
    """The store that has this url.

    >>> type(store_for("s3://bucket/a.tar")).__name__
    'ClientStore'
    """
    scheme = scheme_of(url)
    if scheme in settings.use_ais_for and "ais" in STORES:
        scheme = "ais"
    module = STORES.get(scheme)
    if module is None:
        names = ", ".join(sorted(STORES))
        raise StorageError("this is no url of an object store", url=url, hint=f"the stores are {names}")
    found = importlib.import_module(f"webdataset.storage.{module}").STORE
    assert isinstance(found, Store)
    return found


def open_store(url: str, mode: str = "rb", *, bufsize: int = 0, **options: Any) -> Any:  # noqa: ARG001 - all openers take it
    """Open an object for reading or writing."""
    store = store_for(url)
    return store.open(url, **options) if mode == "rb" else store.put(url, **options)


def is_pattern(url: str) -> bool:
    """Whether this is a url of a store with `*`, `?` or `[` after the bucket.

    >>> is_pattern("s3://bucket/train-*.tar"), is_pattern("s3://bucket/a.tar"), is_pattern("http://host/a?x=[1]")
    (True, False, False)
    """
    return scheme_of(url) in STORES and _MAGIC.search(url, _root(url)) is not None


def matching(pattern: str, options: StorageOptions | None = None) -> list[str]:
    """The urls a pattern stands for, sorted; an object whose name only looks like a pattern stands for itself.

    `*` and `?` stay within a folder, `**` does not.
    """
    first = _MAGIC.search(pattern, _root(pattern))
    prefix = pattern[: first.start()] if first else pattern
    matches = _regex(pattern, _root(pattern)).fullmatch
    how = StorageOptions.of(options).for_url(pattern, LIST)
    found = {url for url, _ in store_for(pattern).list(prefix, **how) if url == pattern or matches(url)}
    if not found:
        raise MissingShardError("no object matches this pattern", url=pattern, hint="list the store to see its names")
    return [pattern] if pattern in found else sorted(found)


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
