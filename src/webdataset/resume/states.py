"""The state of a streamed dataset, and of a loader that reads one with threads: the mark of its last item."""

from __future__ import annotations

from typing import Any

from webdataset.base.states import VERSION, check_fits, plain


def stream_state(pipeline: Any, mark: Any) -> dict[str, Any]:
    """The state of a streamed dataset after the item that a mark was given with."""
    rank, world, worker, workers = mark[5]
    return {
        "version": VERSION,
        "kind": "stream",
        "epoch": mark[0],
        "of": pipeline.described(),
        "topology": {"rank": rank, "world": world, "worker": worker, "workers": workers},
        "mark": plain(mark),
    }


def stream_mark(pipeline: Any, state: dict[str, Any]) -> Any:
    """The mark from which to go on; a StateError if the state is another dataset's."""
    check_fits(state, "stream", pipeline.described())
    return state["mark"]


def threads_state(described: dict[str, Any], mark: Any) -> dict[str, Any]:
    """The state of a loader that reads a streamed dataset with threads."""
    following, under_way = mark
    rank, world, _, _ = following[5]
    topology = {"rank": rank, "world": world, "worker": 0, "workers": 1}
    mark = [plain(following), plain(under_way)]
    return {"version": VERSION, "kind": "threads", "of": described, "topology": topology, "mark": mark}


def threads_mark(described: dict[str, Any], state: dict[str, Any]) -> Any:
    """The mark from which such a loader goes on; a StateError if the state is another one's."""
    check_fits(state, "threads", described)
    return state["mark"]
