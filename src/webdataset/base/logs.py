"""Log records and progress bars, without importing logging or tqdm before there is something to say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from .printing import harmless

if TYPE_CHECKING:
    from logging import LogRecord


class Log:
    """The logger of this name, as `logging.getLogger` gives it when the first record is written.

    Text that came out of data cannot give orders to a terminal that shows its records.

    >>> Log("webdataset.gopen").isEnabledFor(10)
    False
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        import logging

        logger = logging.getLogger(self.name)
        logger.addFilter(_made_harmless)  # once: it is the same one
        return getattr(logger, attribute)


def _made_harmless(record: LogRecord) -> bool:
    text = record.getMessage()
    if harmless(text) != text:
        record.msg, record.args = harmless(text), ()
    return True


def progress_bar(what: str, unit: str, total: int | None = None) -> Any:
    """A bar of the package tqdm, as it looks best in a terminal or a notebook; the unit "B" counts bytes."""
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        from webdataset.errors import MissingPackageError

        raise MissingPackageError("progress=True needs the package tqdm", hint="pip install tqdm") from error
    is_bytes = unit == "B"
    return tqdm(desc=what, unit=unit if is_bytes else f" {unit}", unit_scale=is_bytes, total=total)


class WatchedStream:
    """A stream whose reads move a bar of tqdm, which ends with it.

    >>> import io
    >>> stream = WatchedStream(io.BytesIO(b"hello"), "a.tar")
    >>> stream.read(), stream.close()
    (b'hello', None)
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._bar = progress_bar(name, "B", getattr(stream, "length", None))
        if hasattr(stream, "read1"):
            self.read1 = partial(self._moved, stream.read1)

    def read(self, size: int = -1, /) -> bytes:
        """Read as the stream does."""
        return self._moved(self._stream.read, size)

    def close(self) -> None:
        """Close the stream and the bar."""
        self._bar.close()
        self._stream.close()

    def abort(self) -> None:
        """Give the stream up, and close the bar."""
        self._bar.close()
        getattr(self._stream, "abort", self._stream.close)()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _moved(self, read: Callable[[int], bytes], size: int = -1) -> bytes:
        data = read(size)
        self._bar.update(len(data))
        return data
