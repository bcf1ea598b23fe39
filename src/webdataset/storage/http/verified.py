"""Streams whose bytes are compared with the MD5 that the server sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webdataset.errors import StorageError
from webdataset.storage.streams import QuietStream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class VerifiedStream(QuietStream):
    """The same bytes; a read that reaches the end raises unless the MD5 of all is the server's.

    Attributes such as length, version and number of retries are those of the stream.
    """

    def __init__(self, stream: Any, md5: bytes) -> None:
        super().__init__()
        self._stream = stream
        self._md5 = md5
        self._hasher = hashlib.md5(usedforsecurity=False)
        self._left = -1 if stream.length is None else stream.length

    def __getattr__(self, name: str) -> Any:
        if name == "_stream":  # not there yet, or never: a constructor failed
            raise AttributeError(name)
        return getattr(self._stream, name)

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        is_all = size is None or size < 0
        return self._checked(self._stream.read(size), size, ends=is_all)

    def read1(self, size: int = -1, /) -> bytes:
        return self._checked(self._stream.read1(size), size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return self._counted(buffer, self._stream.readinto)

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        return self._counted(buffer, self._stream.readinto1)

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._stream.close()

    def _counted(self, buffer: WriteableBuffer, readinto: Callable[[memoryview], int]) -> int:
        view = memoryview(buffer).cast("B")
        count = int(readinto(view))
        self._update(view[:count], ends=not count and len(view) > 0)
        return count

    def _checked(self, data: bytes, size: int | None, *, ends: bool = False) -> bytes:
        self._update(data, ends=ends or (not data and size != 0))
        return data

    def _update(self, data: bytes | memoryview, *, ends: bool) -> None:
        self._hasher.update(data)
        self._left -= len(data)
        if (ends or self._left == 0) and self._hasher.digest() != self._md5:
            raise StorageError("the checksum of what came is not the server's", url=self._stream.url)
