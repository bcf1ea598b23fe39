"""Patterns: one text that stands for many urls, by `::`, `${NAME}`, `@000123`, braces and globs."""

from __future__ import annotations

import glob
import os
import re

from webdataset.errors import MissingShardError

from .braces import MAX_URLS, UnbalancedBracesError, braceexpand
from .options import StorageOptions
from .urls import (
    FAMILIES,
    as_url,
    check_ours,
    is_local,
    local_path,
    rewritten_url,
    scheme_of,
    substituted,
    unrewritten,
    with_home,
)

# `::` separates urls, but not inside the brackets of an IPv6 host such as http://[::1]:8000/.
_SEPARATOR = re.compile(r"::(?![0-9A-Fa-f:.%]*\])")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
# Without one of these a url stands for itself alone.
_MEANING = re.compile(r"[{*?[@]|::|\$\{")
_MAGIC = re.compile(r"[*?[]")
_COUNT = re.compile(r"@(0\d{2,})(?=\.|$)")


def expanded(spec: str | os.PathLike[str], options: StorageOptions | None = None) -> list[str]:
    """All urls that a specification stands for: split at `::`, then `${NAME}`, `@000123`, braces and globs.

    Stores are asked for lists with these options.

    >>> expanded("x-{a,b}.tar"), expanded("x-@002.tar")
    (['x-a.tar', 'x-b.tar'], ['x-000.tar', 'x-001.tar'])
    """
    text = as_url(spec)
    urls: list[str] = []
    for part in _SEPARATOR.split(text):
        part = _counted(with_home(substituted(part)))  # noqa: PLW2901 - the same part, further on
        # A Windows path needs its backslashes.
        found = braceexpand(part, escape=_DRIVE.match(part) is None, limit=MAX_URLS - len(urls))
        several = glob.has_magic(part) or part.endswith("/")
        urls += [name for url in found for name in _globbed(url, options)] if several else found
    return urls


def expanded_element(url: str, options: StorageOptions | None = None) -> list[str]:
    """What one element of a list of urls stands for: the same as alone, but commands and existing files are themselves.

    >>> expanded_element("x-{a,b}.tar"), expanded_element("pipe:awk '{print $1,$2}' x")
    (['x-a.tar', 'x-b.tar'], ["pipe:awk '{print $1,$2}' x"])
    """
    url = with_home(url)
    if (
        (_MEANING.search(url) is None and not url.endswith("/"))
        or scheme_of(url) == "pipe"
        or os.path.lexists(local_path(url) or "")
    ):
        return [url]
    try:
        return expanded(url, options)
    except UnbalancedBracesError:  # older versions took every element as it is
        return [url]


def _counted(text: str) -> str:
    """`name-@000123.tar`, 123 shards numbered with six digits, as braces; only in the name after the last slash."""
    found = _COUNT.search(text, text.rfind("/") + 1)
    if found is None or scheme_of(text) == "pipe" or os.path.exists(text):
        return text
    digits = found.group(1)
    if int(digits) == 0:
        raise ValueError(f"{text!r} stands for no shard at all: the number after @ says how many there are")
    return f"{text[: found.start()]}{{{0:0{len(digits)}d}..{int(digits) - 1:0{len(digits)}d}}}{text[found.end() :]}"


def _globbed(url: str, options: StorageOptions | None) -> list[str]:
    """The urls that a pattern matches, sorted; one whose name only looks like a pattern stands for itself."""
    magic = _MAGIC.search(url)
    prefix = url[: magic.start()] if magic else url
    address = rewritten_url(prefix)
    pattern = address + url[len(prefix) :]
    found = _files(pattern) if is_local(pattern) else _listed(pattern, options)
    return [url] if found == [pattern] else unrewritten(found, prefix, address)


def _files(pattern: str) -> list[str]:
    path = local_path(pattern)
    if path is None or not glob.has_magic(pattern) or os.path.lexists(path):
        return [pattern]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise MissingShardError("no file matches this pattern", url=pattern)
    return found


def _listed(pattern: str, options: StorageOptions | None) -> list[str]:
    """The objects that a pattern matches, or the shards of a folder, by a list of the store."""
    from .stores import lookup  # with importlib and more, for few

    is_folder = pattern.endswith("/") and lookup.is_stored(pattern)
    if is_folder or lookup.is_pattern(pattern):
        check_ours(pattern, "listed")
        return (lookup.shards_in_folder if is_folder else lookup.matching)(pattern, options)
    if FAMILIES.get(scheme_of(pattern)) == "http" and "*" in pattern.partition("?")[0]:
        raise MissingShardError(
            "web servers cannot be listed, so a pattern with * finds nothing",
            url=pattern,
            hint="number the shards with braces, as train-{000000..000146}.tar",
        )
    return [pattern]
