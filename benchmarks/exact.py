"""What do exact epochs cost?

Batches of 64 undecoded samples, streamed through a shuffle buffer (of 1000 samples, and of as many bytes as an exact
epoch may hold) and as an exact epoch, in turns, each time in a fresh process; the best round of each counts. The data
are read once and several times, under several names, so that they fit and do not fit into the memory that an exact
epoch may hold. Also what the other promises come to: the time to restore a state at 90 % of an epoch, the memory of a
plan over 100,000 shards, and the quality of the shuffle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import data
import network
import sections

HERE = os.path.dirname(os.path.realpath(__file__))
TITLE = "Exact epochs"
WORDS = "Batches of 64 undecoded samples, streamed with shuffle(1000), and as an exact epoch (256 MiB)."
NEEDS = ("nginx",)

RUN = """
import json, os, sys, time, webdataset as wds
buffer, urls = int(sys.argv[1]), sys.argv[2:]
if buffer:
    dataset = wds.WebDataset(urls, shardshuffle=100).shuffle(buffer)
else:
    dataset = wds.WebDataset(urls, exact=True, seed=1)
dataset = dataset.batched(64, collation_fn=None)
next(iter(dataset))  # what is imported or indexed at first use is so now
used = lambda: time.process_time() + sum(os.times()[2:4])
wall, cpu = time.perf_counter(), used()
count = sum(len(batch) for batch in dataset)
json.dump({"count": count, "wall": time.perf_counter() - wall, "cpu": used() - cpu}, sys.stdout)
"""

RESTORE = """
import json, resource, sys, time
import webdataset as wds
from webdataset.indices.catalogue import Catalogue, Shard
from webdataset.exact.positions import InEpoch, in_epoch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
wall = time.perf_counter()
large = Catalogue([Shard(f"{i:06d}.tar", 10_000, 10**9) for i in range(100_000)])
dataset = wds.WebDataset(large, exact=True).batched(32)
length = len(dataset)
made = time.perf_counter() - wall
memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
urls = sys.argv[1:]
dataset = wds.WebDataset(urls, exact=True).batched(32)
steps = len(dataset)
dataset.runner.seek(in_epoch(0, InEpoch(0, int(0.9 * steps), base=int(0.9 * steps))))
state = dataset.state_dict()
fresh = wds.WebDataset(urls, exact=True).batched(32)
wall = time.perf_counter()
fresh.load_state_dict(state)
loaded = time.perf_counter() - wall
next(iter(fresh))
json.dump({"made": made, "memory": memory, "loaded": loaded, "first": time.perf_counter() - wall, "length": length,
           "state": len(json.dumps(state))}, sys.stdout)
"""


def rows(part: float, _: str) -> list[sections.Row]:
    sets = data.make(os.path.join(HERE, ".data"), part, generated=part < 0.1)
    rounds = sections.rounds(part, 3)
    found: list[sections.Row] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        for name, times, as_many in (("A", 1, 2900), ("A", 16, 2900), ("B", 1, 87_000), ("B", 4, 87_000)):
            paths = linked(folder, sets[name], times)
            what = f"{name}, local files" + (f" x {times}" if times > 1 else "")
            found += judged(what, in_turns(paths, as_many, rounds))
        with network.nginx(folder) as address:
            urls = [f"{address}/{os.path.basename(path)}" for path in linked(folder, sets["A"], 16)]
            found += judged("A x 16, nginx", in_turns(urls, 2900, rounds))
        return found + promises(linked(folder, sets["B"], 4))


def linked(folder: str, shards: list[str], times: int) -> list[str]:
    """Every shard under several names."""
    paths = []
    for turn in range(times):
        for shard in shards:
            path = os.path.join(folder, f"{turn}-{os.path.basename(shard)}")
            if not os.path.exists(path):
                os.symlink(os.path.abspath(shard), path)
            paths.append(path)
    return paths


def in_turns(urls: list[str], as_many: int, rounds: int) -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, buffer in {"streamed": 1000, "as shuffled": as_many, "exact": 0}.items():
            done = subprocess.run([sys.executable, "-c", RUN, str(buffer), *urls], check=True, stdout=subprocess.PIPE)
            figures = json.loads(done.stdout)
            known = best.setdefault(name, figures)
            best[name] = {what: min(figures[what], known[what]) for what in figures}
    assert best["streamed"]["count"] == best["exact"]["count"]
    return best


def judged(what: str, best: dict[str, dict[str, float]]) -> list[sections.Row]:
    count, plain, large, exact = best["exact"]["count"], best["streamed"], best["as shuffled"], best["exact"]
    rates = "{:,.0f}/s streamed, {:,.0f}/s exact".format(count / plain["wall"], count / exact["wall"])
    wall, cpu = exact["wall"] / plain["wall"], exact["cpu"] / plain["cpu"]
    same, same_cpu = exact["wall"] / large["wall"], exact["cpu"] / large["cpu"]
    return [
        (what, rates, "", True),
        (f"{what}: time against streaming", f"{wall:.2f} times (CPU {cpu:.2f})", "<= 1.15 times", wall <= 1.15),
        (f"{what}: with a shuffle buffer of 256 MiB", f"{same:.2f} times (CPU {same_cpu:.2f})", "", True),
    ]


def promises(paths: list[str]) -> list[sections.Row]:
    from webdataset.exact.plans import plan
    from webdataset.indices.catalogue import Catalogue, Shard

    done = subprocess.run([sys.executable, "-c", RESTORE, *paths], check=True, stdout=subprocess.PIPE)
    told = json.loads(done.stdout)
    integers = Catalogue([Shard(f"{i}.tar", 1000, 1_500_000) for i in range(100)])
    photos = Catalogue([Shard(f"{i}.tar", 10_000, 1_500_000_000) for i in range(100)])
    small = plan(integers, ranks=8, batch=32, shuffle_bytes="256MiB").shuffle_quality()
    large = plan(photos, ranks=8, batch=32, shuffle_bytes="1GiB").shuffle_quality()
    return [
        (
            "restoring at 90 %: state loaded, first batch there",
            f"{told['loaded']:.3f} s, {told['first']:.2f} s",
            "< 1 s",
            told["first"] < 1,
        ),
        ("its state", f"{told['state']} bytes", "< 64 KB", told["state"] < 65536),
        (
            "length of 100,000 shards",
            f"{told['made']:.2f} s, {told['memory'] / 1e6:.0f} MB",
            "< 1 s, 200 MB",
            told["made"] < 1 and told["memory"] < 2e8,
        ),
        quality("100 shards of sorted integers (150 MB), 256 MiB", small),
        quality("100 shards of photos (150 GB), 1 GiB", large),
    ]


def quality(what: str, found: tuple[float, float]) -> sections.Row:
    distance, same_shard = found
    good = all(abs(figure - 1) <= 0.1 for figure in found)
    return f"shuffle of {what}", f"{distance:.2f} distance, {same_shard:.2f} same-shard pairs", "within 10 %", good
