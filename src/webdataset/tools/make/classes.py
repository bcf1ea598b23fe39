"""Lists of class names: the position of a name, from 0, is the class number."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from webdataset.errors import MissingShardError, SampleError
from webdataset.gopen import gopen
from webdataset.storage.streams import MOST_TEXT_BYTES, read_up_to
from webdataset.storage.urls import is_local, scheme_of
from webdataset.writing.shardsets import shard_name

from .grouping import reason_to_leave

FILE = "classes.txt"


def class_names(folders: Iterable[str]) -> list[str]:
    """Return the names of the subfolders of some folders, in alphabetical order."""
    return sorted({name for folder in folders for name in _folders_in(folder)})


def class_numbers(folder: str, names: Sequence[str], origin: str = "the list") -> dict[str, int]:
    """Return the numbers of a folder's classes; one that is not among the names is an error."""
    numbers = {name: number for number, name in enumerate(names)}
    found = _folders_in(folder)
    if unknown := [name for name in found if name not in numbers]:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        hint = "add it to the end of the list, or leave its folder out"
        raise SampleError(f"the class {unknown[0]!r}{more} is not in {origin}", url=folder, hint=hint)
    return {name: numbers[name] for name in found}


def read_classes(url: str) -> list[str]:
    """Read a list of names, one per line."""
    with gopen(url) as stream:
        names = parsed_classes(read_up_to(MOST_TEXT_BYTES, stream, url), url)
    if not names:
        raise SampleError("the list of classes is empty", url=url)
    return names


def parsed_classes(data: bytes, url: str) -> list[str]:
    """Parse a list of names; an empty or repeated one is an error.

    >>> parsed_classes(b"cat\\ndog\\n", "classes.txt")
    ['cat', 'dog']
    """
    lines = data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").removesuffix("\n").split("\n")
    names: dict[str, int] = {}
    for number, name in enumerate(lines if lines != [""] else [], 1):
        if not name or names.setdefault(name, number) != number:
            wrong = f"names {name!r} a second time" if name else "is empty"
            raise SampleError(f"line {number} of the list of classes {wrong}", url=url, hint="write one name per line")
    return [*names]


def classes_text(names: Iterable[str]) -> bytes:
    """Format a list of names.

    >>> classes_text(["cat", "dog"])
    b'cat\\ndog\\n'
    """
    for name in names:
        if "\n" in name or "\r" in name:
            raise SampleError(f"the class {name!r} cannot be in a list: its name has a line break")
    return "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")


def classes_url(output: str) -> str | None:
    """Return the url of the list next to an output's shards; None for stdout and commands.

    >>> classes_url("out/train-%06d.tar"), classes_url("s3://bucket/a.tar"), classes_url("-")
    ('out/classes.txt', 's3://bucket/classes.txt', None)
    """
    if output == "-" or scheme_of(output) == "pipe":
        return None
    name = shard_name(output, 0)
    name = name if is_local(name) else name.partition("?")[0]
    return name[: name.rfind("/") + 1] + FILE


def known_classes(url: str) -> list[str] | None:
    """Read a list, or return None if there is none."""
    try:
        return read_classes(url)
    except MissingShardError:
        return None


def _folders_in(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        raise MissingShardError("there is no such folder", url=folder)
    folders = (entry.name for entry in os.scandir(folder) if entry.is_dir())
    names = sorted(name for name in folders if not reason_to_leave(name, folder=True))
    if not names:
        raise SampleError("the folder has no subfolders", url=folder, hint="leave out --classes")
    return names
