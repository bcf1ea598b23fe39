"""Positions of streamed passes: after which item one is, as named values, fit for pickle and for JSON.

`as_json` writes a position by the names of its fields. Version 1 of the states wrote lists, in the order of the fields:
`named` reads both.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from webdataset.base.printing import printable
from webdataset.base.workers import pytorch_worker_info
from webdataset.errors import StateError

ENDED = "ended"
"""The place of a worker that has no items left, while its loader may still take those of others."""

T = TypeVar("T")


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


class Position(NamedTuple):
    """After which item a pipeline is."""

    epoch: int
    passes: int
    """Passes that were complete, of a pipeline that is repeated."""
    given: int
    """Items that were given, of an epoch of fixed size."""
    base_seed: int
    """What the seeds of stages without one are made from."""
    kept: tuple[Any, ...]
    """What stages keep from pass to pass."""
    owner: Owner
    where: Any = None
    """The place within the pass; None at its beginning, ENDED behind its end."""
    inner: tuple[Any, ...] = ()
    """The beginnings of the next passes of the datasets within."""

    @classmethod
    def of(cls, saved: Any) -> Position:
        """A position as it was, from a state, or from another process."""
        position = named(cls, saved)
        return position._replace(owner=named(Owner, position.owner))


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


def named(kind: type[T], saved: Any) -> T:
    """A named tuple of what was saved by names, or by the order of the fields.

    >>> named(Ahead, [None, 2]) == named(Ahead, {"position": None, "given": 2})
    True
    """
    try:
        return kind(**saved) if isinstance(saved, dict) else kind(*saved)
    except TypeError:
        raise StateError(f"the state is damaged: {printable(repr(saved), 80)} is no {kind.__name__}") from None


def as_json(value: Any) -> Any:
    """A position by the names of its fields.

    >>> as_json(Ahead(InShard(1, 2), 0))
    {'position': {'shard': 1, 'samples': 2, 'known': 0, 'digest': 0}, 'given': 0}
    """
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    return [as_json(inner) for inner in value] if isinstance(value, (list, tuple)) else value
