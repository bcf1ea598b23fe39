"""Streams read as their bytes arrive, instead of waiting until a large read is full."""

from __future__ import annotations

from typing import Any


class Arriving:
    """A stream whose `read(n)` gives what is there, at most n bytes; it waits only while nothing is."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.read = stream.read1  # the method itself: no cost per read
        self.close = stream.close
        if hasattr(stream, "peek"):
            self.peek = stream.peek


def arriving(stream: Any) -> Any:
    """The same stream, read as its bytes arrive where it can do that.

    A reader of large windows then gets the first samples of a slow source at once.

    >>> from .commands import CommandStream
    >>> with CommandStream("echo hello; sleep 1000") as stream:
    ...     arriving(stream).read(1 << 20)
    b'hello\\n'
    """
    return Arriving(stream) if hasattr(stream, "read1") else stream
