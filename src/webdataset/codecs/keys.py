"""Keys of dicts and sets that come out of data: none may take for ever to hash, or collide with all others.

Python seeds the hashes of texts and bytes, but not those of numbers and tuples: anybody can write down a hundred
thousand integers of the same hash, and a dict of them takes minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from webdataset.errors import DecodingError

SEEDED_HASHES = frozenset([str, bytes])
PLAIN_INT = 2**61 - 1
"""Smaller integers have a hash of their own; larger ones share theirs with as many others as one likes."""
MAX_COLLISIONS = 100
MAX_ITEMS = 10_000
MAX_DEPTH = 100
NESTED = (tuple, frozenset)


class KeyGuard:
    """Checks keys; those that come for one container in several calls (`target`) are counted together.

    Containers are told apart by their address, so they must live as long as the guard does.

    >>> KeyGuard().check([1, "a", (2, 3)])
    >>> KeyGuard().check([i * (2**61 - 1) for i in range(1, 1000)])
    Traceback (most recent call last):
    webdataset.errors.DecodingError: keys that were made to collide
    """

    __slots__ = ("charge", "collisions")

    def __init__(self, charge: Callable[[int], None] | None = None) -> None:
        self.collisions: dict[tuple[int, int], int] = {}
        self.charge = charge

    def check(self, keys: Iterable[Any], target: object = None) -> None:
        """Refuse keys that would make a dict or a set slow; without a target they are all there are."""
        counts = self.collisions if target is not None else {}
        for key in keys:
            kind = type(key)
            if kind in SEEDED_HASHES or (kind is int and -PLAIN_INT < key < PLAIN_INT):
                continue
            if kind in NESTED:
                self._check_nested(key)
            place = id(target), hash(key)
            counts[place] = times = counts.get(place, 0) + 1
            if times > MAX_COLLISIONS:
                raise DecodingError("keys that were made to collide")

    def _check_nested(self, key: Collection[Any]) -> None:
        """Hashing and comparing walk through keys without a memory, so shared parts count each time."""
        seen, pending = 0, [(key, 1)]
        while pending:
            items, depth = pending.pop()
            seen += len(items)
            if seen > MAX_ITEMS or depth > MAX_DEPTH:
                raise DecodingError("a key of nested tuples is too large")
            pending += [(item, depth + 1) for item in items if type(item) in NESTED]
        if self.charge is not None:
            self.charge(seen)
