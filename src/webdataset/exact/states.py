"""The state of an exact dataset: which samples were given, for any number of ranks and workers to go on with."""

from __future__ import annotations

from typing import Any

from webdataset.base.positions import Position
from webdataset.base.rounds import RoundLimits
from webdataset.base.states import VERSION, check_fits
from webdataset.errors import StateError

from .positions import InEpoch, in_epoch
from .program import Program
from .rounds import restore_round, saved_round


def exact_state(
    program: Program, place: Position, limits: RoundLimits, *, worker: int = 0, workers: int = 1
) -> dict[str, Any]:
    """The state of an exact dataset that has given everything before a place."""
    rank, world = program.sources[0].shards.rank_and_world()
    return {
        "version": VERSION,
        "kind": "exact",
        "epoch": place.epoch,
        "position": program.position(place),
        "skip": place.where.skip,
        "even": place.where.even,
        "of": program.described(),
        "cut": list(program.cut),
        "topology": {"rank": rank, "world": world, "worker": worker, "workers": workers},
        "start": place.where.start,
        "step": place.where.step,
        "base": place.where.base,
        "round": saved_round(program, place, limits),
    }


def exact_place(program: Program, state: dict[str, Any], limits: RoundLimits, *, workers: int = 1) -> Position:
    """The place at which to go on; a StateError if the state is another dataset's."""
    check_fits(state, "exact", program.described())
    try:
        return restore_round(program, _place(program, state, workers), state.get("round"), limits)
    except (KeyError, TypeError, IndexError, AttributeError) as exn:
        raise StateError(f"the state is damaged: {type(exn).__name__} at {exn}") from None


def _place(program: Program, state: dict[str, Any], workers: int) -> Position:
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
        # a worker among others goes on with its own steps, a loader deals them out again
        base = state["base"] if workers > 1 else state["step"]
        where = InEpoch(state["start"], state["step"], state["skip"], state["even"], base)
        place = in_epoch(state["epoch"], where)
        if min(place.epoch, *where) < 0 or (workers == 1 and program.position(place) != state["position"]):
            raise StateError(f"the state is damaged: step {state['step']} is not at position {state['position']}")
        return place
    if program.bucketing is not None:
        # the batches of all ranks together are the same as long as they are as large
        if saved["world"] * state["cut"][0] != world * program.cut.size or program.bucketing.max_tokens is not None:
            raise StateError(
                f"batches by length of {saved['world']} ranks cannot be resumed by {world}",
                hint="go on with as many ranks, or with batches that are as large over all ranks (and no max_tokens)",
            )
        return in_epoch(state["epoch"], InEpoch(state["start"], state["step"], base=state["step"]))
    if state["skip"] and not state["even"]:
        raise StateError(
            f"the state was saved in the middle of a step of {saved['world']} ranks with batches of "
            f"{state['cut'][0]}; it cannot be resumed by {world} ranks with batches of {program.cut.size}",
            hint="save it when the samples of a batch have all been given",
        )
    return in_epoch(state["epoch"], InEpoch(state["position"]))
