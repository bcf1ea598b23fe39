"""Where an archive goes: a file that appears when complete, a stream or a command; and how it ends."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from webdataset.base.redact import redacted
from webdataset.codecs.compression import Compressor, compression_of_name, compressor
from webdataset.errors import SampleError, ShardWarning, StorageError
from webdataset.gopen import gopen
from webdataset.indices.files import INDEXED_STORES
from webdataset.storage.options import StorageOptions
from webdataset.storage.publish import AtomicFile, as_storage_error, is_special
from webdataset.storage.removing import remove, remove_file
from webdataset.storage.urls import (
    FAMILIES,
    as_url,
    is_replaced,
    local_path,
    opened_scheme,
    rewritten_url,
    scheme_of,
)
from webdataset.tar.writer import ArchiveWriter, MemberHeaders, Members

from .outindex import WrittenIndex
from .outkeys import key_after, key_after_packed

_COMPRESSIONS = {True: "gz", "gz": "gz", "bz2": "bz2", "xz": "xz", "zst": "zst", "lz4": "lz4"}


class Output:
    """Where an archive goes: buffer, compression, file; and how it ends."""

    def __init__(
        self,
        fileobj: object,
        headers: MemberHeaders,
        *,
        compress: bool | str | None,
        level: int | None,
        durable: bool,
        index: bool | str | Iterable[str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = StorageOptions.of(storage_options)
        self.url = as_url(fileobj) if isinstance(fileobj, (str, os.PathLike)) else None
        self._address = None if self.url is None else rewritten_url(self.url)
        self.path = ""
        self.pid = os.getpid()
        self.samples = 0
        self._key = b""
        self.names: Iterator[tuple[int, str]] | None = None
        self.number = -1
        self.compressor: Compressor | None = None
        self.index = WrittenIndex(index) if index else None
        kind = _compression(compress, self._address)
        if self.index is not None and (kind or not can_be_indexed(self._address)):
            raise ValueError("index=True needs an uncompressed shard, as a local file or in a store")
        self.stream, self.owned = self._open(fileobj, durable)
        try:
            self.archive = self._archive(headers, kind, level)
        except BaseException:
            self.abort()
            raise

    def add(self, members: Members) -> int:
        """Append the members of one sample."""
        try:
            key = key_after(self._key, members[0][0]) if members else self._key
            size = self.archive.add_all(members) if self.index is None else self._add_indexed(members, self.index)
        except (OSError, SampleError) as error:
            self._raise_placed(error)
            raise
        self._key = key
        self.samples += 1
        return size

    def add_packed(self, packed: bytes, sizes: Sequence[tuple[int, int]]) -> None:
        """Append samples as the bytes that they are in an archive; `sizes` says first how many each has."""
        try:
            key = key_after_packed(self._key, packed, sizes)
            self.archive.add_packed(packed)
        except (OSError, SampleError) as error:
            self._raise_placed(error)
            raise
        self._key = key
        self.samples += len(sizes)

    def _add_indexed(self, members: Members, index: WrittenIndex) -> int:
        index.check(name for name, _ in members)
        places = [(name, self.archive.add(name, data), len(data)) for name, data in members]
        index.add(places)
        return sum(size for _, _, size in places)

    def finish(self) -> None:
        """Complete the archive and give it its name."""
        try:
            self.complete()
            if isinstance(self.stream, AtomicFile):
                self._publish(self.stream)
            elif self.owned:
                self._upload()
            elif hasattr(self.stream, "flush"):
                self.stream.flush()
        except OSError as error:
            self._raise_translated(error)
            raise

    def complete(self) -> None:
        """Write the end of the archive."""
        self.archive.finish()
        if self.compressor is not None:
            self.compressor.close()

    def abort(self) -> None:
        """Leave nothing; a stream that is not ours gets no end marker."""
        if isinstance(self.stream, AtomicFile):
            self.stream.abort()
        elif self.owned:
            getattr(self.stream, "abort", self.stream.close)()

    def _upload(self) -> None:
        """Complete an object of a store, and write its indices beside it."""
        if self.index is not None and self.url is not None:
            self.index.clear(self.url, partial(remove, storage_options=self._options))
        self.stream.close()
        if self.index is not None and self.url is not None:
            self.index.upload(self.url, self._options)

    def _publish(self, file: AtomicFile) -> None:
        if self.names is not None:
            self.number, self.path = file.publish_as_first_free(self.names)
        else:
            if self.index is not None:
                self.index.clear(self.path, remove_file)
            file.publish()
        if self.index is not None:
            self.index.write(self.path, durable=file.durable)

    def _raise_placed(self, error: OSError | SampleError) -> None:
        """Raise an error that says where it is."""
        if isinstance(error, SampleError):
            raise error.at(url=self.url) from error.__cause__
        self._raise_translated(error)

    def _raise_translated(self, error: OSError) -> None:
        """Make an error of a stream that we opened one of ours."""
        if self.url is not None and not isinstance(error, StorageError):
            raise as_storage_error(error, self.url) from error

    def _open(self, fileobj: object, durable: bool) -> tuple[Any, bool]:
        if self._address is not None:
            path = local_target(self._address)
            if path is None:
                return gopen(fileobj, "wb", storage_options=self._options), self._address != "-"
            file = AtomicFile(path, durable=durable)
            self.path = file.path
            return file, True
        if isinstance(fileobj, io.TextIOBase) or not hasattr(fileobj, "write"):
            raise TypeError(f"TarWriter needs a path, a url or a binary stream opened with 'wb', got {fileobj!r}")
        return fileobj, False

    def _archive(self, headers: MemberHeaders, kind: str | None, level: int | None) -> ArchiveWriter:
        if kind:
            self.compressor = compressor(self.stream, kind, level)
            return ArchiveWriter(self.compressor.write, headers=headers)
        if isinstance(self.stream, AtomicFile):
            writev = self.stream.writev if hasattr(os, "writev") else None
            return ArchiveWriter(self.stream.write, writev=writev, headers=headers)
        return ArchiveWriter(partial(_write_all, self.stream), headers=headers)


def abandoned(output: Output) -> None:
    """A writer went away without close(): keep its samples, but not under the name of a complete shard."""
    if output.pid != os.getpid():  # a forked process has only a copy
        return
    if output.samples == 0 or not isinstance(output.stream, AtomicFile) or output.stream.failed:
        output.abort()
        place = "are lost"
    else:
        output.complete()
        output.stream.close()
        place = f"are in {output.stream.temporary}"
    if output.samples:
        text = (
            f"the writer of {redacted(output.url or 'a stream')} was never closed: its {output.samples} samples {place}"
        )
        warnings.warn(f"{text}; use `with` or close()", ShardWarning, stacklevel=2)


def _compression(compress: bool | str | None, url: str | None) -> str | None:
    if compress is None:
        kind = compression_of_name(url or "")
        # a command that ends in `zstd > a.tar.zst` compresses itself; gz, bz2 and xz have always been added
        return None if kind in ("zst", "lz4") and url is not None and scheme_of(url) == "pipe" else kind
    if compress is False:
        return None
    if compress not in _COMPRESSIONS:
        raise ValueError(f"compress must be None, True, False, gz, bz2, xz, zst or lz4, got {compress!r}")
    return _COMPRESSIONS[compress]


def can_be_indexed(address: str | None) -> bool:
    """Whether an index can be written beside what is written there; a function of the program's own may do anything."""
    if address is None:
        return False
    in_store = FAMILIES.get(opened_scheme(address)) in INDEXED_STORES and not is_replaced(address)
    return in_store or local_target(address) is not None


def local_target(url: str) -> str | None:
    """The path to write through a temporary name, or None for urls, commands, devices and pipes."""
    path = None if url == "-" else local_path(url)
    return None if path is None or is_special(path) else path


def _write_all(stream: Any, data: bytes) -> None:
    """Raw streams may take less than they are given."""
    done = stream.write(data)
    while isinstance(done, int) and done < len(data):
        data = data[done:]
        done = stream.write(data)
