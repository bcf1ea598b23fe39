"""How fast is it, compared with every other loader? `./run bench --peers wds,litdata,... [--scenario train,raw-B]`.

Every peer has an environment of its own in benchmarks/.peers, made when it is first wanted, and reads the same samples
in its own format where it has one: its first, untimed round must give the same bytes, or pixels that differ by less
than the page says. Then all take turns in fresh processes, round by round. A peer that cannot be installed, fails, or
takes too long is reported as such, and holds up nobody.

Every figure is written to results.json at once, and a later run goes on from there (without --again); a complete
one writes docs/benchmarks: a page, the figures as JSON, a plot per scenario; and the table of README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import data
import growth
import report

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
PEERS = ["wds", "litdata", "mosaic", "spdl", "grain", "tf", "dali", "ffcv", "hf", "energon", "ray", "files"]
OURS = ["webloader", "threads"]
ENVIRONMENTS = os.path.join(HERE, ".peers")
INSTALL_SECONDS, PREPARE_SECONDS, ROUND_SECONDS, SCENARIO_SECONDS = 900, 300, 90, 90
TORCHVISION = {"2.13": "0.28.0"}
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
    repeat: int = 1
    http: bool = False
    against_old: float = 0.0
    """What is to be reached, times as fast as webdataset 1.0.2; ..."""
    against_peers: float = 0.0
    """... and as the best peer."""


SCENARIOS = {
    "train": Scenario(
        "image training: decode, random resized crop 224, flip, normalize, batches of 64, 2 workers",
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
        "photographs as bytes, 1.4 GB",
        "read photographs as bytes",
        "A",
        "raw",
        repeat=8,
        against_old=8,
        against_peers=0.9,
    ),
    "raw-B": Scenario(
        "200,000 small samples as bytes", "read small samples", "B", "raw", against_old=30, against_peers=1.5
    ),
    "shuffle-B": Scenario(
        "the same, shuffled by 10,000",
        "read them shuffled by 10,000",
        "B",
        "shuffled",
        against_old=24,
        against_peers=1.2,
    ),
    "raw-C": Scenario("arrays of 1 MB as bytes", "read arrays of 1 MB", "C", "raw", against_old=5.2, against_peers=1.0),
    "write-A": Scenario("photographs written", "write photographs", "A", "write", against_old=7),
    "write-B": Scenario("200,000 small samples written", "write small samples", "B", "write", against_old=28),
    "first-batch": Scenario(
        "first batch of a 3 GB shard at 50 MB/s", "first batch of a 3 GB shard at 50 MB/s", "A", "first", http=True
    ),
}
FIELDS = {"A": "jpg", "B": "txt", "C": "npy"}


def main() -> int:
    options = parse()
    part = 0.002 if options.tiny else 0.1 if options.quick else 1.0
    say("making the data, if it is not there yet")
    sets = data.make_real(os.path.join(HERE, ".data"), part, generated=options.generated)
    results = Results(options.output, without=options.scenario if options.again else ())
    results.note("photographs", "Debian's wallpapers" if data.is_real(sets["A"]) else "generated pictures")
    for name in options.scenario:
        if name in growth.SCENARIOS:
            say(f"{name}: {growth.SCENARIOS[name].title}")
            growth.measure(name, results, tiny=options.tiny, quick=options.quick)
        else:
            compare(name, sets[SCENARIOS[name].data], results, options)
        report.write(results.found, SCENARIOS, options.output)
    print(report.table(results.found, SCENARIOS))
    if options.save:
        report.into_readme(results.found, SCENARIOS)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench --peers", description=__doc__.split("\n", maxsplit=1)[0])
    every = [*SCENARIOS, *growth.SCENARIOS]
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {','.join(PEERS)}; none for this package alone")
    parser.add_argument("--scenario", default="main", help=f"main, growth, all, or of {','.join(every)} (main)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds of each peer (5), fewer where time runs out or it is far behind"
    )
    parser.add_argument("--seconds", type=float, default=SCENARIO_SECONDS, help="for the rounds of a scenario (90)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, for a first look")
    parser.add_argument("--tiny", action="store_true", help="a few samples, to see whether everything runs")
    parser.add_argument("--generated", action="store_true", help="generated pictures, no real photographs")
    parser.add_argument("--again", action="store_true", help="forget what was measured of these scenarios")
    parser.add_argument("--output", help="folder of the figures; docs/benchmarks, of a part benchmarks/.data/quick")
    parser.add_argument("--save", action="store_true", help="also write the table of README.md")
    options = parser.parse_args()
    options.peers = [name for name in options.peers.split(",") if name and name != "none"]
    unknown = sorted(set(options.peers) - set(PEERS))
    groups = {"main": [*SCENARIOS], "growth": [*growth.SCENARIOS], "all": every}
    options.scenario = groups.get(options.scenario, options.scenario.split(","))
    unknown += sorted(set(options.scenario) - set(every))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    usual = (
        os.path.join(HERE, ".data", "quick") if options.quick or options.tiny else os.path.join(ROOT, "docs/benchmarks")
    )
    options.output = options.output or usual
    options.rounds = 1 if options.tiny else options.rounds
    return options


class Results:
    """What was measured, kept in a file as it comes."""

    def __init__(self, folder: str, *, without: Sequence[str] = ()) -> None:
        os.makedirs(folder, exist_ok=True)
        self._path = os.path.join(folder, "results.json")
        self.found: dict[str, Any] = {"about": report.about(), "scenarios": {}}
        with contextlib.suppress(OSError, ValueError), open(self._path) as file:
            self.found = json.load(file)
        for scenario in without:
            self.found["scenarios"].pop(scenario, None)

    def peer(self, scenario: str, peer: str) -> dict[str, Any]:
        """What is known of a peer: its rounds, its version, or why there are none."""
        known = self.found["scenarios"].setdefault(scenario, {})
        return known.setdefault(peer, {"rounds": [], "version": "", "trouble": ""})  # type: ignore[no-any-return]

    def note(self, name: str, value: Any) -> None:
        self.found["about"][name] = value
        self.save()

    def save(self) -> None:
        with open(f"{self._path}.part", "w") as file:
            json.dump(self.found, file, indent=1)
        os.replace(f"{self._path}.part", self._path)


def compare(name: str, shards: list[str], results: Results, options: argparse.Namespace) -> None:
    """Fill in the rounds of all peers for one scenario."""
    scenario = SCENARIOS[name]
    say(f"{name}: {scenario.title}")
    for shard in shards:
        data.warm(shard)
    with served(scenario, shards) as address:
        every = [*OURS, *options.peers]
        ready = [Peer(peer, scenario, shards, address, results.peer(name, peer)) for peer in every]
        ready = [peer for peer in ready if peer.offers() and peer.prepare()]
        wanted: dict[str, Any] = {}
        for peer in ready:
            peer.check(wanted)
        ready = [peer for peer in ready if not peer.known["trouble"]]
        began = time.monotonic()
        for number in range(options.rounds):
            ready = [peer for peer in ready if peer.counts(number, ready)]
            if number > 1 and time.monotonic() - began > options.seconds:
                say(f"{name}: {number} rounds of {options.rounds}, for lack of time")
                break
            for peer in ready:
                peer.round(number)
            results.save()
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
        import importlib

        self.name = name
        self.module = importlib.import_module(f"peers.{name}")
        self.scenario = scenario
        self.known = known
        folder = os.path.join(HERE, ".data", "peers", f"{name}-{len(shards)}-{os.path.basename(shards[0])}")
        names = [os.path.basename(shard) for shard in shards]
        urls = [f"{address}/{each}" for each in (["endless.tar"] if scenario.kind == "first" else names)]
        self.case: dict[str, Any] = {
            "name": scenario.data,
            "field": FIELDS[scenario.data],
            "shards": [os.path.abspath(shard) for shard in shards],
            "folder": folder,
            "urls": urls if address else [],
        }

    def offers(self) -> bool:
        """Whether it can do this at all; only those that read shards can read them from a web server."""
        kind = "raw" if self.scenario.kind == "first" else self.scenario.kind
        reads_urls = self.name in {"webloader", "threads", "wds", "hf"}
        able = hasattr(self.module, kind) and (reads_urls or not self.scenario.http)
        able = able and not (self.scenario.data != "A" and self.name in {"files", "ffcv"})
        able = able and not (self.scenario.kind == "first" and self.name == "threads")
        self.known["trouble"] = "" if able else "not offered"
        return able

    def prepare(self) -> bool:
        """Make its environment and its own format, if they are not there."""
        trouble = install(self.name, self.module)
        stamp = os.path.join(self.case["folder"], f"{self.scenario.data}.ready")
        if not trouble and hasattr(self.module, "prepare") and not os.path.exists(stamp):
            say(f"{self.name}: writing its own format")
            done = self.run("prepare", {}, PREPARE_SECONDS)
            trouble = done.get("trouble", "")
            if not trouble:
                os.makedirs(self.case["folder"], exist_ok=True)
                with open(stamp, "w"):
                    pass
        return self.in_order(trouble)

    def check(self, wanted: dict[str, Any]) -> None:
        """Compare what it gives with what the first peer gave; that is noted in `wanted`."""
        if self.scenario.kind in {"write", "first"} or self.known["rounds"]:
            return
        done = self.run(self.scenario.kind, {"check": True})
        if self.in_order(done.get("trouble", "")):
            wanted.setdefault("check", done["check"])
            self.in_order(difference(wanted["check"], done["check"]))

    def round(self, number: int) -> None:
        """One timed round, if it was not measured before."""
        if len(self.known["rounds"]) > number or self.known["trouble"]:
            return
        kind, more = self.scenario.kind, {"repeat": self.scenario.repeat}
        if kind == "write":
            more = {"output": self.output()}
        elif kind == "first":
            kind, more = "raw", {"only": 64}
        done = self.run(kind, more)
        if self.in_order(done.get("trouble", "")):
            self.known["version"] = done.pop("version")
            self.known["rounds"].append(done)

    def counts(self, number: int, ready: list[Peer]) -> bool:
        """Whether it takes part in a round: those far behind the best peer need no more than two, to save time."""
        best = max((report.rate(peer.known) for peer in ready if peer.name not in OURS), default=0.0)
        return (
            number < 2 or self.name in OURS or report.rate(self.known) > best / 2 or (self.name == "wds" and number < 3)
        )

    def output(self) -> str:
        folder = os.path.join(HERE, ".data", "out")
        os.makedirs(folder, exist_ok=True)
        return folder

    def in_order(self, trouble: str) -> bool:
        if trouble:
            self.known["trouble"] = trouble
            say(f"{self.name}: {trouble}")
        return not trouble

    def run(self, kind: str, more: dict[str, Any], seconds: float = ROUND_SECONDS) -> dict[str, Any]:
        """One fresh process; what it says, or what went wrong."""
        words = [python_of(self.name), os.path.join(HERE, "measure.py"), self.name, kind, json.dumps(self.case | more)]
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

    >>> difference({"count": 2, "hash": "a"}, {"count": 2, "hash": "b"})
    'not the same bytes'
    """
    if wanted["count"] != found["count"]:
        return f"{found['count']} samples instead of {wanted['count']}"
    if wanted.get("hash") != found.get("hash"):
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
        if apart > VALUES and wanted["count"] > 100:
            return f"mean or deviation of the values differs by {apart:.2f}"
    return ""


# -- environments ----------------------------------------------------------------------------------


def python_of(peer: str) -> str:
    return sys.executable if peer in OURS else os.path.join(ENVIRONMENTS, peer, "bin", "python")


def install(peer: str, module: Any) -> str:
    """Make the environment of a peer, if it is not there; what went wrong, if anything did."""
    if peer in OURS:
        return ""
    folder = os.path.join(ENVIRONMENTS, peer)
    stamp, failed = (os.path.join(ENVIRONMENTS, f"{peer}.{end}") for end in ("installed", "failed"))
    wanted = " ".join([*module.PACKAGES, module.NEEDS])
    if _content(stamp) == wanted:
        return ""
    if _content(failed) == wanted:
        return f"not installed; {os.path.relpath(ENVIRONMENTS, ROOT)}/{peer}.log says why"
    say(f"installing {peer} into an environment of its own")
    trouble = "" if module.NEEDS != "torch" else shared_torch()
    if not trouble:
        _make(folder, shares_torch=module.NEEDS == "torch")
        trouble = _pip(peer, folder, module.PACKAGES)
        hint = getattr(module, "HINT", "")
        trouble = f"{trouble}; {hint}" if trouble and hint else trouble
    with open(failed if trouble else stamp, "w") as file:
        file.write(wanted)
    return trouble


def shared_torch() -> str:
    """Install torch and torchvision once, for all peers that need them: they take most of the room."""
    import importlib.metadata

    folder, stamp = os.path.join(ENVIRONMENTS, "torch"), os.path.join(ENVIRONMENTS, "torch.installed")
    if os.path.exists(stamp):
        return ""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "needs PyTorch, which is not installed here"
    vision = TORCHVISION.get(".".join(torch.split(".")[:2]))
    _make(folder, shares_torch=False)
    trouble = _pip(
        "torch", folder, [f"torch=={torch}", "numpy", "pillow", *([f"torchvision=={vision}"] if vision else [])]
    )
    if not trouble:
        with open(stamp, "w"):
            pass
    return trouble


def _make(folder: str, *, shares_torch: bool) -> None:
    venv.create(folder, clear=True)  # without pip: ours installs into it
    if shares_torch:
        shared = _packages(os.path.join(ENVIRONMENTS, "torch"))
        with open(os.path.join(_packages(folder), "torch.pth"), "w") as file:
            file.write(shared + "\n")


def _packages(folder: str) -> str:
    return os.path.join(folder, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def _pip(peer: str, folder: str, packages: list[str]) -> str:
    constraints = os.path.join(ENVIRONMENTS, "constraints.txt")
    with open(constraints, "w") as file:  # nobody pulls in another build of torch, which would need several GB
        file.write("\n".join(_installed(os.path.join(ENVIRONMENTS, "torch"), ("torch", "torchvision"))))
    words = [sys.executable, "-m", "pip", "--python", os.path.join(folder, "bin", "python")]
    words += ["install", "--no-input", "--disable-pip-version-check"]
    log = os.path.join(ENVIRONMENTS, f"{peer}.log")
    with open(log, "w") as file:
        try:
            done = subprocess.run(
                [*words, "--constraint", constraints, *packages],
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=INSTALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"not installed: pip took more than {INSTALL_SECONDS} s"
    if done.returncode == 0:
        return ""
    errors = [line.strip() for line in (_content(log) or "").splitlines() if "error" in line.lower()]
    return f"not installed: {errors[-1][:160] if errors else 'pip failed'}"


def _installed(folder: str, names: tuple[str, ...]) -> Iterator[str]:
    import importlib.metadata

    for found in importlib.metadata.distributions(path=[_packages(folder)]):
        if found.metadata["Name"] in names:
            yield f"{found.metadata['Name']}=={found.version}"


def _content(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
