"""A page about a run: counts, failures, how long shards took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from webdataset.base.redact import redacted

from .plans import RunPlan
from .records import DONE, AttemptRecord
from .runs import Run

BARS = 20
MOST_FAILURES = 1000
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222;
  background: #fff }
table { border-collapse: collapse } th, td { text-align: left; padding: .2rem 1.2rem .2rem 0; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } .bar { fill: #4269d0 } .bad { color: #b00020 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1a1a1a } .bad { color: #ff8a80 } }
"""


def page(run: Run, plan: RunPlan, facts: Mapping[str, Any], failures: Sequence[AttemptRecord]) -> str:
    """Return an HTML page that needs nothing else."""
    seconds = [record.seconds for record in run.records() if record.status == DONE and record.plan == plan.id]
    shown = {name: value for name, value in facts.items() if not isinstance(value, (list, dict)) and value is not None}
    rows = "".join(
        f"<tr><th>{escape(_title(name))}</th><td class=n>{escape(_value(value))}</td></tr>"
        for name, value in shown.items()
    )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(run.name)}</title><style>{STYLE}</style>",
        f"<h1>{escape(run.name)}</h1><p>{escape(redacted(run.url))}</p><table>{rows}</table>",
    ]
    if seconds:
        parts.append(f"<h2>Seconds per shard</h2>{_histogram(seconds)}")
    if failures:
        lines = "".join(
            f"<tr><td>{escape(record.item)}</td><td>{escape(record.status)}</td><td class=n>{record.attempt}</td>"
            f"<td class=bad>{escape(redacted(record.error))}</td></tr>"
            for record in failures[:MOST_FAILURES]
        )
        parts.append(f"<h2>Failed</h2><table><tr><th>shard<th>how<th>attempts<th>why</tr>{lines}</table>")
    return "\n".join(parts) + "</html>\n"


def _title(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else redacted(str(value))


def _histogram(values: Sequence[float]) -> str:
    """Return bars: how many shards took how long.

    >>> _histogram([1.0, 1.0, 3.0]).count("<rect")
    20
    """
    least, most = min(values), max(values)
    width = (most - least) / BARS or 1.0
    counts = [0] * BARS
    for value in values:
        counts[min(int((value - least) / width), BARS - 1)] += 1
    bars = "".join(
        f"<rect class=bar x={20 * n} y={100 - 100 * count / max(counts):.1f} width=18 "
        f"height={100 * count / max(counts):.1f}><title>{least + n * width:.2f} s: {count}</title></rect>"
        for n, count in enumerate(counts)
    )
    labels = f"<p>{least:.2f} to {most:.2f} s, mean {sum(values) / len(values):.2f} s</p>"
    return (
        f"<svg viewBox='0 0 400 100' width=400 height=100 role=img aria-label='seconds per shard'>{bars}</svg>{labels}"
    )
