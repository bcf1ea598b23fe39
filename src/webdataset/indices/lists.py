"""Counts, sizes and versions of many shards in one file, since many indices are slow to open.

There are two kinds of such lists: that of a dataset, in the cache folder, and that of a folder, beside its shards. Both
only save time: a row counts if the shard still is what the row says, and what is missing is looked up shard by shard.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from webdataset.base.settings import settings
from webdataset.errors import WebDatasetError
from webdataset.storage.cache.names import without_signature
from webdataset.storage.local import open_local
from webdataset.storage.streams import MOST_LIST_BYTES, read_up_to
from webdataset.storage.urls import local_path

from .files import write_whole
from .rules import ReadingRules

Facts = tuple[int, int, str | None]
"""Samples, bytes and version of a shard."""

BESIDE_SHARDS = "shards.wdx-list"
FORMAT = 2
"""Lists of format 1 count samples behind the end marker of a shard, too."""
MANY = 1000
"""Indexed shards of a folder from which on it gets a list."""


def known_of_dataset(urls: Sequence[str], rules: ReadingRules) -> list[Facts] | None:
    """The facts that were kept of exactly this list of shards; None if there are none."""
    rows = _read(_dataset_path(urls, rules))
    return None if rows is None or len(rows) != len(urls) else [facts for _, facts in rows]


def keep_of_dataset(urls: Sequence[str], rules: ReadingRules, rows: Iterable[Facts]) -> None:
    """Keep what is known of a list of shards in the cache folder."""
    path = _dataset_path(urls, rules)
    # without it the next time is slower, no more
    with contextlib.suppress(OSError, WebDatasetError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, None, list(rows))


def known_of_folders(urls: Sequence[str]) -> list[Facts | None] | None:
    """The facts in the lists of the shards' folders; None if no folder has a list."""
    lists: dict[str, Mapping[str, Facts]] = {}
    rows: list[Facts | None] = []
    for url in urls:
        path = url if ":" not in url else local_path(url)
        if path is None:
            rows.append(None)
            continue
        folder, name = _parts(path)
        if folder not in lists:
            lists[folder] = _of_folder(folder)
        rows.append(lists[folder].get(name))
    return rows if any(lists.values()) else None


def keep_of_folders(shards: Iterable[tuple[str, Facts]]) -> None:
    """Leave lists beside local shards, in folders with many; what they know of other shards stays in them."""
    folders: dict[str, dict[str, Facts]] = {}
    for url, facts in shards:
        path = local_path(url)
        if path is not None:
            folder, name = _parts(path)
            folders.setdefault(folder, {})[name] = facts
    for folder, rows in folders.items():
        if len(rows) < MANY:
            continue
        known = {**_of_folder(folder), **rows}
        with contextlib.suppress(OSError, WebDatasetError):  # a folder that may only be read, for example
            _write(os.path.join(folder, BESIDE_SHARDS), list(known), list(known.values()))


def _parts(path: str) -> tuple[str, str]:
    """Folder and name of a file; as quickly as it can be done 100,000 times.

    >>> _parts("/data/a.tar"), _parts("a.tar")
    (('/data/', 'a.tar'), ('', 'a.tar'))
    """
    at = path.rfind("/") + 1
    return path[:at], path[at:]


def _of_folder(folder: str) -> dict[str, Facts]:
    return dict(_read(os.path.join(folder, BESIDE_SHARDS)) or ())


def _read(path: str) -> list[tuple[str, Facts]] | None:
    """The rows of a file with their names; None if there is none, or it is damaged."""
    try:
        with open_local(path) as file:
            kept = json.loads(read_up_to(MOST_LIST_BYTES, file, path))
        if kept["format"] != FORMAT:
            return None
        samples, sizes, versions = kept["samples"], kept["sizes"], kept["versions"]
        names = kept.get("names") or [""] * len(samples)
        numbers = all(type(number) is int for number in (*samples, *sizes)) and min([0, *samples]) >= 0
        texts = all(isinstance(text, str) for text in names)
        rows = list(zip(names, zip(samples, sizes, versions, strict=True), strict=True))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, WebDatasetError):
        return None
    return rows if numbers and texts and all(text is None or isinstance(text, str) for text in versions) else None


def _write(path: str, names: list[str] | None, rows: Sequence[Facts]) -> None:
    """Leave the rows in columns, for 100,000 shards are to be known again within a second."""
    samples, sizes, versions = zip(*rows, strict=True) if rows else ((), (), ())
    columns: dict[str, Any] = {"format": FORMAT, "samples": samples, "sizes": sizes, "versions": versions}
    if names is not None:
        columns["names"] = names
    write_whole(path, json.dumps(columns, separators=(",", ":")).encode())


def _dataset_path(urls: Sequence[str], rules: ReadingRules) -> str:
    import hashlib

    chosen = rules.options or settings.gopen_rewrite
    identities = sorted({rules.options.identity(url) for url in urls}) if chosen else []
    here = "" if all(url.startswith("/") for url in urls) else os.getcwd()
    plain = (url if "?" not in url and "@" not in url else without_signature(url) for url in urls)
    reading = repr(rules.key_rule) + ("+concatenated" if rules.concatenated else "")
    text = "\0".join([reading, here, *plain, *filter(None, identities)])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return os.path.join(settings.indices_dir, "lists", f"{digest}.json")
