"""How much memory a shard may ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from webdataset.base.settings import settings

MIB = 1 << 20


class Limits(NamedTuple):
    """Bounds on what a header may claim; a shard that asks for more is refused with a LimitError.

    >>> Limits(max_member_bytes=1000).max_chain
    16
    """

    max_member_bytes: int
    max_header_bytes: int = MIB
    max_name_bytes: int = 64 * 1024
    max_chain: int = 16
    max_sparse_pieces: int = 1 << 20
    """Pieces of data in a sparse file: a file of 8 GiB in which every other 4 KiB are a hole has this many."""
    large: Callable[..., Any] | None = None
    """Called with a member that is too large and the cursor; what it returns takes the data's place. None: an error."""

    @classmethod
    def default(cls) -> Limits:
        """The limits the environment asks for.

        >>> Limits.default().max_header_bytes
        1048576
        """
        return cls(max_member_bytes=settings.max_member_bytes)
