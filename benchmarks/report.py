"""The page, the plots and the table of README.md that compare.py writes from its figures."""

from __future__ import annotations

import datetime
import html
import importlib.metadata
import os
import platform
import statistics
from typing import Any

import growth

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
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
OURS = ("webloader", "threads")
PAGE = """\
Written by `./run bench --peers` on {date}; do not edit. {machine}; Python {python}. All took turns in fresh processes,
each configured as its documentation recommends, in an environment of its own and with its own format where it has one;
the files lay in the page cache, and one item was taken first, so that imports do not
count. Before anything was timed, every peer had to give the same samples: the same bytes;
decoded pictures whose means over sixteenths differ by less than 3 of 255; normalized crops whose mean and deviation
differ by less than 0.12.

Data: A is 2,000 JPEG files of about 90 KB ({photographs}), B 200,000 samples of 500 bytes, C 500 arrays of 1 MB. CPU is
that of the process and its worker processes; memory the peak of the process and of its largest worker. Read as bytes,
LitData gives views of a memory map, which nothing has read or copied yet; tf.data decodes to RGB on all cores, as do
our two threads; the others have one process there. Peers far behind took part in two rounds only."""


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


def ratios(peers: dict[str, Any]) -> tuple[float, float, str]:
    """How many times as fast as 1.0.2, and as the best peer, and who that is; 0 where it was not measured."""
    ours = max((rate(peers[name]) for name in OURS if name in peers), default=0.0)
    old = rate(peers["wds"]) if "wds" in peers else 0.0
    others = [name for name in measured(peers) if name not in OURS]
    best = others[0] if others else ""
    return ours / old if old else 0.0, ours / rate(peers[best]) if best else 0.0, best


def table(found: dict[str, Any], scenarios: dict[str, Any]) -> str:
    """One line per scenario: what is to be reached, and what was."""
    rows = [["scenario", "WebLoader", "1.0.2", "ratio", "target", "best peer", "ratio", "target"]]
    for name, scenario in scenarios.items():
        peers = found["scenarios"].get(name, {})
        if not measured(peers):
            continue
        old, other, best = ratios(peers)
        ours = max(rate(peers[each]) for each in OURS if each in peers)
        rows.append(
            [
                scenario.title,
                f"{ours:,.0f}/s",
                f"{rate(peers['wds']):,.0f}/s" if peers.get("wds", {}).get("rounds") else "-",
                f"{old:.2f} x" if old else "-",
                f">= {scenario.against_old:g} x" if scenario.against_old else "-",
                f"{NAMES[best]} {rate(peers[best]):,.0f}/s" if best else "-",
                f"{other:.2f} x" if other else "-",
                f">= {scenario.against_peers:g} x" if scenario.against_peers else "-",
            ]
        )
    return markdown(rows)


def markdown(rows: list[list[str]]) -> str:
    """A table that can be read in a terminal, too."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def write(found: dict[str, Any], scenarios: dict[str, Any], folder: str) -> None:
    """Write the page and the plots into the folder."""
    told = found["about"]
    parts = [
        "# WebLoader and its peers",
        "",
        PAGE.format(**{"photographs": "", **told}),
        "",
        table(found, scenarios),
    ]
    for name, scenario in scenarios.items():
        peers = found["scenarios"].get(name, {})
        if measured(peers):
            parts += ["", f"## {name}: {scenario.title}", "", _peers_table(peers), "", f"![{name}]({name}.svg)"]
            parts += _troubles(peers)
            _save(os.path.join(folder, f"{name}.svg"), bars(peers))
    for name, grows in growth.SCENARIOS.items():
        points = found["scenarios"].get(name, {})
        if measured(points):
            parts += [
                "",
                f"## {name}: {grows.title}",
                "",
                _growth_table(points, grows.unit),
                "",
                f"![{name}]({name}.svg)",
            ]
            _save(os.path.join(folder, f"{name}.svg"), growth_bars(points, grows))
    _save(os.path.join(folder, "peers.md"), "\n".join(parts) + "\n")


def _peers_table(peers: dict[str, Any]) -> str:
    rows = [["", "samples/s, best", "median", "CPU per sample", "first result", "peak memory", "rounds", "version"]]
    for name in measured(peers):
        peer = peers[name]
        rows.append(
            [
                NAMES[name],
                f"{rate(peer):,.0f}",
                f"{median(peer):,.0f}",
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
    return ["", "Not measured: " + "; ".join(told) + "."] if told else []


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


def bars(peers: dict[str, Any]) -> str:
    """The peers' rates as horizontal bars.

    >>> bars({"webloader": {"rounds": [{"samples": 10, "wall": 1.0}]}}).count("<rect")
    1
    """
    rows = [
        (NAMES.get(name, name).replace("*", ""), rate(peers[name]), f"{rate(peers[name]):,.0f}/s", name in OURS)
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


def into_readme(found: dict[str, Any], scenarios: dict[str, Any]) -> None:
    """Put the short table between the marks in README.md."""
    lines = ["| what | webdataset 1.0.2 | best other | WebLoader |", "|---|--:|--:|--:|"]
    for name, scenario in scenarios.items():
        peers = found["scenarios"].get(name, {})
        if not measured(peers) or scenario.kind == "first":
            continue
        others = [each for each in measured(peers) if each not in (*OURS, "wds")]
        ours = max(rate(peers[each]) for each in OURS if each in peers)
        old = f"{rate(peers['wds']):,.0f}/s" if peers.get("wds", {}).get("rounds") else "-"
        other = f"{NAMES[others[0]]}: {rate(peers[others[0]]):,.0f}/s" if others else "-"
        lines.append(f"| {scenario.short} | {old} | {other} | {ours:,.0f}/s |")
    path = os.path.join(ROOT, "README.md")
    with open(path) as file:
        before, mark, rest = file.read().partition("<!-- speed -->\n")
    _, end, after = rest.partition("<!-- /speed -->")
    _save(path, before + mark + "\n".join(lines) + "\n" + end + after)


def _save(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
