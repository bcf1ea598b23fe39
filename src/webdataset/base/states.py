"""States: where a run is, as a few values that can be saved as JSON, checked, and resumed elsewhere.

A state says what it is a state of: the data, the order, the stages. One that does not fit is refused, with the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webdataset.errors import StateError

VERSION = 1


def loader_state(states: Sequence[dict[str, Any]], next_worker: int = 0) -> dict[str, Any]:
    """The state of a loader of a streamed dataset: that of each worker, and whose turn it is.

    >>> loader_state([], 0)
    {'version': 1, 'kind': 'loader', 'workers': [], 'next': 0, 'of': {}}
    """
    described = states[0]["of"] if states else {}
    workers = [{name: value for name, value in state.items() if name != "of"} for state in states]
    return {"version": VERSION, "kind": "loader", "workers": workers, "next": next_worker, "of": described}


def loader_places(described: Any, state: dict[str, Any], workers: int) -> tuple[list[dict[str, Any]], int]:
    """The states for the workers of a loader, in their order, and whose turn it is; the loader must have as many."""
    check_fits(state, "loader", described)
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
            "remote": "a loader of batches from other machines",
        }
        raise StateError(f"the state is that of {kinds.get(state['kind'], state['kind'])}, not of {kinds[kind]}")
    if found := list(differences("", plain(state["of"]), plain(described))):
        raise StateError(
            "the state does not fit: " + "; ".join(found[:5]),
            hint="go on with the data, the seed and the pipeline with which it was saved, or start again without it",
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


def differences(path: str, saved: Any, here: Any) -> Any:
    """Where two descriptions differ, each as a sentence."""
    if isinstance(saved, dict) and isinstance(here, dict):
        for name in sorted({*saved, *here}):
            yield from differences(f"{path}.{name}" if path else name, saved.get(name), here.get(name))
    elif isinstance(saved, list) and isinstance(here, list) and len(saved) == len(here):
        for number, (left, right) in enumerate(zip(saved, here, strict=True)):
            yield from differences(f"{path}[{number}]", left, right)
    elif saved != here:
        yield f"{path} was {saved!r} and is {here!r}"


def plain(value: Any) -> Any:
    """The value as JSON gives it back."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
