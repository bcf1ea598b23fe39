"""Positions of streamed passes: what is `where` in the envelope, for each kind of source and stage."""

from __future__ import annotations

from typing import Any, NamedTuple

from webdataset.base.positions import Position, named
from webdataset.base.workers import pytorch_worker_info

ENDED = "ended"
"""The place of a worker that has no items left, while its loader may still take those of others."""


class Owner(NamedTuple):
    """The worker whose position it is."""

    rank: int
    world: int
    worker: int
    workers: int

    def __str__(self) -> str:
        return f"worker {self.worker} of {self.workers} on rank {self.rank} of {self.world}"

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(*pytorch_worker_info())


class InStream(NamedTuple):
    """A place in a streamed pass, which belongs to one worker."""

    base_seed: int
    """What the seeds of stages without one are made from."""
    kept: tuple[Any, ...]
    """What stages keep from pass to pass."""
    owner: Owner
    at: Any = None
    """The place of the source and the stages; None at the beginning, ENDED behind the end."""
    inner: tuple[Any, ...] = ()
    """The beginnings of the next passes of the datasets within."""


def restored(saved: object) -> Position:
    """A position as it was, from a state or from another process.

    States had no envelope at first: all fields side by side, `where` for `at`, by name or in this order.
    """
    if isinstance(saved, dict) and "base_seed" in saved:
        saved = named(_Flat, saved)
    elif isinstance(saved, (list, tuple)) and len(saved) > len(Position._fields):
        saved = _Flat(*saved) if len(saved) <= len(_Flat._fields) else saved
    if isinstance(saved, _Flat):
        saved = Position(saved.epoch, saved.passes, saved.given, where=InStream(*saved[3:]))
    position = named(Position, saved)
    where = named(InStream, position.where)
    return position._replace(where=where._replace(owner=named(Owner, where.owner)))


class _Flat(NamedTuple):
    """A position as states had it before there was an envelope."""

    epoch: int
    passes: int
    given: int
    base_seed: int
    kept: tuple[Any, ...]
    owner: Any
    where: Any = None
    inner: tuple[Any, ...] = ()


class Within(NamedTuple):
    """A place within a pass: where its source is, and what the segments behind that have counted."""

    source: Any
    tail: tuple[int, ...]


class InShard(NamedTuple):
    """A place in the shards: samples of one that were read."""

    shard: int = 0
    samples: int = 0
    known: int = 0
    """Shards whose urls are known, ..."""
    digest: int = 0
    """... and the checksum of these."""


class History(NamedTuple):
    """The shards that were read, and how many samples each had."""

    known: int
    digest: int
    packed: str


class InShuffle(NamedTuple):
    """A place behind a shuffle."""

    out: int
    """Samples that came out, ..."""
    pulled: int
    """... and those that went in."""
    number: int
    """Of the seed that the pass gave, or of the epoch that a detshuffle counts."""
    history: Any
    """What else must be known to read what the buffer held."""


class InMixture(NamedTuple):
    """A place in a mixture: the turns that were taken, the datasets that have ended, and where each is."""

    turns: int
    ended: tuple[int, ...]
    positions: tuple[Any, ...]


class Ahead(NamedTuple):
    """A place behind stages that threads run: where what they read from was, and the items of its next sample."""

    position: Any
    given: int


class Threaded(NamedTuple):
    """Where a loader with threads is: the beginning of the dataset's next pass, and the place in the current one."""

    following: Any
    current: Any
