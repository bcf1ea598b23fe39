"""How fast is a web server? `python benchmarks/network.py [--quick]`, after `./run servers` (it needs nginx).

Data A over HTTP on loopback, in turns, each time in a fresh process: webdataset 1.0.2, WebLoader, and a bare loop of
`http.client` that only receives the same bytes. The best round of each counts, with the CPU time of the process and its
children beside.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import data
import versus

HERE = os.path.dirname(os.path.realpath(__file__))

READ = """
import json, os, sys, time, webdataset as wds
next(iter(wds.WebDataset(sys.argv[1], shardshuffle=False)))  # what is imported at first use is imported now
wall, cpu = time.perf_counter(), sum(os.times()[:4])
count = sum(len(sample["jpg"]) > 0 for sample in wds.WebDataset(sys.argv[1:], shardshuffle=False))
json.dump({"count": count, "wall": time.perf_counter() - wall, "cpu": sum(os.times()[:4]) - cpu}, sys.stdout)
"""

BARE = """
import http.client, json, os, sys, time, urllib.parse
wall, cpu = time.perf_counter(), sum(os.times()[:4])
buffer, count = bytearray(1 << 20), 0
for url in sys.argv[1:]:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", parts.path)
    response = connection.getresponse()
    while got := response.readinto(buffer):
        count += got
    connection.close()
json.dump({"count": count, "wall": time.perf_counter() - wall, "cpu": sum(os.times()[:4]) - cpu}, sys.stdout)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, two rounds")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if shutil.which("nginx") is None:
        print("network: nginx is needed; cure: ./run servers", file=sys.stderr)
        return 2
    shards = data.make(os.path.join(HERE, ".data"), 0.1 if options.quick else 1.0)["A"]
    size = sum(map(os.path.getsize, shards))
    sides = {"1.0.2": (versus.old_python(), READ), "2.0": (sys.executable, READ), "bare": (sys.executable, BARE)}
    best: dict[str, dict[str, float]] = {}
    with nginx(os.path.dirname(os.path.abspath(shards[0]))) as address:
        urls = [f"{address}/{os.path.basename(shard)}" for shard in shards]
        for _ in range(2 if options.quick else options.rounds):
            for name, (python, program) in sides.items():
                done = subprocess.run([python, "-c", program, *urls], check=True, stdout=subprocess.PIPE)
                figures = json.loads(done.stdout)
                known = best.setdefault(name, figures)
                best[name] = {what: min(figures[what], known[what]) for what in ("wall", "cpu")}
    return judged(best, size)


def judged(best: dict[str, dict[str, float]], size: int) -> int:
    for name, figures in best.items():
        print(f"{name:6} {size / figures['wall'] / 1e6:8,.0f} MB/s  {figures['cpu']:.3f} s CPU")
    wall, cpu = (best["1.0.2"][what] / best["2.0"][what] for what in ("wall", "cpu"))
    slower = best["2.0"]["wall"] / best["bare"]["wall"]
    good = wall >= 2.5 and cpu >= 3.5 and slower <= 1.15
    print(f"against 1.0.2: {wall:.2f} x by the clock (>= 2.5), {cpu:.2f} x by CPU (>= 3.5)")
    print(f"against a bare loop: {slower:.2f} times as long (<= 1.15), parsing included")
    return 0 if good else 1


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


if __name__ == "__main__":
    sys.exit(main())
