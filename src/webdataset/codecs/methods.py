"""The methods of compression, one row each: how to recognise, read and write it.

All decompressors share the interface of `bz2.BZ2Decompressor`: `decompress(data, most)`, `needs_input`, `eof`,
`unused_data`; all compressors `compress(data)` and `flush()`. Each library is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from webdataset.base.packages import imported
from webdataset.errors import MissingPackageError

XZ_MEMORY = 512 << 20  # `xz -9` needs 65 MiB; the format allows 4 GiB


class StreamDecompressor(Protocol):
    """What expands one member or frame, piece by piece."""

    @property
    def needs_input(self) -> bool: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, most: int, /) -> bytes: ...


class StreamCompressor(Protocol):
    """What compresses one member or frame, piece by piece."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class Kind(NamedTuple):
    """One way of compressing."""

    title: str
    magics: tuple[bytes, ...]
    suffixes: tuple[str, ...]
    decompressor: Callable[[], StreamDecompressor]
    compressor: Callable[[int | None], StreamCompressor]


class ZlibDecompressor:
    """zlib with the interface that all other decompressors share."""

    def __init__(self) -> None:
        import zlib

        self._method = zlib.decompressobj(31)
        self._tail = b""
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._method.eof

    @property
    def unused_data(self) -> bytes:
        return self._method.unused_data

    def decompress(self, data: bytes, most: int) -> bytes:
        piece = self._method.decompress(self._tail + data if self._tail else data, most)
        self._tail = self._method.unconsumed_tail
        self.needs_input = not self._tail and len(piece) < most
        return piece


class ZstandardDecompressor:
    """The package zstandard with the interface that all other decompressors share."""

    STEP = 1 << 10  # its output has no limit: 1 KiB expands to 32 MiB at most

    def __init__(self, zstandard: ModuleType) -> None:
        self._method = zstandard.ZstdDecompressor().decompressobj()
        self._waiting = b""

    @property
    def eof(self) -> bool:
        return bool(self._method.eof)

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        return self._method.unused_data + self._waiting  # type: ignore[no-any-return]

    def decompress(self, data: bytes, most: int) -> bytes:
        waiting = memoryview(self._waiting + data)
        pieces, done, size = [], 0, 0
        while done < len(waiting) and size < most and not self._method.eof:
            pieces.append(self._method.decompress(waiting[done : done + self.STEP]))
            done += self.STEP
            size += len(pieces[-1])
        self._waiting = bytes(waiting[done:])
        return b"".join(pieces)


def _gzip_decompressor() -> StreamDecompressor:
    try:
        from isal import igzip_lib
    except ImportError:
        return ZlibDecompressor()
    method: StreamDecompressor = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    return method


def _gzip_compressor(level: int | None) -> StreamCompressor:
    import zlib

    if level is None:
        try:
            from isal import isal_zlib
        except ImportError:
            level = 6
        else:
            method: StreamCompressor = isal_zlib.compressobj(isal_zlib.Z_DEFAULT_COMPRESSION, isal_zlib.DEFLATED, 31)
            return method
    return zlib.compressobj(level, zlib.DEFLATED, 31)


def _bzip2_decompressor() -> StreamDecompressor:
    import bz2

    return bz2.BZ2Decompressor()


def _bzip2_compressor(level: int | None) -> StreamCompressor:
    import bz2

    return bz2.BZ2Compressor(9 if level is None else level)


def _xz_decompressor() -> StreamDecompressor:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)


def _xz_compressor(level: int | None) -> StreamCompressor:
    import lzma

    return lzma.LZMACompressor(preset=6 if level is None else level)


def _zstd() -> Any:
    """The module for zstd: the standard library's from Python 3.14 on, else the package with the same interface."""
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd


def _zstd_decompressor() -> StreamDecompressor:
    try:
        method: StreamDecompressor = _zstd().ZstdDecompressor()
    except ImportError:
        method = ZstandardDecompressor(_package("zstandard", "zstd"))
    return method


def _zstd_compressor(level: int | None) -> Any:
    level = 3 if level is None else level
    try:
        zstd = _zstd()
    except ImportError:
        return _package("zstandard", "zstd").ZstdCompressor(level=level, write_checksum=True).compressobj()
    names = zstd.CompressionParameter
    return zstd.ZstdCompressor(options={names.compression_level: level, names.checksum_flag: 1})


def _lz4_decompressor() -> StreamDecompressor:
    method: StreamDecompressor = _package("lz4.frame", "lz4").LZ4FrameDecompressor()
    return method


class _Lz4Compressor:
    """lz4 with the interface that all other compressors share: its header comes from a call of its own."""

    def __init__(self, level: int | None) -> None:
        lz4 = _package("lz4.frame", "lz4")
        self._method = lz4.LZ4FrameCompressor(compression_level=level or 0, content_checksum=True)
        self._header: bytes = self._method.begin()

    def compress(self, data: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + self._method.compress(data)  # type: ignore[no-any-return]

    def flush(self) -> bytes:
        return self._header + self._method.flush()  # type: ignore[no-any-return]


def _package(name: str, title: str) -> ModuleType:
    try:
        return imported(name)
    except ImportError as error:
        hint = "pip install 'webdataset[compression]'"
        raise MissingPackageError(f"{title} compression needs a package that is not installed", hint=hint) from error


def _suffixes(*names: str) -> tuple[str, ...]:
    return tuple(f".{name}" for name in names)


def _skippable() -> Iterator[bytes]:
    """The sixteen marks of a zstd frame that holds no data."""
    return (bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))


KINDS = {
    "gz": Kind("gzip", (b"\x1f\x8b\x08",), _suffixes("gz", "tgz"), _gzip_decompressor, _gzip_compressor),
    "bz2": Kind("bzip2", (b"BZh",), _suffixes("bz2", "tbz2", "tbz"), _bzip2_decompressor, _bzip2_compressor),
    "xz": Kind("xz", (b"\xfd7zXZ\0",), _suffixes("xz", "txz"), _xz_decompressor, _xz_compressor),
    "zst": Kind(
        "zstd", (b"\x28\xb5\x2f\xfd", *_skippable()), _suffixes("zst", "tzst"), _zstd_decompressor, _zstd_compressor
    ),
    "lz4": Kind("lz4", (b"\x04\x22\x4d\x18",), _suffixes("lz4", "tlz4"), _lz4_decompressor, _Lz4Compressor),
}
