"""The pages, the plots and the table of README.md that compare.py writes from its figures."""

from __future__ import annotations

import datetime
import html
import importlib.metadata
import os
import platform
import statistics
from dataclasses import dataclass
from typing import Any

import growth
import sections
from environments import OURS

NAMES = {
    "webloader": "**WebLoader**",
    "threads": "**WebLoader**, threads",
    "wds": "webdataset 1.0.2",
    "tf": "tf.data",
    "dali": "DALI",
    "litdata": "LitData",
    "mosaic": "Mosaic Streaming",
    "spdl": "SPDL",
    "grain": "Grain",
    "ffcv": "FFCV",
    "hf": "HF Datasets",
    "energon": "Energon",
    "ray": "Ray Data",
    "files": "loose files, torch's DataLoader",
}
HEAD = """\
Written by `./run bench` on {date}; do not edit. {machine}; Python {python}; WebLoader {webdataset}. All took turns in
fresh processes, each configured as its documentation recommends, in an environment of its own and with its own format
where it has one; the files lay in the page cache, and one item was taken first, so that imports do not count."""
DATA = """\
Data: A is 2,000 JPEG files of about 90 KB ({photographs}), B 100,000 samples with a text of 300 bytes, C 500 arrays of
1 MB."""
SPEED = """\
The best round of each by the clock; [all loaders, with CPU time and memory](benchmarks/peers.md)."""
PEERS = """\
Every byte of what a loader gives was read while the clock ran, and went into a checksum: all have given the same bytes;
decoded pictures whose means over sixteenths differ by less than 3 of 255; normalized crops whose mean and deviation
differ by less than 0.12. *Bytes* is how much of that there was per sample.

CPU is that of the process and its worker processes; memory the peak of the process and of its largest worker. The
fastest, those that are at least half as fast, and webdataset 1.0.2 took part in all rounds, the others in one."""


def about() -> dict[str, str]:
    """The machine and the day."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "date": str(datetime.datetime.now(datetime.UTC).date()),
        "machine": f"{os.cpu_count()} cores of {models[0] if models else platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "webdataset": importlib.metadata.version("webdataset"),
    }


def rate(peer: dict[str, Any]) -> float:
    """Samples per second in the best round."""
    return max((one["samples"] / one["wall"] for one in peer["rounds"]), default=0.0)


def median(peer: dict[str, Any]) -> float:
    return statistics.median(one["samples"] / one["wall"] for one in peer["rounds"])


def least(peer: dict[str, Any], what: str) -> float:
    return min(one[what] for one in peer["rounds"])


def cpu(peer: dict[str, Any]) -> float:
    """Microseconds of CPU time per sample, in the best round."""
    return 1e6 * min(one["cpu"] / one["samples"] for one in peer["rounds"])


def measured(peers: dict[str, Any]) -> list[str]:
    """The peers that have figures, the fastest first."""
    return sorted((name for name in peers if peers[name]["rounds"]), key=lambda name: -rate(peers[name]))


def shown(scenario: Any, peer: dict[str, Any]) -> str:
    """Samples per second, or how long it took until the few were there that a scenario is about."""
    return f"{rate(peer):,.0f}/s" if scenario.short else f"{1e3 * least(peer, 'wall'):,.0f} ms"


def read(peer: dict[str, Any]) -> str:
    """How many bytes a sample had.

    >>> [read({"rounds": [{"samples": 2, "bytes": size}]}) for size in (600, 180_000, 1_200_000, 0)]
    ['300 B', '90 KB', '0.60 MB', '-']
    """
    size = peer["rounds"][0]["bytes"] / peer["rounds"][0]["samples"]
    if size < 1000:
        return f"{size:.0f} B" if size else "-"
    return f"{size / 1e3:.0f} KB" if size < 5e5 else f"{size / 1e6:.2f} MB"


@dataclass(frozen=True)
class Leaders:
    """Who is the fastest in a scenario: of this package, and of the others; and 1.0.2, if it was measured."""

    ours: dict[str, Any]
    old: dict[str, Any] | None
    best: dict[str, Any] | None
    """The best of the others; 1.0.2 may be it."""
    name: str
    """Of the best."""

    def over(self, other: dict[str, Any] | None) -> float:
        """How many times as fast we are; 0 without another."""
        return rate(self.ours) / rate(other) if other else 0.0


def leaders(peers: dict[str, Any]) -> Leaders | None:
    """None where this package was not measured."""
    ranks = measured(peers)
    ours = [name for name in ranks if name in OURS]
    others = [name for name in ranks if name not in OURS]
    if not ours:
        return None
    best = others[0] if others else ""
    return Leaders(peers[ours[0]], peers["wds"] if "wds" in others else None, peers.get(best), NAMES.get(best, ""))


def table(found: dict[str, Any], scenarios: dict[str, Any]) -> str:
    """One line per scenario: what is to be reached, and what was."""
    rows = [
        ["scenario", "read", "WebLoader", "with", "1.0.2", "ratio", "target", "best peer", "with", "ratio", "target"]
    ]
    for name, scenario in scenarios.items():
        first = leaders(found["scenarios"].get(name, {}))
        if first is None:
            continue
        rows.append([scenario.title, read(first.ours), shown(scenario, first.ours), first.ours["runs"]])
        rows[-1] += [shown(scenario, first.old)] if first.old else ["-"]
        rows[-1] += judged(first.over(first.old), scenario.against_old)
        rows[-1] += [f"{first.name} {shown(scenario, first.best)}", first.best["runs"]] if first.best else ["-", "-"]
        rows[-1] += judged(first.over(first.best), scenario.against_peers)
    return markdown(rows)


def judged(ratio: float, target: float) -> list[str]:
    """
    >>> judged(2.0, 3.0)
    ['2.00 x', '>= 3 x: NO']
    """
    reached = "yes" if ratio >= target else "NO"
    return [f"{ratio:.2f} x" if ratio else "-", f">= {target:g} x: {reached}" if ratio and target else "-"]


def section(name: str, found: dict[str, Any]) -> str:
    """The table of a section, and what it is about."""
    known = found["sections"][name]
    rows = [["what", "measured", "target", "reached"]]
    rows += [
        [what, figure, target, target and ("yes" if reached else "NO")]
        for what, figure, target, reached in known["rows"]
    ]
    told = f"{known['words']} Measured on {known['date']} by `./run bench {name}`."
    shown = markdown(rows) if known["rows"] else f"Not measured: {known['trouble']}."
    return f"## {known['title']}\n\n{told}\n\n{shown}"


def markdown(rows: list[list[str]]) -> str:
    """A table that can be read in a terminal, too."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def write(found: dict[str, Any], scenarios: dict[str, Any], folder: str) -> None:
    """Write the page with all peers, and the plots, into the folder."""
    parts = ["# WebLoader and its peers", HEAD, DATA, PEERS]
    parts = [part.format(**found["about"]) for part in parts]
    for name, scenario in scenarios.items():
        peers = found["scenarios"].get(name, {})
        if measured(peers):
            parts += [f"## {name}: {scenario.title}", _peers_table(peers), f"![{name}]({name}.svg)", *_troubles(peers)]
            _save(os.path.join(folder, f"{name}.svg"), bars(peers, scenario))
    for name, grows in growth.SCENARIOS.items():
        points = found["scenarios"].get(name, {})
        if measured(points):
            parts += [f"## {name}: {grows.title}", _growth_table(points, grows.unit), f"![{name}]({name}.svg)"]
            _save(os.path.join(folder, f"{name}.svg"), growth_bars(points, grows))
    _save(os.path.join(folder, "peers.md"), "\n\n".join(parts) + "\n")


def write_pages(found: dict[str, Any], scenarios: dict[str, Any], root: str) -> None:
    """Write docs/benchmarks.md, and the short table between the marks in README.md."""
    parts = ["# Speed", f"{HEAD} {SPEED}", DATA, table(found, scenarios).replace("{", "{{").replace("}", "}}")]
    parts = [part.format(**found["about"]) for part in parts]
    parts += [section(name, found) for name in sections.NAMES if name in found["sections"]]
    _save(os.path.join(root, "docs", "benchmarks.md"), "\n\n".join(parts) + "\n")
    path = os.path.join(root, "README.md")
    with open(path) as file:
        before, mark, rest = file.read().partition("<!-- speed -->\n")
    _, end, after = rest.partition("<!-- /speed -->")
    _save(path, before + mark + _short_table(found, scenarios) + end + after)


def _short_table(found: dict[str, Any], scenarios: dict[str, Any]) -> str:
    lines = ["| what | of a sample is read | webdataset 1.0.2 | best other | WebLoader |", "|---|--:|--:|--:|--:|"]
    for name, scenario in scenarios.items():
        peers = found["scenarios"].get(name, {})
        first, other = leaders(peers), leaders({each: peers[each] for each in peers if each != "wds"})
        if first is None or other is None or not scenario.short:
            continue
        old = f"{shown(scenario, first.old)}, {first.old['runs']}" if first.old else "-"
        best = f"{other.name}: {shown(scenario, other.best)}, {other.best['runs']}" if other.best else "-"
        ours = f"{shown(scenario, first.ours)}, {first.ours['runs']}"
        lines.append(f"| {scenario.short} | {read(first.ours)} | {old} | {best} | {ours} |")
    return "\n".join(lines) + "\n"


def _peers_table(peers: dict[str, Any]) -> str:
    rows = [
        [
            "",
            "with",
            "samples/s, best",
            "median",
            "bytes",
            "CPU per sample",
            "first result",
            "peak memory",
            "rounds",
            "version",
        ]
    ]
    for name in measured(peers):
        peer = peers[name]
        rows.append(
            [
                NAMES[name],
                peer["runs"],
                f"{rate(peer):,.0f}",
                f"{median(peer):,.0f}",
                read(peer),
                f"{cpu(peer):,.1f} us" if cpu(peer) else "-",
                f"{least(peer, 'first'):.2f} s",
                f"{least(peer, 'peak'):,.0f} MB",
                str(len(peer["rounds"])),
                peer["version"],
            ]
        )
    return markdown(rows)


def _troubles(peers: dict[str, Any]) -> list[str]:
    told = [f"{NAMES[name].strip('*')}: {peers[name]['trouble']}" for name in peers if peers[name]["trouble"]]
    told = [line for line in told if not line.endswith("not offered")]
    return ["Not measured: " + "; ".join(told) + "."] if told else []


def _growth_table(points: dict[str, Any], unit: str) -> str:
    if any("built" in one for point in points.values() for one in point["rounds"]):
        rows = [[unit, "samples", "construction", "length", "first batch", "memory"]]
        for value, point in points.items():
            times = [f"{least(point, name):.3f} s" for name in ("built", "length", "first")]
            samples = point["rounds"][0]["samples"]
            rows.append([f"{int(value):,}", f"{samples:,}", *times, f"{least(point, 'peak'):,.0f} MB"])
        return markdown(rows)
    rows = [[unit, "samples/s", "CPU per sample", "peak memory"]]
    for value, point in points.items():
        if point["rounds"]:
            figures = [f"{rate(point):,.0f}", f"{cpu(point):,.1f} us", f"{least(point, 'peak'):,.0f} MB"]
            rows.append([f"{int(value):,}", *figures])
    return markdown(rows)


def bars(peers: dict[str, Any], scenario: Any) -> str:
    """The peers' rates as horizontal bars."""
    rows = [
        (NAMES[name].replace("*", ""), rate(peers[name]), shown(scenario, peers[name]), name in OURS)
        for name in measured(peers)
    ]
    return _drawn(rows)


def growth_bars(points: dict[str, Any], grows: growth.Growth) -> str:
    """What grows, as horizontal bars: samples or bytes per second, or the seconds to the first batch."""
    rows = []
    for value, point in points.items():
        if not point["rounds"]:
            continue
        label = f"{int(value):,} {grows.unit}"
        if grows.shows == "seconds":
            figure = least(point, "wall")
            rows.append((label, figure, f"{figure:.2f} s to the first batch", True))
        elif grows.shows == "bytes":
            figure = rate(point) * int(value) / 1e6
            rows.append((label, figure, f"{figure:,.0f} MB/s", True))
        else:
            rows.append((label, rate(point), f"{rate(point):,.0f}/s", True))
    return _drawn(rows)


def _drawn(rows: list[tuple[str, float, str, bool]]) -> str:
    """A picture of plain SVG, which needs no package: label, length and figure of each bar, and whether it is ours."""
    most = max(value for _, value, _, _ in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{26 * len(rows) + 10}" font-family="sans-serif">'
    ]
    for n, (label, value, figure, ours) in enumerate(rows):
        y, width = 26 * n + 8, max(1.0, 360 * value / most)
        text = f'y="{y + 14}" font-size="13" fill="#57606a"'
        lines.append(f'<text x="230" {text} text-anchor="end">{html.escape(label)}</text>')
        lines.append(
            f'<rect x="240" y="{y}" width="{width:.1f}" height="18" fill="{"#1f6feb" if ours else "#9aa4b2"}"/>'
        )
        lines.append(f'<text x="{width + 248:.1f}" {text}>{figure}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _save(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
