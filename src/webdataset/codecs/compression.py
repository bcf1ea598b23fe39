"""Compressed streams: recognised by content when read, chosen by name when written.

>>> import gzip, io
>>> decompressed(io.BytesIO(gzip.compress(b"hello"))).read(100)
b'hello'
>>> decompressed(io.BytesIO(b"plain")).read(100)
b'plain'

What is read is bounded: a stream never holds more than one piece of its output in memory, and one that
expands more than a thousandfold is taken for a bomb.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from webdataset.base.settings import settings
from webdataset.errors import DecodingError, LimitError, ShardError

from .methods import KINDS, StreamCompressor

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

READ_BYTES = 256 << 10
WRITE_BYTES = 256 << 10  # the smallest piece that is decompressed at once
HEAD_BYTES = 512
IMAGE_COPIES = 3  # that are held at once, at most, while a deep image is read and converted
ZIP_METHODS = (0, 8)  # stored and deflated; zipfile expands the others as a whole, whatever size they claim
RATIO_FLOOR = 64 << 20  # small data may be mostly zeros; above this size a bomb is worth looking for


_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # a first block, or none at all


class ReadableStream(Protocol):
    """A binary stream to read."""

    def read(self, n: int = ..., /) -> bytes: ...


class Writable(Protocol):
    """A binary stream to write."""

    def write(self, data: bytes, /) -> object: ...


def decompressed(stream: ReadableStream, *, url: str | None = None, max_ratio: int | None = None) -> ReadableStream:
    """A stream with the plain content of `stream`; without compression it costs nothing to read through.

    The result has `read(n)`, which returns at most n bytes and b"" at the end, and `close()`. Damage, a cut and
    bytes that do not belong to the compressed data are a ShardError with the offset in the compressed stream.
    """
    head, consumed = _peek(stream)
    kind = kind_of_content(head)
    if kind is not None:
        return _Expanded(stream, head if consumed else b"", kind, url, max_ratio)
    return _Peeked(stream, head) if consumed else stream


def is_expanded(stream: object) -> bool:
    """Whether this is the content of a compressed stream, as `decompressed` returns it."""
    return isinstance(stream, _Expanded)


def kind_of_content(head: bytes) -> str | None:
    """The compression that data beginning with these bytes has: "gz", "bz2", "xz", "zst", "lz4" or None.

    >>> kind_of_content(b"BZh91AY&SY"), kind_of_content(b"BZh.txt" + bytes(505))
    ('bz2', None)
    """
    for name, kind in KINDS.items():
        if head.startswith(kind.magics) and not _is_tar_header(head):
            return None if name == "bz2" and head[4:10] not in _BZIP2_BLOCKS else name
    return None


def compression_of_name(name: str) -> str | None:
    """The compression that a file name asks for.

    >>> compression_of_name("a.tar.gz"), compression_of_name("a.tzst"), compression_of_name("a.tar")
    ('gz', 'zst', None)
    """
    lower = name.lower()
    return next((kind for kind, row in KINDS.items() if lower.endswith(row.suffixes)), None)


def compressor(fileobj: Writable, kind: str, level: int | None = None) -> Compressor:
    """A stream that compresses into `fileobj`, which stays open when it is closed.

    The same bytes written give the same bytes out: no time, no name. `level` is the method's own; without
    it gzip uses isal where installed: 8 to 10 times the speed of zlib's level 6 at almost the same size. What does
    not compress at all, such as JPEGs, is then read back at half the speed; give a level, or do not compress it.

    >>> out = io.BytesIO()
    >>> with compressor(out, "gz") as stream:
    ...     _ = stream.write(b"hello")
    >>> gunzip_bounded(out.getvalue())
    b'hello'
    """
    if kind not in KINDS:
        raise ValueError(f"compression must be one of {', '.join(KINDS)}, got {kind!r}")
    return Compressor(fileobj, KINDS[kind].compressor(level))


def gunzip_bounded(data: bytes, *, max_bytes: int | None = None, max_ratio: int | None = None) -> bytes:
    """The content of a gzipped field, refused if it would take too much memory.

    >>> import gzip
    >>> gunzip_bounded(gzip.compress(b"hello"))
    b'hello'
    """
    most = settings.max_decoded_bytes if max_bytes is None else max_bytes
    if kind_of_content(data[:HEAD_BYTES]) != "gz":
        raise DecodingError("the field ends in .gz but does not hold gzip data")
    stream = _Expanded(io.BytesIO(data), b"", "gz", None, max_ratio)
    pieces, total = [], 0
    try:
        while piece := stream.read(WRITE_BYTES):
            pieces.append(piece)
            total += len(piece)
            if total > most:
                hint = f"WDS_MAX_DECODED_BYTES={2 * most} would allow more"
                raise LimitError(f"the gzipped field expands to more than {most} bytes", hint=hint)
    except LimitError:
        raise
    except ShardError as error:
        raise DecodingError(error.message) from error
    return b"".join(pieces)


def zip_pieces(archive: ZipFile, member: ZipInfo) -> Iterator[bytes]:
    """The content of a file in a zip archive piece by piece, not more than the archive says that it has."""
    if member.compress_type not in ZIP_METHODS:
        raise DecodingError(
            "in zip archives, only stored and deflated files are read", hint="pack it again with deflate"
        )
    with archive.open(member) as file:
        yield from iter(lambda: file.read(WRITE_BYTES), b"")


def check_expansion(size: int, stored: int) -> None:
    """Refuse what says that it expands beyond the limits, from so many `stored` bytes."""
    check_decoded(size)
    check_ratio(size, stored)


def check_ratio(size: int, stored: int) -> None:
    """Refuse what expands too many times."""
    if size > RATIO_FLOOR and size > settings.max_ratio * stored:
        raise DecodingError(
            f"{stored} bytes would expand to {size}, more than {settings.max_ratio} times as many",
            hint=f"WDS_MAX_RATIO={size // max(stored, 1) + 1} would allow it",
        )


def check_pixels(shape: tuple[int, ...], itemsize: int) -> None:
    """Refuse an image whose values, with the copies that are made of them, take too much memory."""
    check_decoded(IMAGE_COPIES * math.prod(shape) * itemsize)


def check_decoded(size: int) -> None:
    """Refuse what would take more memory than one field may."""
    if size > settings.max_decoded_bytes:
        raise DecodingError(
            f"it would expand to {size} bytes, the limit is {settings.max_decoded_bytes}",
            hint="WDS_MAX_DECODED_BYTES raises it",
        )


class Budget:
    """The bytes that one field may expand to, spent while it is decoded."""

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, size: int) -> None:
        """Take so many more bytes, or refuse the field."""
        self._spent += size
        check_decoded(self._spent)


class Compressor:
    """A stream that compresses what is written to it."""

    def __init__(self, fileobj: Writable, method: StreamCompressor) -> None:
        self._fileobj = fileobj
        self._method = method
        self.closed = False

    def write(self, data: bytes) -> int:
        """Compress these bytes and write what comes out."""
        if self.closed:
            raise ValueError("write to a closed compressor")
        if out := self._method.compress(data):
            self._fileobj.write(out)
        return len(data)

    def close(self) -> None:
        """Complete the compressed data."""
        if not self.closed:
            self.closed = True
            self._fileobj.write(self._method.flush())

    def __enter__(self) -> Compressor:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()


class _Peeked:
    """A stream of which the first bytes were looked at."""

    def __init__(self, stream: Any, head: bytes) -> None:
        self._stream = stream
        self._head = head

    def read(self, n: int = -1) -> bytes:
        head = self._head
        if 0 <= n < len(head):
            self._head = head[n:]
            return head[:n]
        self._head = b""
        self.read = self._stream.read  # type: ignore[method-assign]  # from here on at no cost
        return head if n >= 0 and head else head + self._stream.read(n)

    def close(self) -> None:
        self._stream.close()


class _Expanded:
    """The plain content of a compressed stream, piece by piece, over any number of members or frames."""

    def __init__(self, stream: Any, head: bytes, kind: str, url: str | None, max_ratio: int | None) -> None:
        self._stream = stream
        self._kind = KINDS[kind]
        self._url = url
        self._max_ratio = settings.max_ratio if max_ratio is None else max_ratio
        self._decompressor = self._kind.decompressor()
        self._waiting = head
        self._piece = b""
        self._at = 0
        self._taken = len(head)
        self._given = 0

    def read(self, n: int = -1) -> bytes:
        """At most n bytes, b"" at the end."""
        if n < 0:
            return b"".join(iter(lambda: self.read(WRITE_BYTES), b""))
        if self._at < len(self._piece):
            return self._rest(n)
        piece = self._next(max(n, WRITE_BYTES))
        if len(piece) <= n:
            return piece
        self._piece, self._at = piece, 0
        return self._rest(n)

    def close(self) -> None:
        """Close the compressed stream too."""
        self._piece = self._waiting = b""
        self._stream.close()

    def _rest(self, n: int) -> bytes:
        begin, self._at = self._at, self._at + n
        piece = self._piece[begin : self._at]
        if self._at >= len(self._piece):
            self._piece, self._at = b"", 0
        return piece

    def _next(self, most: int) -> bytes:
        """The next piece of the content, b"" at the end."""
        while True:
            if self._decompressor.eof and not self._another_member():
                return b""
            data, self._waiting = self._waiting, b""
            if not data and self._decompressor.needs_input:
                data = self._more()
                if not data:
                    raise self._error(f"the {self._kind.title} data ends early")
            if piece := self._expand(data, most):
                return piece

    def _expand(self, data: bytes, most: int) -> bytes:
        try:
            piece = self._decompressor.decompress(data, most)
        except MemoryError:
            raise
        except Exception as error:  # each library has a type of its own
            raise self._error(f"the {self._kind.title} data is damaged: {error}") from error
        self._given += len(piece)
        if self._given > RATIO_FLOOR and self._given > self._max_ratio * self._taken:
            raise self._bomb()
        return piece

    def _another_member(self) -> bool:
        """Whether another member follows; zeros in between are padding."""
        rest = (self._decompressor.unused_data or b"").lstrip(b"\0")
        while len(rest) < 6 and (data := self._more()):
            rest = (rest + data).lstrip(b"\0")
        if not rest:
            return False
        if not rest.startswith(self._kind.magics):
            raise self._error(f"bytes after the end of the {self._kind.title} data do not belong to it")
        self._decompressor = self._kind.decompressor()
        self._waiting = rest
        return True

    def _more(self) -> bytes:
        data: bytes = self._stream.read(READ_BYTES)
        self._taken += len(data)
        return data

    def _error(self, message: str) -> ShardError:
        return ShardError(f"{message} (offset counts compressed bytes)", url=self._url, offset=self._taken)

    def _bomb(self) -> LimitError:
        message = f"{self._taken} bytes of {self._kind.title} data expand to more than {self._given} bytes"
        hint = f"a ratio above {self._max_ratio} looks like a bomb; WDS_MAX_RATIO={2 * self._max_ratio} would allow it"
        return LimitError(message, url=self._url, offset=self._taken, hint=hint)


def _peek(stream: ReadableStream) -> tuple[bytes, bool]:
    """The first bytes, and whether they were taken from the stream."""
    buffered = getattr(stream, "stream", stream)  # behind partial reads
    if isinstance(buffered, io.BufferedReader) and len(head := buffered.peek(HEAD_BYTES)) >= HEAD_BYTES:
        return head[:HEAD_BYTES], False
    pieces: list[bytes] = []
    while (missing := HEAD_BYTES - sum(map(len, pieces))) > 0 and (data := stream.read(missing)):
        pieces.append(data)
    return b"".join(pieces), True


def _is_tar_header(head: bytes) -> bool:
    """Whether this is a tar header, whatever its first bytes look like: a member may have any name."""
    if len(head) < HEAD_BYTES:
        return False
    try:
        claimed = int(head[148:156].strip(b" \0"), 8)
    except ValueError:
        return False
    return claimed == sum(head[:148]) + 8 * 32 + sum(head[156:HEAD_BYTES])
