"""LMDB databases, looked at before they are mapped into memory.

LMDB reads its pages through a memory map. Where the file is shorter than its header says, touching a page ends
the process (SIGBUS), which no handler can catch.
"""

from __future__ import annotations

import os
import stat
import struct

from webdataset.errors import StorageError

MAGIC, VERSION = 0xBEEFC0DE, 1
HEADER = 16
"""Bytes of a page before its content."""
META = struct.Struct("<IIQQ")
"""Magic number, version, address, map size; two tables of 48 bytes follow, then the last page and the transaction."""
TABLES = 2 * 48
TAIL = struct.Struct("<QQ")
PAGES = (512, 65536)
CURE = "delete it; the next pass makes it again"


def check_database(folder: str) -> None:
    """Refuse a database whose file is shorter than it says, or is something else; one that does not exist is fine."""
    path = os.path.join(folder, "data.mdb")
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise StorageError("the cache is no regular file", url=path, hint=CURE)
            _check_pages(file.read(PAGES[1] + 256), facts.st_size, path)
    except FileNotFoundError:
        return


def _check_pages(start: bytes, size: int, path: str) -> None:
    if size == 0:  # made, and nothing written yet
        return
    page = _page_size(start)
    if page is None:
        raise StorageError("the cache is not an LMDB database of this machine's kind", url=path, hint=CURE)
    newest = max((_meta(start, at) for at in (0, page)), key=lambda meta: meta[1])
    if (newest[0] + 1) * page > size:
        raise StorageError(
            f"the cache is cut short: it has {size} bytes and says {(newest[0] + 1) * page}", url=path, hint=CURE
        )


def _page_size(start: bytes) -> int | None:
    """The distance of the two header pages; None if this is no such database."""
    page = PAGES[0]
    while page <= PAGES[1] and not (_is_meta(start, 0) and _is_meta(start, page)):
        page *= 2
    return page if page <= PAGES[1] else None


def _is_meta(start: bytes, at: int) -> bool:
    found = start[at + HEADER : at + HEADER + META.size + TABLES + TAIL.size]
    return len(found) == META.size + TABLES + TAIL.size and META.unpack_from(found)[:2] == (MAGIC, VERSION)


def _meta(start: bytes, at: int) -> tuple[int, int]:
    """The last page in use, and the number of the transaction that wrote this."""
    last, transaction = TAIL.unpack_from(start, at + HEADER + META.size + TABLES)
    return last, transaction
