"""How fast is a web server?

Data A over HTTP on loopback, in turns, each time in a fresh process: webdataset 1.0.2, WebLoader, and a bare loop of
`http.client` that only receives the same bytes. The best round of each counts, with the CPU time of the process and its
children beside.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import data
import sections

HERE = os.path.dirname(os.path.realpath(__file__))
TITLE = "Web servers"
WORDS = "Data A from nginx on loopback, as samples, and by a bare loop of http.client that only receives it."
NEEDS = ("nginx",)

READ = """
import json, os, sys, time, webdataset as wds
next(iter(wds.WebDataset(sys.argv[1], shardshuffle=False)))  # what is imported at first use is imported now
used = lambda: time.process_time() + sum(os.times()[2:4])
wall, cpu = time.perf_counter(), used()
count = sum(len(sample["jpg"]) > 0 for sample in wds.WebDataset(sys.argv[1:], shardshuffle=False))
json.dump({"count": count, "wall": time.perf_counter() - wall, "cpu": used() - cpu}, sys.stdout)
"""

BARE = """
import http.client, json, os, sys, time, urllib.parse
used = lambda: time.process_time() + sum(os.times()[2:4])
wall, cpu = time.perf_counter(), used()
buffer, count = bytearray(1 << 20), 0
for url in sys.argv[1:]:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", parts.path)
    response = connection.getresponse()
    while got := response.readinto(buffer):
        count += got
    connection.close()
json.dump({"count": count, "wall": time.perf_counter() - wall, "cpu": used() - cpu}, sys.stdout)
"""


def rows(part: float, old: str) -> list[sections.Row]:
    shards = data.make(os.path.join(HERE, ".data"), part, generated=part < 0.1)["A"]
    sides = {"1.0.2": [old, READ]} if old else {}
    sides |= {"2.0": [sys.executable, READ], "bare": [sys.executable, BARE]}
    with nginx(os.path.dirname(os.path.abspath(shards[0]))) as address:
        urls = [f"{address}/{os.path.basename(shard)}" for shard in shards]
        best = in_turns(sides, urls, sections.rounds(part, 5))
    return judged(best, sum(map(os.path.getsize, shards)))


def in_turns(sides: dict[str, list[str]], urls: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """The best round of each side, `[python, program]`, in fresh processes."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, (python, program) in sides.items():
            done = subprocess.run([python, "-c", program, *urls], check=True, stdout=subprocess.PIPE)
            figures = json.loads(done.stdout)
            known = best.setdefault(name, figures)
            best[name] = {what: min(figures[what], known[what]) for what in ("wall", "cpu")}
    return best


def judged(best: dict[str, dict[str, float]], size: int) -> list[sections.Row]:
    rates = [
        (name, f"{size / figures['wall'] / 1e6:,.0f} MB/s, {figures['cpu']:.2f} s CPU", "", True)
        for name, figures in best.items()
    ]
    slower = best["2.0"]["wall"] / best["bare"]["wall"]
    told = f"{slower:.2f} times as long"
    rates.append(("2.0 against the bare loop, parsing included", told, "<= 1.15 times", slower <= 1.15))
    if "1.0.2" in best:
        wall, cpu = (best["1.0.2"][what] / best["2.0"][what] for what in ("wall", "cpu"))
        rates.append(("2.0 against 1.0.2, by the clock", f"{wall:.2f} x", ">= 2.5 x", wall >= 2.5))
        rates.append(("2.0 against 1.0.2, by CPU", f"{cpu:.2f} x", ">= 3.5 x", cpu >= 3.5))
    return rates


@contextmanager
def nginx(folder: str) -> Iterator[str]:
    """nginx on a free port of this machine, serving the folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        config = os.path.join(home, "nginx.conf")
        with open(config, "w") as file:
            file.write(
                f"daemon off; user root; pid {home}/pid; error_log {home}/errors; events {{}}\n"
                f"http {{ access_log off; sendfile on;\n"
                f"client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;\n"
                f"fastcgi_temp_path {home}/fast; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;\n"
                f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
            )
        server = subprocess.Popen(["nginx", "-c", config, "-e", f"{home}/errors"], stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def wait_for(port: int, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
