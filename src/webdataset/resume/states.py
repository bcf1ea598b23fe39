"""The state of a streamed dataset, and of a loader that reads one with threads: the position after its last item."""

from __future__ import annotations

from typing import Any

from webdataset.base.positions import Position, as_json, named
from webdataset.base.states import VERSION, check_fits

from .positions import Threaded, restored


def stream_state(described: dict[str, Any], position: Position) -> dict[str, Any]:
    """The state of a streamed dataset at a position."""
    topology = position.where.owner._asdict()
    state = {"version": VERSION, "kind": "stream", "epoch": position.epoch, "of": described, "topology": topology}
    return {**state, "mark": as_json(position)}


def stream_position(described: dict[str, Any], state: dict[str, Any]) -> Position:
    """The position from which to go on; a StateError if the state is another dataset's."""
    check_fits(state, "stream", described)
    return restored(state.get("mark"))


def threads_state(described: dict[str, Any], position: Threaded) -> dict[str, Any]:
    """The state of a loader that reads a streamed dataset with threads."""
    topology = position.following.where.owner._replace(worker=0, workers=1)._asdict()
    state = {"version": VERSION, "kind": "threads", "of": described, "topology": topology}
    return {**state, "mark": as_json(position)}


def threads_position(described: dict[str, Any], state: dict[str, Any]) -> Threaded:
    """The position from which such a loader goes on; a StateError if the state is another one's."""
    check_fits(state, "threads", described)
    return named(Threaded, state.get("mark"))
