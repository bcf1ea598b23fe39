"""Positions: after which item a pipeline is, as named values, fit for pickle and for JSON.

Every way of running a pipeline uses the same envelope; what is `where` in it is the runner's own. `as_json` writes a
position by the names of its fields. Version 1 of the states wrote lists, in the order of the fields: `named` reads
both.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from webdataset.errors import StateError

from .printing import printable

T = TypeVar("T")


class Position(NamedTuple):
    """After which item a pipeline is, or where it is to begin."""

    epoch: int = 0
    passes: int = 0
    """Passes that are complete in this round, of a pipeline that is repeated."""
    given: int = 0
    """Items that were given in this round."""
    round: int = 0
    where: Any = None
    """The place within the pass: `exact.positions.InEpoch`, or `resume.positions.InStream`."""


def named(kind: type[T], saved: Any) -> T:
    """A named tuple of what was saved by names, or by the order of the fields.

    >>> named(Position, [3, 0, 2]) == named(Position, {"epoch": 3, "given": 2})
    True
    """
    try:
        return kind(**saved) if isinstance(saved, dict) else kind(*saved)
    except TypeError:
        raise StateError(f"the state is damaged: {printable(repr(saved), 80)} is no {kind.__name__}") from None


def as_json(value: object) -> Any:
    """A position by the names of its fields.

    >>> as_json(Position(1, where=Position(2)))["where"]["epoch"]
    2
    """
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    return [as_json(inner) for inner in value] if isinstance(value, (list, tuple)) else value
