"""How fast are the commands? `python benchmarks/commands.py [--samples N]`.

100,000 small samples go through each command, which may take at most five times as long as reading them does, in CPU
time of a fresh process, the best of three rounds. Then the commands stand beside GNU tar where both do the
same job: concatenation, and a command for each file.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

import webdataset as wds

SLOWER = 5.0
ROUNDS = 3
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shards = make_shards(folder, options.samples)
        read, _ = best([sys.executable, "-c", READ, *shards])
        print(f"{'bare read':24}{read:6.2f} s CPU")
        slow = 0
        for name, words in COMMANDS.items():
            cpu, _ = best([*WL, *words, *shards, "-o", f"{folder}/out-%06d.tar"])
            slow += cpu > SLOWER * read
            print(f"{name:24}{cpu:6.2f} s CPU  {cpu / read:4.1f} x the read")
        beside_tar(folder, shards)
    return 1 if slow else 0


def beside_tar(folder: str, shards: list[str]) -> None:
    """The same jobs, by GNU tar."""
    script = f"cp {shards[0]} {folder}/all.tar && tar -Af {folder}/all.tar {' '.join(shards[1:])}"
    _, tar = best(["bash", "-c", script])
    _, ours = best([*WL, "concat", *shards, "-o", f"{folder}/all.tar"])
    print(f"{'concatenation':24}tar -A {tar:.2f} s, wl concat {ours:.2f} s")
    few = f"{folder}/few.tar"
    subprocess.run([*WL, "concat", "-f", "jpg", "-c", "500", shards[0], "-o", few], check=True)
    _, tar = best(["tar", "-xf", few, "--to-command", "gzip > /dev/null"])
    cores = ["--shell", "sh", "-P", str(os.cpu_count())]
    _, ours = best([*WL, "xargs", *cores, "-c", "gzip sample.jpg", few, "-o", f"{folder}/gz.tar"])
    print(f"{'500 commands':24}tar --to-command {tar:.2f} s, wl xargs {ours:.2f} s")


def make_shards(folder: str, samples: int) -> list[str]:
    chance = random.Random(0)
    order = list(range(samples))
    chance.shuffle(order)
    shards: list[str] = []
    with wds.ShardWriter(f"{folder}/in-%06d.tar", maxcount=25_000, post=shards.append, verbose=0) as sink:
        for number in order:
            sink.write({"__key__": f"{number:08d}", "cls": number % 1000, "jpg": chance.randbytes(1000)})
    return shards


def best(argv: list[str]) -> tuple[float, float]:
    """CPU and wall time of a process and its children, each the best of some rounds."""
    rounds = [measured(argv) for _ in range(ROUNDS)]
    return min(cpu for cpu, _ in rounds), min(wall for _, wall in rounds)


def measured(argv: list[str]) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


if __name__ == "__main__":
    sys.exit(main())
