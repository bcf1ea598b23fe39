"""States: where a run is, as a few numbers that can be saved as JSON, checked, and taken up elsewhere.

A state says what it is a state of: the data, the order, the stages. One that does not fit is refused, with the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import StateError

if TYPE_CHECKING:
    from .exact import Place, Program
    from .rounds import Limits

__all__ = [
    "StateError",
    "check_fits",
    "exact_place",
    "exact_state",
    "loader_places",
    "loader_state",
    "merge_states",
    "stream_mark",
    "stream_state",
    "threads_mark",
    "threads_state",
]

VERSION = 1


def exact_state(program: Program, place: Place, limits: Limits, *, worker: int = 0, workers: int = 1) -> dict[str, Any]:
    """The state of an exact dataset that has given everything before a place."""
    from .rounds import saved_round

    rank, world = program.sources[0].shards.rank_and_world()
    return {
        "version": VERSION,
        "kind": "exact",
        "epoch": place.epoch,
        "position": program.position(place),
        "skip": place.skip,
        "even": place.even,
        "of": program.described(),
        "cut": list(program.cut),
        "topology": {"rank": rank, "world": world, "worker": worker, "workers": workers},
        "start": place.start,
        "step": place.step,
        "base": place.base,
        "round": saved_round(program, place, limits),
    }


def exact_place(program: Program, state: dict[str, Any], limits: Limits, *, workers: int = 1) -> Place:
    """The place at which to go on; a StateError if the state is another dataset's."""
    from .rounds import taken_up

    check_fits(state, "exact", program.described())
    try:
        return taken_up(program, _place(program, state, workers), state.get("round"), limits)
    except (KeyError, TypeError, IndexError, AttributeError) as exn:
        raise StateError(f"the state is damaged: {type(exn).__name__} at {exn}") from None


def _place(program: Program, state: dict[str, Any], workers: int) -> Place:
    from .exact import Place

    world = program.sources[0].shards.rank_and_world()[1]
    saved = state["topology"]
    same = saved["world"] == world and saved["workers"] == workers and state["cut"] == list(program.cut)
    if saved["workers"] > 1 and not same:
        raise StateError(
            f"the state is that of one of {saved['workers']} workers of {saved['world']} ranks, and this is "
            f"one of {workers} workers of {world} ranks",
            hint="save the state of the loader as a whole, WebLoader.state_dict(): it fits any number of workers",
        )
    if same:
        # a worker among others goes on with its own steps, a loader deals them out anew
        base = state["base"] if workers > 1 else state["step"]
        place = Place(state["epoch"], state["start"], state["step"], state["skip"], state["even"], base)
        if min(place) < 0 or (workers == 1 and program.position(place) != state["position"]):
            raise StateError(f"the state is damaged: step {state['step']} is not at position {state['position']}")
        return place
    if program.bucketing is not None:
        # the batches of all ranks together are the same as long as they are as large
        if saved["world"] * state["cut"][0] != world * program.cut.size or program.bucketing.max_tokens is not None:
            raise StateError(
                f"batches by length of {saved['world']} ranks cannot be taken up by {world}",
                hint="go on with as many ranks, or with batches that are as large over all ranks (and no max_tokens)",
            )
        return Place(state["epoch"], state["start"], state["step"], base=state["step"])
    if state["skip"] and not state["even"]:
        raise StateError(
            f"the state was saved in the middle of a step of {saved['world']} ranks with batches of "
            f"{state['cut'][0]}; it cannot be taken up by {world} ranks with batches of {program.cut.size}",
            hint="save it when the samples of a batch have all been given",
        )
    return Place(state["epoch"], state["position"])


def stream_state(pipeline: Any, mark: Any) -> dict[str, Any]:
    """The state of a streamed dataset after the item that a mark was given with."""
    rank, world, worker, workers = mark[5]
    return {
        "version": VERSION,
        "kind": "stream",
        "epoch": mark[0],
        "of": pipeline.described(),
        "topology": {"rank": rank, "world": world, "worker": worker, "workers": workers},
        "mark": _plain(mark),
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
    mark = [_plain(following), _plain(under_way)]
    return {"version": VERSION, "kind": "threads", "of": described, "topology": topology, "mark": mark}


def threads_mark(described: dict[str, Any], state: dict[str, Any]) -> Any:
    """The mark from which such a loader goes on; a StateError if the state is another one's."""
    check_fits(state, "threads", described)
    return state["mark"]


def loader_state(states: Sequence[dict[str, Any]], next_worker: int = 0) -> dict[str, Any]:
    """The state of a loader of a streamed dataset: that of each worker, and whose turn it is.

    >>> loader_state([], 0)
    {'version': 1, 'kind': 'loader', 'workers': [], 'next': 0, 'of': {}}
    """
    described = states[0]["of"] if states else {}
    workers = [{name: value for name, value in state.items() if name != "of"} for state in states]
    return {"version": VERSION, "kind": "loader", "workers": workers, "next": next_worker, "of": described}


def loader_places(pipeline: Any, state: dict[str, Any], workers: int) -> tuple[list[dict[str, Any]], int]:
    """The states for the workers of a loader, in their order, and whose turn it is; the loader must have as many."""
    check_fits(state, "loader", pipeline.described())
    if len(state["workers"]) != max(workers, 1):
        raise StateError(
            f"the state is that of a loader with {len(state['workers'])} workers, and this one has {workers}",
            hint="a streamed dataset goes on with as many workers as before; exact=True with any number",
        )
    return [{**worker, "of": state["of"]} for worker in state["workers"]], state["next"]


def check_fits(state: Any, kind: str, described: Any) -> None:
    """Raise unless the state is of this kind, of a version we know, and of the same data and stages."""
    if not isinstance(state, dict) or not {"kind", "of"} <= {*state}:
        raise StateError(f"this is no state of a dataset: {str(state)[:80]!r}")
    if state.get("version") != VERSION:
        raise StateError(f"the state has version {state.get('version')!r}; this program knows version {VERSION}")
    if state["kind"] != kind:
        kinds = {
            "exact": "an exact dataset",
            "stream": "a streamed dataset",
            "loader": "a loader with worker processes",
            "threads": "a loader with threads",
        }
        raise StateError(f"the state is that of {kinds.get(state['kind'], state['kind'])}, not of {kinds[kind]}")
    if differences := list(_differences("", _plain(state["of"]), _plain(described))):
        raise StateError(
            "the state does not fit: " + "; ".join(differences[:5]),
            hint="go on with the data, the seed and the pipeline with which it was saved, or start anew without it",
        )


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The states of all ranks as one, which any number of ranks can load.

    >>> merge_states([])
    Traceback (most recent call last):
    webdataset.errors.StateError: there are no states to merge
    """
    states = list(states)
    if not states:
        raise StateError("there are no states to merge")
    first = states[0]
    if any(state.get("kind") in ("stream", "loader", "threads") for state in states):
        raise StateError("states of streamed datasets are not merged: every rank goes on with its own")
    if not all("topology" in state for state in states):
        raise StateError(f"these are no states of datasets: {str(states)[:80]!r}")
    ranks = sorted(state["topology"]["rank"] for state in states)
    if ranks != list(range(first["topology"]["world"])):
        raise StateError(f"states of the ranks {ranks} are not those of all {first['topology']['world']} ranks")
    for state in states[1:]:
        for name in ("version", "kind", "of", "epoch", "position", "skip", "even", "cut", "round"):
            if state.get(name) != first.get(name):
                raise StateError(
                    f"rank {state['topology']['rank']} differs from rank {first['topology']['rank']} in {name}: "
                    f"{state.get(name)!r} and {first.get(name)!r}",
                    hint="save all ranks after the same batch",
                )
    return {**first, "topology": {**first["topology"], "rank": 0}}


def _differences(path: str, saved: Any, here: Any) -> Any:
    if isinstance(saved, dict) and isinstance(here, dict):
        for name in sorted({*saved, *here}):
            yield from _differences(f"{path}.{name}" if path else name, saved.get(name), here.get(name))
    elif isinstance(saved, list) and isinstance(here, list) and len(saved) == len(here):
        for number, (left, right) in enumerate(zip(saved, here, strict=True)):
            yield from _differences(f"{path}[{number}]", left, right)
    elif saved != here:
        yield f"{path} was {saved!r} and is {here!r}"


def _plain(value: Any) -> Any:
    """The value as JSON gives it back."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
