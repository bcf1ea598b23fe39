"""Sparse files: the map of their pieces, in all four encodings, put back together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import SEEK_END, BytesIO
from itertools import pairwise

from webdataset.errors import LimitError

from .header import BLOCK, Header, number
from .pax import Extended

Piece = tuple[int, int]
"""Offset in the real file, and length."""
NextBlock = Callable[[], bytes]
"""Returns the next block of a map."""

PIECE_BYTES = 128
"""More than a piece takes in any encoding of a map."""

_OLD_GNU_HEADER = range(386, 386 + 4 * 24, 24)
_OLD_GNU_MORE = range(0, 21 * 24, 24)
_REAL_SIZE = slice(483, 495)


def old_gnu_map(header: Header, next_block: NextBlock, most: int) -> tuple[list[Piece], int]:
    """The pieces, at most `most`, and the real size in a header of type 'S' and the blocks after it."""
    pieces = list(_old_gnu_pieces(header.block, _OLD_GNU_HEADER))
    more = header.block[482]
    room = len(_OLD_GNU_HEADER)
    while more:
        room += len(_OLD_GNU_MORE)
        check_pieces(room, most)
        block = next_block()
        pieces.extend(_old_gnu_pieces(block, _OLD_GNU_MORE))
        more = block[504]
    return pieces, number(header.block[_REAL_SIZE])


def extended_map(extended: Extended, most: int) -> list[Piece]:
    """The pieces that PAX records state (versions 0.0 and 0.1)."""
    numbers = extended.sparse_map
    check_pieces(len(numbers) // 2, most)
    if len(numbers) % 2:
        raise ValueError("the sparse map ends with an offset without a length")
    if extended.sparse_blocks is not None and extended.sparse_blocks != len(numbers) // 2:
        raise ValueError(f"the sparse map has {len(numbers) // 2} pieces, not {extended.sparse_blocks}")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def leading_map(next_block: NextBlock, most: int) -> list[Piece]:
    """The pieces that stand as decimal lines before the data (version 1.0), padded to whole blocks."""
    numbers = _decimal_lines(next_block)
    wanted = next(numbers)
    check_pieces(wanted, most)
    pieces: list[Piece] = []
    while len(pieces) < wanted:
        pieces.append((next(numbers), next(numbers)))
    return pieces


def check_pieces(pieces: int, most: int) -> None:
    """Raise LimitError for a map that would have more pieces than are allowed."""
    if pieces > most:
        hint = "the archive is probably damaged or hostile; to read it, raise max_sparse_pieces="
        raise LimitError(f"a sparse file of more than {most} pieces", hint=hint)


def check_map(pieces: list[Piece], real_size: int, stored: int) -> None:
    """Raise ValueError unless the pieces are in order, end where the file ends and make up the stored bytes.

    Readers disagree about maps that break these rules, and no writer is known to make them.
    """
    for (offset, length), (following, _) in pairwise(pieces):
        if offset + length > following:
            raise ValueError("the sparse map's pieces overlap or are out of order")
    data = [length for _, length in pieces if length]
    if any(length % BLOCK for length in data[:-1]):
        raise ValueError("a piece of the sparse map ends inside a block")
    if sum(data) + BLOCK <= stored or sum(data) > stored:
        raise ValueError(f"the sparse map has {sum(data)} bytes of data, the member {stored}")
    end = sum(pieces[-1]) if pieces else 0
    if end != real_size:
        raise ValueError(f"the sparse map ends at byte {end} of a file of {real_size} bytes")


def expand(pieces: Iterable[Piece], real_size: int, data: bytes) -> bytes:
    """The real file: the pieces of data at their places, zeros between them.

    >>> expand([(2, 3), (7, 0)], 7, b"abc")
    b'\\x00\\x00abc\\x00\\x00'
    """
    # BytesIO fills gaps with zeros and hands out its buffer without a copy.
    file = BytesIO()
    taken = 0
    for offset, length in pieces:
        file.seek(offset)
        file.write(data[taken : taken + length])
        taken += length
    if file.seek(0, SEEK_END) < real_size:
        file.seek(real_size - 1)
        file.write(b"\0")
    return file.getvalue()


def _old_gnu_pieces(block: bytes, places: range) -> Iterator[Piece]:
    for place in places:
        # An empty length field ends the map.
        if not block[place + 12]:
            return
        offset, length = number(block[place : place + 12]), number(block[place + 12 : place + 24])
        if offset < 0 or length < 0:
            raise ValueError("the sparse map holds a negative number")
        yield offset, length


def _decimal_lines(next_block: NextBlock) -> Iterator[int]:
    rest = b""
    while True:
        *lines, rest = (rest + next_block()).split(b"\n")
        for line in lines:
            if not line.isdigit() or len(line) > 20:
                raise ValueError(f"the sparse map holds {line[:40]!r} instead of a number")
            yield int(line)
        if len(rest) > BLOCK:
            raise ValueError("the sparse map is no list of numbers")
