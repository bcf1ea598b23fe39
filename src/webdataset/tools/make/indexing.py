"""Make indices of existing shards, in our own format and in those of other programs.

>>> import pathlib, tempfile
>>> from webdataset.writer import TarWriter
>>> with tempfile.TemporaryDirectory() as folder:
...     with TarWriter(f"{folder}/a.tar") as sink:
...         size = sink.write({"__key__": "x", "cls": 3, "txt": "hello"})
...     _ = write_indices([f"{folder}/a.tar"], ["dali"])
...     pathlib.Path(folder, "a.idx").read_text()
'v1.2 1\\ncls 512 1 x.cls txt 1536 5 x.txt\\n'
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from webdataset.base.reports import current_report
from webdataset.errors import EncodingError, ShardError, WebDatasetError
from webdataset.gopen import gopen
from webdataset.handlers import Handler, ask, reraise_exception
from webdataset.indices.catalogue import Catalogue
from webdataset.indices.files import BESIDE, CACHE, find_index, make_index, write_whole
from webdataset.indices.making import PlacesOfIndices, index
from webdataset.indices.rules import ReadingRules
from webdataset.storage.streams import MOST_INDEX_BYTES, read_up_to
from webdataset.storage.urls import local_path
from webdataset.tar.foreign import dali_path, dali_text, energon_bytes, energon_path
from webdataset.tar.index import ShardIndex

FORMATS = ("wdx", "dali", "energon")
_PATHS: dict[str, Callable[[str], str]] = {"dali": dali_path, "energon": energon_path}


def write_indices(
    urls: Iterable[str],
    formats: Iterable[str] = ("wdx",),
    *,
    where: str | None = None,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int, str], Any] | None = None,
    handler: Handler = reraise_exception,
    concatenated: bool = False,
    places: PlacesOfIndices | None = None,
) -> Catalogue:
    """Make the missing or outdated indices of these shards, and return the catalogue.

    Only headers are read. An index appears when it is complete, and replaces an older one. Indices in other formats
    are written next to their shards, or to the folder `where`. `places` learns where our own are.
    """
    wanted = tuple(formats)
    place = where if "wdx" in wanted or where not in (None, BESIDE) else CACHE
    options: dict[str, Any] = {"jobs": jobs, "force": force, "progress": progress, "handler": handler}
    catalogue = index(list(urls), where=place, concatenated=concatenated, places=places, **options)
    report = current_report()
    for number, url in enumerate(catalogue.urls):
        for format in wanted:
            if format == "wdx":
                continue
            try:
                write_whole(_foreign_place(url, format, where), _foreign(catalogue.index(number), format, url))
            except WebDatasetError as error:
                if not ask(handler, error.at(url=url), report, "shards_skipped"):
                    return catalogue
    return catalogue


def index_problem(url: str, format: str = "wdx", where: str | None = None, *, concatenated: bool = False) -> str | None:
    """Compare the index of a shard with its headers; return what is wrong, or None."""
    rules = ReadingRules(concatenated=concatenated)
    made = make_index(url, rules)
    if format == "wdx":
        kept = find_index(url, rules, where=where, version=made.version)
        if kept is None:
            return "there is no index of this version of the shard"
        return None if kept.agrees(made) else "the index does not match the shard"
    try:
        with gopen(_foreign_place(url, format, where)) as stream:
            data = read_up_to(MOST_INDEX_BYTES, stream, url)
    except FileNotFoundError:
        return f"there is no index for {format}"
    return None if data == _foreign(made, format, url) else "the index does not match the shard"


def _foreign(made: ShardIndex, format: str, url: str) -> bytes:
    if format == "energon":
        return energon_bytes(made)
    try:
        return dali_text(made.members(i) for i in range(made.samples))
    except EncodingError as error:
        raise ShardError(error.message, url=url, member=error.member) from None


def _foreign_place(url: str, format: str, where: str | None) -> str:
    path = local_path(url)
    if where not in (None, BESIDE, CACHE):
        return os.path.join(str(where), os.path.basename(_PATHS[format](path or url.partition("?")[0])))
    if path is None:
        raise ValueError(f"{url!r} is not a local file; say where to write its index for {format}")
    return _PATHS[format](path)
