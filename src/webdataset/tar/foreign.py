"""Indices in the formats of other programs.

DALI's is text (`a.idx` beside `a.tar`), Energon's is numbers (`a.tar.idx`): both say where things are, but not of
which version of the shard.
"""

from __future__ import annotations

from collections.abc import Iterable

from webdataset.errors import EncodingError, ShardError

from .index import IndexedMember, ShardIndex

DALI_VERSION = "v1.2"


def dali_path(shard: str) -> str:
    """Where DALI looks for the index of a shard.

    >>> dali_path("data/a.tar"), energon_path("data/a.tar")
    ('data/a.idx', 'data/a.tar.idx')
    """
    return f"{shard.removesuffix('.tar')}.idx"


def energon_path(shard: str) -> str:
    """Where Energon looks for the index of a shard."""
    return f"{shard}.idx"


def dali_text(samples: Iterable[Iterable[IndexedMember]]) -> bytes:
    """An index as DALI reads it, version 1.2: a line for each sample, four words for each of its files.

    >>> dali_text([[IndexedMember("txt", "a.txt", 512, 5)]])
    b'v1.2 1\\ntxt 512 5 a.txt\\n'
    """
    lines = [" ".join(_dali_words(member) for member in members) for members in samples]
    return "\n".join([f"{DALI_VERSION} {len(lines)}", *lines, ""]).encode("utf-8", "surrogateescape")


def parse_dali(data: bytes, *, url: str | None = None) -> list[list[IndexedMember]]:
    """The samples in an index of DALI's; names of files are there since version 1.2.

    >>> parse_dali(b"v1.2 1\\ntxt 512 5 a.txt\\n")
    [[IndexedMember(field='txt', name='a.txt', data_offset=512, size=5)]]
    """
    first, *lines = data.decode("utf-8", "surrogateescape").splitlines() or [""]
    version, _, count = first.partition(" ")
    if version != DALI_VERSION:
        raise ShardError(f"this is no index of DALI's, version 1.2: it begins with {first[:20]!r}", url=url)
    try:
        samples = [_dali_members(line.split()) for line in lines]
        if len(samples) != int(count):
            raise ValueError(f"it has {len(samples)} of {int(count)} samples")
    except ValueError as error:
        raise ShardError(f"this index of DALI's is damaged: {error}", url=url) from None
    return samples


def check_dali_name(name: str) -> None:
    """Raise for a name that would be several words."""
    if len(name.split()) != 1:
        raise EncodingError("an index cannot hold a name with spaces", member=name)


def energon_bytes(index: ShardIndex) -> bytes:
    """An index as Energon reads it: where each sample begins and the last one ends, in 8 bytes each."""
    return index.starts.astype("<u8").tobytes()


def _dali_words(member: IndexedMember) -> str:
    check_dali_name(member.name)
    if member.data_offset < 0:
        raise EncodingError("an index cannot hold a sparse file", member=member.name)
    extension = member.name[member.name.rfind("/") + 1 :].partition(".")[2]
    return f"{extension} {member.data_offset} {member.size} {member.name}"


def _dali_members(words: list[str]) -> list[IndexedMember]:
    if len(words) % 4:
        raise ValueError(f"a line of {len(words)} words")
    return [
        IndexedMember(words[n].lower(), words[n + 3], int(words[n + 1]), int(words[n + 2]))
        for n in range(0, len(words), 4)
    ]
