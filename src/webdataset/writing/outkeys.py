"""The keys of an archive that is being written: readers take two samples in a row with the same key for one."""

from __future__ import annotations

import io
from collections.abc import Sequence

from webdataset.base.reports import Report
from webdataset.errors import SampleError
from webdataset.tar.header import decoded
from webdataset.tar.reader import read_members
from webdataset.tar.writer import END, MAX_NAME, name_bytes

KIND, PREFIX = 156, 345  # where they are in a header
REGULAR = ord("0")


def key_after(last: bytes, name: bytes) -> bytes:
    """The key of a sample by the name of its first member; the same as that of the sample before is an error.

    >>> key_after(b"a", b"d.x/b.seg.png"), key_after(b"a", b"README")  # which is in no sample, so that of a may go on
    (b'd.x/b', b'a')
    """
    dot = name.find(b".", name.rfind(b"/") + 1)
    if dot <= 0:
        return last
    key = name[:dot]
    if key == last:
        raise SampleError(
            "two samples in a row have the same key, so readers would take them for one",
            member=decoded(name),
            key=decoded(key),
            hint="give every sample a key of its own; a key ends at the first dot of its last part",
        )
    return key


def key_after_packed(last: bytes, packed: bytes, sizes: Sequence[tuple[int, int]]) -> bytes:
    """`key_after` for samples that are the bytes of an archive already; `sizes` begins with how many each has."""
    start = 0
    find = packed.find
    for size, _ in sizes:
        # most names are short and in no folder: what follows does without any copy of them but that of the key
        end = start + MAX_NAME
        dot = find(b".", start, end)
        if (
            dot > start
            and find(b"/", start, end) < 0
            and size
            and packed[start + KIND] == REGULAR
            and not packed[start + PREFIX]
        ):
            key = packed[start:dot]
            last = key if key != last else key_after(last, _first_name(packed, start, size))
        elif size:  # a sample without fields leaves nothing
            last = key_after(last, _first_name(packed, start, size))
        start += size
    return last


def _first_name(packed: bytes, start: int, size: int) -> bytes:
    """The name of the first member of a sample."""
    if packed[start + KIND] == REGULAR and not packed[start + PREFIX]:
        return packed[start : start + MAX_NAME].rstrip(b"\0")
    sample = io.BytesIO(packed[start : start + size] + END)
    [(name, *_), *_] = next(read_members(sample, report=Report(strict=False)))
    return name_bytes(name)
