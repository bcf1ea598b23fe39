"""How fast is it, compared with other loaders? `./run bench [NAME...] [--peers wds,litdata,...] [--quick]`.

Every peer has an environment of its own in benchmarks/.peers, made when it is first wanted, and reads the same samples
in its own format where it has one. All take turns in fresh processes, round by round through all that is measured, and
every byte that a peer gives is read while the clock runs. So every round has a checksum, and all must give the same:
the same bytes, or pixels that differ by less than the page says. A peer that cannot be installed, fails, or takes too
long is reported as such, and holds up nobody.

Every figure is written to results.json at once, and a run that was cut goes on from there; after one that came to its
end, what is asked for is measured anew. `--save` keeps the figures in docs/benchmarks, and writes what is made of them:
docs/benchmarks.md, a page with all peers, a plot per scenario, and the table of README.md. This makes all of it:

    ./run bench all --peers all --rounds 0         # once: environments and the peers' own formats
    ./run bench all --peers all --save

The first round is of everything; the others, until the time is up, of those that are at least half as fast as the
fastest, and of webdataset 1.0.2.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import data
import environments
import growth
import report
import sections
from environments import OURS, say

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
DATA = os.path.join(HERE, ".data")
PEERS = ["wds", "litdata", "mosaic", "spdl", "grain", "tf", "dali", "ffcv", "hf", "energon", "ray", "files"]
PREPARE_SECONDS, ROUND_SECONDS = 300, 60
PIXELS = 3.0
"""How far the means over sixteenths of two decoders' pictures may lie apart, of 255."""
VALUES = 0.12
"""How far mean and deviation of normalized random crops may lie apart."""


@dataclass(frozen=True)
class Scenario:
    """What is measured, on which data."""

    title: str
    short: str
    """The same for the table of README.md."""
    data: str
    kind: str
    shards: int = data.SHARDS
    repeat: int = 1
    http: bool = False
    against_old: float = 0.0
    """What is to be reached, times as fast as webdataset 1.0.2; ..."""
    against_peers: float = 0.0
    """... and as the best peer."""


SCENARIOS = {
    "train": Scenario(
        "image training: decode, random resized crop 224, flip, normalize, batches of 64",
        "train on photographs (crop, flip, normalize, batch)",
        "A",
        "train",
        against_old=2.5,
        against_peers=1.25,
    ),
    "train-http": Scenario(
        "the same from a web server with a delay of 20 ms",
        "the same from a web server, 20 ms away",
        "A",
        "train",
        http=True,
        against_old=2.3,
        against_peers=1.0,
    ),
    "rgb": Scenario("photographs decoded to RGB", "decode photographs", "A", "rgb", against_old=1.8, against_peers=1.1),
    "raw-A": Scenario(
        "photographs as bytes, 8 times",
        "read photographs as bytes",
        "A",
        "raw",
        repeat=8,
        against_old=4,
        against_peers=0.9,
    ),
    "raw-B": Scenario(
        "100,000 small samples as bytes", "read small samples", "B", "raw", against_old=20, against_peers=1.5
    ),
    "shuffle-B": Scenario(
        "the same, shuffled by 10,000",
        "read them shuffled by 10,000",
        "B",
        "shuffled",
        against_old=18,
        against_peers=1.2,
    ),
    "raw-C": Scenario(
        "arrays of 1 MB as bytes, 4 times",
        "read arrays of 1 MB",
        "C",
        "raw",
        repeat=4,
        against_old=4.5,
        against_peers=1.0,
    ),
    "gzip-A": Scenario(
        "photographs in .tgz as bytes", "read photographs in .tgz as bytes", "A.tgz", "raw", against_old=1.4
    ),
    "write-A": Scenario("photographs written", "write photographs", "A", "write", against_old=7),
    "write-B": Scenario("25,000 small samples written", "write small samples", "B", "write", shards=1, against_old=18),
    "first-batch": Scenario("64 samples of a 3 GB shard at 50 MB/s", "", "A", "first", http=True),
    "import": Scenario("import webdataset", "", "A", "import", against_old=15),
}
FIELDS = {"A": "jpg", "A.tgz": "jpg", "B": "txt", "C": "npy"}
READ_AS = {"first": "raw", "import": "imported"}
"""The function of a peer for a kind of scenario that has not its name."""
GROUPS = {"main": [*SCENARIOS], "growth": [*growth.SCENARIOS], "sections": [*sections.NAMES]}
GROUPS["all"] = [name for names in GROUPS.values() for name in names]


def main() -> int:
    options = parse()
    say("making the data, if it is not there yet")
    sets = data.make(DATA, options.part, generated=options.generated)
    results = Results(options.output, options.names, anew=options.again)
    results.found["about"]["photographs"] = "Debian's wallpapers" if data.is_real(sets["A"]) else "generated pictures"
    if not options.rounds:
        for name in options.names:
            compare(name, 0, sets, results, options)
        return 0
    began = time.monotonic()
    for number in range(options.rounds):
        for name in options.names:
            if number and time.monotonic() - began > 60 * options.minutes:
                continue
            say(f"round {number + 1}: {name}")
            if name in growth.SCENARIOS:
                growth.measure(name, number, results, options.part)
            elif name in sections.NAMES:
                sections.measure(name, results, options.part, environments.old_python(options.peers))
            else:
                compare(name, number, sets, results, options)
    results.end()
    report.write(results.found, SCENARIOS, options.output)
    print(report.table(results.found, SCENARIOS))
    for name in options.names:
        if name in sections.NAMES:
            print("\n" + report.section(name, results.found))
    if options.save:
        report.write_pages(results.found, SCENARIOS, ROOT)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"what to measure: main (the default), growth, sections, all, or of {', '.join(GROUPS['all'])}",
    )
    parser.add_argument("--scenario", help="the same, with commas between")
    parser.add_argument("--peers", default="wds", help=f"all, none, or of {','.join(PEERS)} (wds, which is 1.0.2)")
    parser.add_argument("--rounds", type=int, default=5, help="of each peer (5); 0 only prepares")
    parser.add_argument("--minutes", type=float, default=15, help="after which there is no further round (15)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, for a first look")
    parser.add_argument("--tiny", action="store_true", help="a few samples, once, to see whether everything runs")
    parser.add_argument("--generated", action="store_true", help="generated pictures, no real photographs")
    parser.add_argument("--again", action="store_true", help="do not go on from a run that was cut")
    parser.add_argument("--output", help="folder of the figures (benchmarks/.data/figures)")
    parser.add_argument("--save", action="store_true", help="write README.md and docs/benchmarks")
    options = parser.parse_args()
    asked = [*options.names, *(options.scenario or "").split(",")]
    asked = [word for word in asked if word] or ["main"]
    options.names = list(dict.fromkeys(name for word in asked for name in GROUPS.get(word, [word])))
    options.peers = {"all": PEERS, "none": []}.get(options.peers, options.peers.split(","))
    unknown = sorted(set(options.peers) - set(PEERS)) + sorted(set(options.names) - set(GROUPS["all"]))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    if options.save and (options.quick or options.tiny):
        parser.error("--save is for the whole data")
    options.part = 0.002 if options.tiny else 0.1 if options.quick else 1.0
    options.rounds = min(options.rounds, 1) if options.tiny else options.rounds
    usual = os.path.join(DATA, "figures" + ("-tiny" if options.tiny else "-quick" if options.quick else ""))
    options.output = options.output or (os.path.join(ROOT, "docs", "benchmarks") if options.save else usual)
    return options


class Results:
    """What was measured, kept in a file as it comes."""

    def __init__(self, folder: str, names: list[str], *, anew: bool) -> None:
        os.makedirs(folder, exist_ok=True)
        self._path = os.path.join(folder, "results.json")
        self.found: dict[str, Any] = {"complete": True, "about": {}, "scenarios": {}, "sections": {}}
        with contextlib.suppress(FileNotFoundError), open(self._path) as file:
            self.found = json.load(file)
        if self.found["complete"] or anew:
            self.found["complete"] = False
            self.found["about"] = report.about()
            for name in names:
                self.found["scenarios"].pop(name, None)
                self.found["sections"].pop(name, None)

    def peer(self, scenario: str, peer: str) -> dict[str, Any]:
        """What is known of a peer: its rounds, its version, what it gives, or why there are no rounds."""
        known = self.found["scenarios"].setdefault(scenario, {})
        return known.setdefault(  # type: ignore[no-any-return]
            peer, {"rounds": [], "version": "", "runs": "", "check": {}, "trouble": ""}
        )

    def end(self) -> None:
        self.found["complete"] = True
        self.save()

    def save(self) -> None:
        """A line per round."""
        text = re.sub(
            r"[\[{][^\[\]{}]*[\]}]", lambda found: " ".join(found[0].split()), json.dumps(self.found, indent=1)
        )
        with open(f"{self._path}.part", "w") as file:
            file.write(text + "\n")
        os.replace(f"{self._path}.part", self._path)


def compare(name: str, number: int, sets: dict[str, list[str]], results: Results, options: argparse.Namespace) -> None:
    """One round of all peers for one scenario."""
    if name not in SCENARIOS:
        return
    scenario = SCENARIOS[name]
    shards = sets[scenario.data][: scenario.shards]
    with served(scenario, shards) as address:
        peers = [Peer(each, scenario, shards, address, results.peer(name, each)) for each in [*OURS, *options.peers]]
        if not number:
            for peer in peers:
                peer.prepare()
        taking_part = [peer for peer in peers if peer.takes_part(number, peers)]
        for shard in shards:
            data.warm(shard)
        for peer in taking_part if options.rounds else []:
            peer.round(peers)
            results.save()


@contextlib.contextmanager
def served(scenario: Scenario, shards: list[str]) -> Iterator[str]:
    """A web server for the shards, if the scenario wants one."""
    if not scenario.http:
        yield ""
        return
    words = [sys.executable, os.path.join(HERE, "server.py"), os.path.dirname(os.path.abspath(shards[0]))]
    words += (
        ["--rate", "50e6", "--endless", "3000000000", *map(os.path.abspath, shards)]
        if scenario.kind == "first"
        else ["--delay", "0.02"]
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


class Peer:
    """A peer in one scenario."""

    def __init__(self, name: str, scenario: Scenario, shards: list[str], address: str, known: dict[str, Any]) -> None:
        self.name = name
        self.module = importlib.import_module(f"peers.{name}")
        self.scenario = scenario
        self.known = known
        folder = os.path.join(DATA, "peers", f"{name}-{len(shards)}-{os.path.basename(shards[0])}")
        names = [os.path.basename(shard) for shard in shards]
        urls = [f"{address}/{each}" for each in (["endless.tar"] if scenario.kind == "first" else names)]
        self.case: dict[str, Any] = {
            "name": scenario.data,
            "field": FIELDS[scenario.data],
            "shards": [os.path.abspath(shard) for shard in shards],
            "folder": folder,
            "urls": urls if address else [],
        }

    def prepare(self) -> None:
        """Make its environment and its own format, if they are not there."""
        if not self._offers():
            self.known["trouble"] = "not offered"
            return
        trouble = environments.install(self.name, self.module)
        stamp = os.path.join(self.case["folder"], f"{self.scenario.data}.ready")
        if not trouble and hasattr(self.module, "prepare") and not os.path.exists(stamp):
            say(f"{self.name}: writing its own format")
            trouble = self.run("prepare", {}, PREPARE_SECONDS).get("trouble", "")
            if not trouble:
                os.makedirs(self.case["folder"], exist_ok=True)
                with open(stamp, "w"):
                    pass
        self._note(trouble)

    def _offers(self) -> bool:
        """Whether it can do this at all; only those that read shards can read them from a web server."""
        kind = READ_AS.get(self.scenario.kind, self.scenario.kind)
        reads = getattr(self.module, "DATA", ("A", "B", "C"))
        fits = self.scenario.data in reads and (getattr(self.module, "URLS", False) or not self.scenario.http)
        return fits and hasattr(self.module, kind)

    def takes_part(self, number: int, peers: list[Peer]) -> bool:
        """Whether it has a further round: those that are far behind have one only, to save time."""
        if self.known["trouble"] or len(self.known["rounds"]) > number:
            return False
        best = max(report.rate(peer.known) for peer in peers)
        return self.name in (*OURS, "wds") or report.rate(self.known) >= best / 2 or not number

    def round(self, peers: list[Peer]) -> None:
        """One timed round; what it gives must be what the first of the peers gives."""
        kind, more = self.scenario.kind, {}
        if kind == "write":
            more = {"output": os.path.join(DATA, "out")}
            os.makedirs(more["output"], exist_ok=True)
        elif kind == "first":
            kind, more = "raw", {"only": 64}
        elif kind != "import":
            more = {"repeat": self.scenario.repeat}
        done = self.run(kind, more)
        trouble = done.get("trouble", "")
        if not trouble:
            self.known["check"] = done.pop("check")
            wanted = next((peer.known["check"] for peer in peers if peer.known["check"]), {})
            trouble = difference(wanted, self.known["check"])
        if self._note(trouble):
            self.known["version"] = done.pop("version")
            usual = {"train": "2 processes"}.get(self.scenario.kind, "1 thread")
            self.known["runs"] = getattr(self.module, "RUNS", {}).get(self.scenario.kind, usual)
            self.known["rounds"].append(done)

    def _note(self, trouble: str) -> bool:
        self.known["trouble"] = trouble
        if trouble:
            say(f"{self.name}: {trouble}")
        return not trouble

    def run(self, kind: str, more: dict[str, Any], seconds: float = ROUND_SECONDS) -> dict[str, Any]:
        """One fresh process; what it says, or what went wrong."""
        words = [
            environments.python_of(self.name),
            os.path.join(HERE, "measure.py"),
            self.name,
            kind,
            json.dumps(self.case | more),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
        ) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return {"trouble": f"took more than {seconds:.0f} s"}
            finally:
                with contextlib.suppress(ProcessLookupError):  # with all that it has started
                    os.killpg(process.pid, signal.SIGKILL)
        lines = output.decode(errors="replace").strip().splitlines()
        try:
            return json.loads(lines[-1])  # type: ignore[no-any-return]
        except (IndexError, ValueError):
            said = errors.decode(errors="replace").strip().splitlines()
            return {"trouble": f"failed: {said[-1][:200] if said else f'exit {process.returncode}'}"}


def difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """What differs between two peers' samples, if anything that matters does.

    >>> difference({"samples": 2, "checksum": "a"}, {"samples": 2, "checksum": "b"})
    'not the same bytes'
    """
    wanted, found = (json.loads(json.dumps(each)) for each in (wanted, found))  # one may come from a file
    if wanted.get("samples") != found.get("samples"):
        return f"{found['samples']} samples instead of {wanted['samples']}"
    if wanted.get("checksum") != found.get("checksum"):
        return "not the same bytes"
    for label, picture in wanted.get("pictures", {}).items():
        other = found["pictures"].get(label)
        if other is None or other[:3] != picture[:3]:
            return f"another picture for label {label}"
        apart = max(abs(one - two) for one, two in zip(picture[3:], other[3:], strict=True))
        if apart > PIXELS:
            return f"pixels differ by {apart:.1f} of 255 for label {label}"
    if "mean" in wanted:
        apart = max(abs(wanted[name] - found[name]) for name in ("mean", "deviation"))
        if wanted["labels"] != found["labels"] or wanted["shapes"] != found["shapes"]:
            return f"labels or shapes differ: {found['labels']}, {found['shapes']}"
        if apart > VALUES and wanted["samples"] > 100:
            return f"mean or deviation of the values differs by {apart:.2f}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
