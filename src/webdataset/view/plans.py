"""The plan of an exact epoch for the page: who gets which samples, and when."""

from __future__ import annotations

from typing import Any

from webdataset.exact.plans import Plan, plan
from webdataset.indices.catalogue import Catalogue

MOST_SAMPLES = 4096
"""Samples of one page of a plan."""
MOST = {"ranks": 1024, "workers": 256, "batch": 1 << 20}


def planned(catalogue: Catalogue, options: dict[str, Any], *, first: int = 0, steps: int = 16) -> dict[str, Any]:
    """An epoch with these options: its facts, and for some steps the samples that each rank gets.

    A sample is [number in the dataset, shard, whether it is a repeat].
    """
    for name, most in MOST.items():
        if not 1 <= int(options.get(name, 1)) <= most:
            raise ValueError(f"{name} is a number from 1 to {most:,}")
    made = plan(catalogue, **options)
    per_step = max(1, made.ranks * made.batch)
    steps = max(1, min(steps, MOST_SAMPLES // per_step or 1))
    first = max(0, min(first, made.steps - 1))
    quality = made.shuffle_quality()
    facts = {name: getattr(made, name) for name in ("samples", "shards", "bytes", "ranks", "workers", "batch", "steps")}
    facts |= {"repeated": made.repeated, "dropped": made.dropped, "memory_per_rank": made.memory_per_rank}
    facts |= {"bytes_per_rank": made.bytes_per_rank[:64], "shards_per_rank": made.shards_per_rank[:64]}
    facts |= {"distance": quality.distance, "same_shard": quality.same_shard}
    wanted = range(first, min(made.steps, first + steps))
    rows = [{"step": step, "ranks": _row(made, catalogue, step)} for step in wanted]
    return {"facts": facts, "rows": rows, "first": first}


def _row(made: Plan, catalogue: Catalogue, step: int) -> list[dict[str, Any]]:
    """What each rank gets in a step; a step is one worker's, in turn."""
    row = []
    room = MOST_SAMPLES // made.ranks or 1
    for rank in range(made.ranks):
        positions = made.positions(rank, step)[:room]
        _, shards, places = made.epoch.locate(positions % made.samples)
        firsts = (catalogue.ends - catalogue.counts)[shards]
        repeats = (positions >= made.samples).tolist()
        samples = [list(one) for one in zip((firsts + places).tolist(), shards.tolist(), repeats, strict=True)]
        row.append({"rank": rank, "worker": step % made.workers, "samples": samples})
    return row
