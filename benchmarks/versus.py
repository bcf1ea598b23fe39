"""How fast is it, compared with webdataset 1.0.2? `./run bench [names] [--quick]`.

The old package lives in an environment of its own, with the same PyTorch as this one, if there is one, because it makes
use of it wherever it is installed. For every scenario the two sides take turns in fresh processes; the
best round of each counts. Before that, one untimed round of each is hashed: both must have given the same bytes. A
complete run (five rounds, about fifteen minutes) writes docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from typing import Any

import data
import sections

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
DATA = os.path.join(HERE, ".data")
OLD_VENV = os.path.join(HERE, ".venv-old")
OLD_VERSION = "1.0.2"


@dataclass(frozen=True)
class Question:
    """What is measured, on which data, and what must come out of it."""

    title: str
    shards: str = ""  # the data set
    measure: str = "rate"  # rate: times as many samples/s; cpu: at most this many seconds; peak: at most this share
    target: float = 1.0
    output: bool = False  # it writes

    def reached(self, figure: float) -> bool:
        return figure >= self.target if self.measure == "rate" else figure <= self.target

    def wanted(self) -> str:
        return {"rate": f">= {self.target:g} x", "cpu": f"<= {self.target:g} s CPU", "peak": f"<= {self.target:g} x"}[
            self.measure
        ]


QUESTIONS = {
    "raw-A": Question("read A as bytes", "A", target=5),
    "raw-B": Question("read B as bytes", "B", target=20),
    "raw-C": Question("read C as bytes", "C", target=4.5),
    "shuffle-B": Question("read B with shuffle(10000)", "B", target=18),
    "gzip-A": Question("read A.tgz as bytes", "A.tgz", target=1.4),
    "decode-A": Question("decode A to rgb8", "A", target=1.75),
    "write-A": Question("write A", "A", target=7, output=True),
    "write-B": Question("write B", "B", target=18, output=True),
    "import": Question("import webdataset", measure="cpu", target=0.1),
    "memory-A": Question("peak memory, A with shuffle(1000)", "A", measure="peak", target=0.5),
}


@dataclass
class Side:
    """One of the two packages, and its best rounds."""

    name: str
    python: str
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def run(self, name: str, shards: list[str], *, digest: bool = False) -> dict[str, Any]:
        """One round in a fresh process."""
        command = [self.python, os.path.join(HERE, "scenarios.py"), name, *shards]
        output = os.path.join(DATA, "out")
        if QUESTIONS[name].output:
            shutil.rmtree(output, ignore_errors=True)
            os.makedirs(output)
            command += ["--output", output]
        done = subprocess.run(
            [*command, *(["--digest"] if digest else [])], stdout=subprocess.PIPE, cwd=DATA, check=False
        )
        if done.returncode != 0:
            sys.exit(f"bench: {name} failed with {self.name}; the command was: {' '.join(command)}")
        shutil.rmtree(output, ignore_errors=True)
        return json.loads(done.stdout)

    def best(self, name: str, what: str) -> float:
        return min(one[what] for one in self.rounds[name])

    def rate(self, name: str) -> float:
        return max(one["samples"] / one["wall"] for one in self.rounds[name])

    def cpu_per_sample(self, name: str) -> float:
        return min(one["cpu"] / one["samples"] for one in self.rounds[name])


def main() -> int:
    options = parse()
    say("making the data, if it is not there yet")
    shards = data.make(DATA, 0.1 if options.quick else 1.0)
    old, new = Side(OLD_VERSION, old_python()), Side("2.0", sys.executable)
    for name in options.names or QUESTIONS:
        ask(name, shards.get(QUESTIONS[name].shards, []), old, new, 2 if options.quick else options.rounds)
    rows = [row(name, old, new) for name in options.names or QUESTIONS]
    print(table(rows))
    missed = [name for name in options.names or QUESTIONS if not QUESTIONS[name].reached(figure(name, old, new))]
    print(f"\ntargets missed: {', '.join(missed)}" if missed else "\nall targets reached")
    if options.save or not (options.quick or options.names):
        save(rows, options.rounds)
    return 1 if missed and not options.quick else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"what to measure, of: {', '.join(QUESTIONS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, two rounds; for a first look")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side (5)")
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks.md also after a partial run")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(QUESTIONS))
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    return options


def old_python() -> str:
    """The Python of an environment that has the old package, and what it needs for these scenarios."""
    python = os.path.join(OLD_VENV, "bin", "python")
    torch = installed("torch")
    stamp = os.path.join(OLD_VENV, f"webdataset-{OLD_VERSION}-torch-{torch}")
    if not os.path.exists(stamp):
        say(f"installing webdataset {OLD_VERSION} into an environment of its own")
        venv.create(OLD_VENV, with_pip=True, clear=True)
        packages = [f"webdataset=={OLD_VERSION}", "pillow", *([f"torch=={torch}"] if torch else [])]
        pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *packages]
        done = subprocess.run(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench: {' '.join(pip)} failed:\n{done.stdout}")
        with open(stamp, "w"):
            pass
    return python


def installed(package: str) -> str | None:
    """The version of a package in this environment."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def ask(name: str, shards: list[str], old: Side, new: Side, rounds: int) -> None:
    """Fill in both sides' rounds for one question."""
    say(f"{name}: {QUESTIONS[name].title}")
    for shard in shards:
        data.warm(shard)
    if QUESTIONS[name].measure != "cpu":
        digests = {side.run(name, shards, digest=True)["digest"] for side in (old, new)}
        if len(digests) > 1:
            sys.exit(f"bench: {name}: the two sides did not give the same bytes")
    for _ in range(rounds):
        for side in (old, new):
            side.rounds.setdefault(name, []).append(side.run(name, shards))


def figure(name: str, old: Side, new: Side) -> float:
    """What is compared with the target."""
    measure = QUESTIONS[name].measure
    if measure == "cpu":
        return new.best(name, "cpu")
    if measure == "peak":
        return new.best(name, "peak") / old.best(name, "peak")
    return new.rate(name) / old.rate(name)


def row(name: str, old: Side, new: Side) -> list[str]:
    question = QUESTIONS[name]
    value = figure(name, old, new)
    if question.measure == "cpu":
        sides = [f"{side.best(name, 'cpu'):.3f} s CPU" for side in (old, new)]
        ratio = f"{value:.3f} s"
        cpu = f"{old.best(name, 'cpu') / value:.1f} x"
    elif question.measure == "peak":
        sides = [f"{side.best(name, 'peak'):,.0f} MB" for side in (old, new)]
        ratio, cpu = f"{value:.2f} x", ""
    else:
        sides = [f"{side.rate(name):,.0f} /s, {side.cpu_per_sample(name) * 1e6:,.1f} us" for side in (old, new)]
        ratio = f"{value:.2f} x"
        cpu = f"{old.cpu_per_sample(name) / new.cpu_per_sample(name):.2f} x"
    return [name, question.title, *sides, ratio, cpu, question.wanted(), "yes" if question.reached(value) else "NO"]


def table(rows: list[list[str]]) -> str:
    """A Markdown table with aligned columns, readable in a terminal as well."""
    head = ["name", "what", OLD_VERSION, "2.0", "ratio", "by CPU", "target", "reached"]
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def save(rows: list[list[str]], rounds: int) -> None:
    """Write the page with the figures."""
    page = PAGE.format(
        table=table(rows),
        date=datetime.datetime.now(datetime.UTC).date(),
        machine=machine(),
        rounds=rounds,
        python=platform.python_version(),
        new=installed("webdataset"),
        numpy=installed("numpy"),
        pillow=installed("pillow"),
        torch=installed("torch"),
        old=OLD_VERSION,
    )
    page += sections.kept()
    with open(sections.PAGE, "w") as stream:
        stream.write(page)
    say("wrote docs/benchmarks.md")


def machine() -> str:
    with open("/proc/cpuinfo") as stream:
        models = [line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {models[0] if models else platform.machine()}, {platform.system()}"


def say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


PAGE = """\
# Speed

Written by `./run bench` on {date}; do not edit. WebLoader {new} against webdataset {old}, on one machine, in one run,
taking turns in fresh processes, {rounds} rounds each: {machine}; Python {python}, numpy {numpy}, Pillow {pillow},
PyTorch {torch} (installed in both environments; version 1.0.2 imports it, WebLoader does not).

{table}

Per side: samples per second by the clock, and CPU time per sample. *Ratio* compares the best rounds by the clock,
*by CPU* the least CPU time. Before anything is timed, the keys and fields that both sides give are hashed and must be
equal; the files lie in the page cache. One process, no workers.

- A: 2,000 JPEG photographs of about 90 KB, 500 x 375, with cls and json.
- B: 200,000 samples of 300 bytes of txt, 200 bytes of json and a cls.
- C: 500 arrays of 1 MB with a cls.

The shards are plain ustar archives written by Python's tarfile. Writing starts from values in memory (bytes, text, a
dictionary for json, a number for cls). `benchmarks/scenarios.py` has the lines that were run.
"""

if __name__ == "__main__":
    sys.exit(main())
