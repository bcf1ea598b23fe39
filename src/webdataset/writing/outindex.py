"""The indices of a shard that is being written: noted on the way, written when the shard has its name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable

from webdataset.base.reports import Report
from webdataset.errors import SampleError, ShardWarning
from webdataset.gopen import gopen
from webdataset.indices.files import ENDING, built, file_version, remote_state
from webdataset.storage.options import StorageOptions
from webdataset.storage.publish import AtomicFile
from webdataset.tar.foreign import check_dali_name, dali_path, dali_text, energon_bytes, energon_path
from webdataset.tar.header import decoded, padding
from webdataset.tar.index import IndexedMember, ShardIndex
from webdataset.tar.plain import MemberPlace

FORMATS = ("wdx", "dali", "energon")
END_BYTES = 1024


class WrittenIndex:
    """Indices in the formats asked for: `True` is "wdx" and "dali"."""

    def __init__(self, formats: bool | str | Iterable[str]) -> None:
        wanted = ("wdx", "dali") if formats is True else (formats,) if isinstance(formats, str) else (*(formats or ()),)
        if unknown := set(wanted) - set(FORMATS):
            raise ValueError(f"index must be True or of {', '.join(FORMATS)}, got {', '.join(sorted(unknown))}")
        self.formats = wanted
        self._places: list[tuple[str, int, MemberPlace]] = []
        self._samples: list[list[IndexedMember]] = []
        self._end = 0

    def check(self, names: Iterable[bytes]) -> None:
        """Raise for a sample that one of the formats cannot hold."""
        if "dali" in self.formats:
            for name in names:
                check_dali_name(os.fsdecode(name))

    def add(self, members: Iterable[tuple[bytes, int, int]]) -> None:
        """Note a sample: name, place and size of each member's data."""
        sample = []
        for name, data_offset, size in members:
            text, end = decoded(name), data_offset + size + padding(size)
            self._places.append((text, self._end, MemberPlace(text, self._end, data_offset, size, end)))
            sample.append(IndexedMember("", text, data_offset, size))
            self._end = end
        self._samples.append(sample)

    def clear(self, shard: str, remove: Callable[[str], None]) -> None:
        """Remove indices of the shard that was there before: they must never stand beside the new one."""
        for format in self.formats:
            remove(_path(shard, format))

    def write(self, path: str, *, durable: bool) -> None:
        """Write the indices of the shard that is at this path now."""
        for format in self.formats:
            if format == "dali":
                _write(_path(path, format), dali_text(self._samples), durable)
            elif (index := self._index(path)) is not None:
                data = index.to_bytes() if format == "wdx" else energon_bytes(index)
                _write(_path(path, format), data, durable)

    def upload(self, url: str, options: StorageOptions) -> None:
        """Write the indices of the object that is at this url now beside it."""
        for format in self.formats:
            data = dali_text(self._samples) if format == "dali" else b""
            if format != "dali" and (index := self._index(url, remote_state(url, options))) is not None:
                data = index.to_bytes() if format == "wdx" else energon_bytes(index)
            if data:
                with gopen(_path(url, format), "wb", storage_options=options) as stream:
                    stream.write(data)

    def _index(self, path: str, state: tuple[int | None, str | None] | None = None) -> ShardIndex | None:
        try:
            builder = built([self._places], path, Report(strict=False))
        except SampleError as error:
            warnings.warn(f"no index was written: {error}", ShardWarning, stacklevel=2)
            return None
        size, version = (os.path.getsize(path), file_version(path)) if state is None else state
        return builder.index(size=self._end + END_BYTES if size is None else size, version=version)


def index_names(shard: str) -> list[str]:
    """Where the indices of a shard are, if it has any.

    >>> index_names("data/a.tar")
    ['data/a.tar.wdx', 'data/a.idx', 'data/a.tar.idx']
    """
    return [_path(shard, format) for format in FORMATS]


def _path(shard: str, format: str) -> str:
    return {"wdx": shard + ENDING, "dali": dali_path(shard), "energon": energon_path(shard)}[format]


def _write(path: str, data: bytes, durable: bool) -> None:
    file = AtomicFile(path, durable=durable)
    file.write(data)
    file.publish()
