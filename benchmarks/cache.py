"""What does the cache cost?

Two questions. A warm cache: the shards are read from the cache folder and from their own files, in turns, each time
in a fresh process; the best round of each counts, and the cache may take at most a tenth longer. A cold cache: eight
processes start at once, each reads all shards, and the server must have sent each byte once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import data
import sections

HERE = os.path.dirname(os.path.realpath(__file__))
TITLE = "Cache"
WORDS = "Data A through a cache folder, in fresh processes, the best round of each."
NEEDS = ()
SLOWER = 1.10
PROCESSES = 8

READ = """
import json, sys, time, webdataset as wds
cache, *urls = sys.argv[1:]
wall, cpu = time.perf_counter(), time.process_time()
samples = sum(1 for _ in wds.WebDataset(urls, cache_dir=cache or None, shardshuffle=False))
json.dump({"samples": samples, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}, sys.stdout)
"""


class Server:
    """Serves one folder and counts the bytes."""

    def __init__(self, folder: str) -> None:
        self.sent = 0
        lock = threading.Lock()
        outer = self

        class Handler(SimpleHTTPRequestHandler):
            def copyfile(self, source: Any, outputfile: Any) -> None:
                while piece := source.read(1 << 18):
                    outputfile.write(piece)
                    with lock:
                        outer.sent += len(piece)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Handler(*args, directory=folder))
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/{os.path.basename(path)}"


def rows(part: float, _: str) -> list[sections.Row]:
    shards = data.make(os.path.join(HERE, ".data"), part, generated=part < 0.1)["A"]
    size = sum(map(os.path.getsize, shards))
    server = Server(os.path.dirname(os.path.abspath(shards[0])))
    urls = [server.url(shard) for shard in shards]
    with tempfile.TemporaryDirectory(dir=HERE) as cache:
        cold = finished([started(cache, urls) for _ in range(PROCESSES)])
        sent = server.sent
        rounds: dict[str, list[dict[str, float]]] = {"files": [], "cache": []}
        for _ in range(sections.rounds(part, 5)):
            rounds["files"] += finished([started("", shards)])
            rounds["cache"] += finished([started(cache, urls)])
    best = {name: {what: min(one[what] for one in all) for what in ("wall", "cpu")} for name, all in rounds.items()}
    slower = {what: best["cache"][what] / best["files"][what] for what in ("wall", "cpu")}
    rates = {
        name: f"{size / figures['wall'] / 1e6:,.0f} MB/s, {figures['cpu']:.2f} s CPU" for name, figures in best.items()
    }
    once = sent == server.sent == size
    return [
        (f"cold, {PROCESSES} processes at once", f"{max(one['wall'] for one in cold):.2f} s", "", True),
        ("cold: how often each byte was sent", f"{sent / size:.3f} times", "once", once),
        ("warm: the shards' own files", rates["files"], "", True),
        ("warm: the cache", rates["cache"], "", True),
        (
            "warm: the cache against the files",
            f"{slower['wall']:.3f} times as long, {slower['cpu']:.3f} by CPU",
            f"<= {SLOWER} times",
            slower["wall"] <= SLOWER,
        ),
    ]


def started(cache: str, urls: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", READ, cache, *urls], stdout=subprocess.PIPE)


def finished(processes: list[subprocess.Popen[bytes]]) -> list[dict[str, float]]:
    results = []
    for process in processes:
        out, _ = process.communicate()
        if process.returncode != 0:
            sys.exit("bench: a reader failed")
        results.append(json.loads(out))
    return results
