"""What is complete at the end of its `with` block, and given up if that ends in an exception.

>>> class Note(Transaction):
...     def close(self): print("kept")
...     def abort(self): print("given up")
>>> with Note():
...     print("written")
written
kept
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Transaction(ABC):
    """A base for writers: `close` completes what they write, `abort` leaves nothing of it."""

    @abstractmethod
    def close(self) -> None:
        """Complete it."""

    @abstractmethod
    def abort(self) -> None:
        """Give it up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
