"""How fast are the commands?

100,000 small samples go through each command, which may take at most five times as long as reading them does, in CPU
time of a fresh process, the best of some rounds; help must be there within 80 ms. With all cores, a command must take
less time by the clock than with one. Then the commands stand beside GNU tar where both do the same job: concatenation,
and a command for each file; they take turns, and all write new files. Where the programs of tarproc are in
benchmarks/.peers/tarproc (`pip install tarproc==0.0.6` with Python 3.10, the last that runs it), the same command
lines run there and here.

Modules are compiled once, as they are where the package is installed.
"""

from __future__ import annotations

import glob
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

import sections

import webdataset as wds
from webdataset import cli

HERE = os.path.dirname(os.path.realpath(__file__))
TARPROC = os.path.join(HERE, ".peers", "tarproc", "bin")
TITLE = "Commands"
WORDS = "100,000 samples of 1 KB, in fresh processes, the best of two rounds."
NEEDS = ()
SLOWER = 5.0
START_UP = 0.08
READ = "import sys, webdataset as wds\nfor sample in wds.WebDataset(sys.argv[1:], shardshuffle=False): pass"
WL = [sys.executable, "-m", "webdataset"]

COMMANDS = {
    "concat": ["concat"],
    "map, identity": ["map", "-e", "_"],
    "map, one field": ["map", "-c", '_["cls"] -= 1'],
    "split": ["split"],
    "sort": ["sort"],
    "sort by a field": ["sort", "-k", "cls", "--as", "int"],
    "sort through files": ["sort", "--memory", "20M"],
    "shuffle": ["shuffle", "--seed", "1"],
    "shuffle through files": ["shuffle", "--seed", "1", "--memory", "20M"],
}
Turns = Callable[..., list[tuple[float, float]]]
WITH_CORES = ("map, identity", "map, one field", "shuffle", "shuffle through files")


def rows(part: float, _: str) -> list[sections.Row]:
    samples = int(100_000 * part)
    turns = partial(taking_turns, rounds=sections.rounds(part, 2))
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        shards = make_shards(folder, samples)
        found = against_reading(folder, shards, turns)
        found += [start_up(turns), *beside_tar(folder, shards, samples, turns)]
        if os.path.isdir(TARPROC):
            found += beside_tarproc(folder, shards, TARPROC, turns)
    return found


def against_reading(folder: str, shards: list[str], turns: Turns) -> list[sections.Row]:
    """What each command takes, against reading alone; and against itself with several cores, by the clock."""
    cores = str(max(os.cpu_count() or 1, 2))
    [(read, _)] = turns([sys.executable, "-c", READ, *shards])
    rows: list[sections.Row] = [("reading alone", f"{read:.2f} s CPU", "", True)]
    for name, words in COMMANDS.items():
        argv = [*WL, *words, *shards, "-o", f"{folder}/out-%06d.tar"]
        new = f"{folder}/out-*.tar"
        one, *more = turns(argv, *([[*argv, "-P", cores]] if name in WITH_CORES else []), new=new)
        times = one[0] / read
        rows.append((name, f"{one[0]:.2f} s CPU, {times:.1f} x reading", f"<= {SLOWER:.0f} x", times <= SLOWER))
        for cpu, wall in more:
            told = f"{wall:.2f} s, {cpu:.2f} s CPU; with one core {one[1]:.2f} s"
            rows.append((f"{name}, -P {cores}", told, "less time", wall <= one[1]))
    return rows


def start_up(turns: Turns) -> sections.Row:
    """The slowest help."""
    times = {name: turns([*WL, name, "--help"])[0][0] for name in cli.COMMANDS}
    slowest = max(times, key=lambda name: times[name])
    taken = times[slowest]
    return f"wl {slowest} --help, the slowest", f"{taken * 1000:.0f} ms CPU", "<= 80 ms", taken <= START_UP


def beside_tar(folder: str, shards: list[str], samples: int, turns: Turns) -> list[sections.Row]:
    """The same jobs, by GNU tar."""
    rows = []
    photographs = make_shards(folder, samples // 10, size=90_000, name="photo")
    for name, parts in (("small samples", shards), ("of 90 KB", photographs)):
        whole = f"{folder}/all.tar"
        script = f"cp {parts[0]} {whole} && tar -Af {whole} {' '.join(parts[1:])}"
        tar, ours = turns(["bash", "-c", script], [*WL, "concat", *parts, "-o", whole], new=whole)
        rows.append(beside(f"concat, {name}", "tar -A", tar, ours))
    few, count = f"{folder}/few.tar", samples // 50
    subprocess.run([*WL, "concat", "-q", "-f", "jpg", "-c", str(count), shards[0], "-o", few], check=True)
    cores = ["--shell", "sh", "-P", str(os.cpu_count())]
    tar, ours = turns(
        ["tar", "-xf", few, "--to-command", "gzip > /dev/null"],
        [*WL, "xargs", *cores, "-c", "gzip < sample.jpg > /dev/null", few, "-o", f"{folder}/gz.tar"],
        new=f"{folder}/gz.tar",
    )
    return [*rows, beside(f"xargs, {count} commands", "tar --to-command", tar, ours)]


def beside_tarproc(folder: str, shards: list[str], programs: str, turns: Turns) -> list[sections.Row]:
    """The same command lines, by tarproc's programs and by ours of the same names."""
    some = f"{folder}/some.tar"
    subprocess.run([*WL, "concat", "-c", "500", shards[0], "-o", some], check=True)
    new = f"{folder}/made"
    lines = {
        "tarcats": [*shards, "-o", f"{new}.tar"],
        "tarsort": [shards[0], "-o", f"{new}.tar"],
        "tarsplit": ["-n", "5000", shards[0], "-o", new],
        "tarproc": ["-p", str(os.cpu_count()), "-c", "gzip sample.jpg", some, "-o", f"{new}.tar"],
    }
    ours = os.path.dirname(sys.executable)
    return [
        beside(name, "tarproc's", *turns([f"{programs}/{name}", *words], [f"{ours}/{name}", *words], new=f"{new}*"))
        for name, words in lines.items()
    ]


def beside(job: str, other: str, theirs: tuple[float, float], ours: tuple[float, float]) -> sections.Row:
    told = f"{ours[1]:.2f} s ({ours[0]:.2f} CPU), {other} {theirs[1]:.2f} s ({theirs[0]:.2f} CPU)"
    return job, told, "ahead", ours[1] <= theirs[1]


def make_shards(folder: str, samples: int, *, size: int = 1000, name: str = "in") -> list[str]:
    chance = random.Random(0)
    order = list(range(samples))
    chance.shuffle(order)
    shards: list[str] = []
    with wds.ShardWriter(f"{folder}/{name}-%06d.tar", maxcount=samples // 4, post=shards.append, verbose=0) as sink:
        for number in order:
            sink.write({"__key__": f"{number:08d}", "cls": number % 1000, "jpg": chance.randbytes(size)})
    return shards


def taking_turns(*argvs: list[str], rounds: int, new: str = "") -> list[tuple[float, float]]:
    """CPU and wall time of each with its children, the best of some rounds; no file of the pattern `new` is there."""
    found: list[list[tuple[float, float]]] = []
    for _ in range(rounds):
        found.append([])
        for argv in argvs:
            for path in glob.glob(new):
                os.unlink(path)
            found[-1].append(measured(argv))
    return [(min(cpu for cpu, _ in turns), min(wall for _, wall in turns)) for turns in zip(*found, strict=True)]


def measured(argv: list[str]) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall
