"""States: where a run is, as a few values that can be saved as JSON, checked, and resumed elsewhere.

A state says what it is a state of: the data, the order, the stages. One that does not fit is refused, with the
difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
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


def loader_places(described: object, state: dict[str, Any], workers: int) -> tuple[list[dict[str, Any]], int]:
    """The states for the workers of a loader, in their order, and whose turn it is; the loader must have as many."""
    check_fits(state, "loader", described)
    if len(state["workers"]) != max(workers, 1):
        raise StateError(
            f"the state is that of a loader with {len(state['workers'])} workers, and this one has {workers}",
            hint="a streamed dataset goes on with as many workers as before; exact=True with any number",
        )
    return [{**worker, "of": state["of"]} for worker in state["workers"]], state["next"]


def check_fits(state: object, kind: str, described: object) -> None:
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
    """The `states` of all ranks as one, which any number of ranks can load.

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
        for name in ("version", "kind", "of", "epoch", "start", "position", "skip", "even", "cut", "round"):
            if state.get(name) != first.get(name):
                raise StateError(
                    f"rank {state['topology']['rank']} differs from rank {first['topology']['rank']} in {name}: "
                    f"{state.get(name)!r} and {first.get(name)!r}",
                    hint="save all ranks after the same batch",
                )
    return {**first, "topology": {**first["topology"], "rank": 0}}


def about_shards(urls: Sequence[Any], samples: int | None = None) -> dict[str, Any]:
    """What a state says of its shards for people, beside the digest: how many, and their names in short.

    >>> about_shards(["/data/a-00.tar", "/data/a-01.tar", "/data/a-02.tar", "/data/b.tar"])
    {'shards': 4, 'names': ['a-{00..02}.tar', 'b.tar']}
    """
    names = [str(url).partition("?")[0].rpartition("/")[2] for url in urls]
    patterns = list(islice(_runs(names), MOST_NAMES + 1))
    known = {} if samples is None else {"samples": samples}
    return {"shards": len(names), **known, **({"names": patterns} if len(patterns) <= MOST_NAMES else {})}


MOST_NAMES = 32
"""Names or runs of numbered names that a state lists; of more shards it says how many there are."""
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)
_RUN = re.compile(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", re.DOTALL)


def _runs(names: Sequence[str]) -> Iterator[str]:
    """Names that are numbered one after the other as one pattern with braces each."""
    start = 0
    while start < len(names):
        found = _NUMBERED.fullmatch(names[start])
        end = start + 1
        if found is not None and "{" not in names[start]:
            head, digits, tail = found.groups()
            first = int(digits)
            while end < len(names) and names[end] == f"{head}{first + end - start:0{len(digits)}d}{tail}":
                end += 1
            if end > start + 1:
                yield f"{head}{{{digits}..{first + end - start - 1:0{len(digits)}d}}}{tail}"
                start = end
                continue
        yield names[start]
        start += 1


def _names(patterns: Sequence[str]) -> list[str]:
    """
    >>> _names(["a-{08..10}.tar", "b.tar"])
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b.tar']
    """
    names = []
    for pattern in patterns:
        found = _RUN.fullmatch(pattern)
        if found is None:
            names.append(pattern)
        else:
            head, first, last, tail = found.groups()
            names += [f"{head}{n:0{len(first)}d}{tail}" for n in range(int(first), int(last) + 1)]
    return names


def differences(path: str, saved: object, here: object) -> Iterator[str]:
    """Where two descriptions differ, each as a sentence."""
    if isinstance(saved, dict) and isinstance(here, dict):
        told = set()
        if "about" in here and any(saved.get(name) != here.get(name) for name in SHARDS):
            yield from _other_shards(saved, here)
            told = {*SHARDS}
        for name in sorted({*saved, *here} - told - {"about"}):
            yield from differences(f"{path}.{name}" if path else name, saved.get(name), here.get(name))
    elif path == "stages" and isinstance(saved, list) and isinstance(here, list):
        yield from _other_stages(saved, here)
    elif isinstance(saved, list) and isinstance(here, list) and len(saved) == len(here):
        for number, (left, right) in enumerate(zip(saved, here, strict=True)):
            yield from differences(f"{path}[{number}]", left, right)
    elif saved != here:
        yield f"{path} was {saved!r} and is {here!r}"


SHARDS = ("data", "shards", "urls")
"""What a state knows its shards by: digests, and how many there are."""


def _other_shards(saved: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """How the shards differ, in words."""
    now, then = here["about"], saved.get("about") or {"shards": saved.get("shards")}
    if "names" not in now or "names" not in then:
        count = then.get("shards")
        yield f"it is of {'other' if count in (None, now['shards']) else count} shards, and here are {now['shards']}"
        return
    before, after = _names(then["names"]), _names(now["names"])
    gone, new = [name for name in before if name not in {*after}], [name for name in after if name not in {*before}]
    if gone or new:
        parts = [f"{_few(gone)} {'is' if len(gone) == 1 else 'are'} missing here"] if gone else []
        parts += [f"{_few(new)} {'is' if len(new) == 1 else 'are'} new"] if new else []
        yield f"it is of {_count(then['shards'], 'shard')}, here {_are(now['shards'])}: {', and '.join(parts)}"
    elif before != after:
        yield f"its {_count(then['shards'], 'shard')} come in another order"
    elif then.get("samples") != now.get("samples"):
        yield f"its {_count(then['shards'], 'shard')} had {then.get('samples')} samples, and have {now['samples']}"
    elif "data" in here:
        yield f"its {_count(then['shards'], 'shard')} have the same names and number of samples, but other sizes"
    else:
        yield f"its {_count(then['shards'], 'shard')} have the same names, but lie in another place"


def _other_stages(saved: list[Any], here: list[Any]) -> Iterator[str]:
    """How the stages differ, in words."""
    import difflib

    changes = difflib.SequenceMatcher(None, saved, here, autojunk=False).get_opcodes()
    for kind, start, end, first, last in changes:
        if kind == "equal":
            continue
        before, after = " and ".join(saved[start:end]), " and ".join(here[first:last])
        if before and after:
            yield f"the stage {before} is {after} here"
        else:
            yield f"the stage {before} is missing here" if before else f"the stage {after} is new here"


def _few(names: list[str]) -> str:
    more = len(names) - 3
    return " and ".join(filter(None, [", ".join(names[:3]), f"{more} more" if more > 0 else ""]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return f"is {number}" if number == 1 else f"are {number}"


def plain(value: object) -> Any:
    """The value as JSON gives it back."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
