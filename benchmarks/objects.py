"""How fast is an object store?

Data A in a bucket of Ceph's gateway on loopback, in turns, each time in a fresh process: WebLoader from s3: urls,
parsing included, and a bare loop of `http.client` that only receives the same objects from the same server, with
signatures made beforehand. The best round of each counts. S3 may take a fifth longer.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from functools import partial

import data
import network
import sections

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))

TITLE = "Object stores"
WORDS = "Data A from Ceph's gateway on loopback, against a bare loop that receives the same objects."
NEEDS = ("radosgw",)
SLOWER = 1.20

BARE = """
import http.client, json, os, sys, time, urllib.parse
from webdataset.storage.stores.s3 import S3Client
clients = [S3Client(url) for url in sys.argv[1:]]
asked = [(client.address(), client.prepare("GET", client.address(), {})) for client in clients]
used = lambda: time.process_time() + sum(os.times()[2:4])
wall, cpu = time.perf_counter(), used()
buffer, count = bytearray(1 << 20), 0
for address, headers in asked:
    parts = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", parts.path, headers=headers)
    response = connection.getresponse()
    assert response.status == 200, response.status
    while got := response.readinto(buffer):
        count += got
    connection.close()
json.dump({"count": count, "wall": time.perf_counter() - wall, "cpu": used() - cpu}, sys.stdout)
"""


def rows(part: float, _: str) -> list[sections.Row]:
    shards = data.make(os.path.join(HERE, ".data"), part, generated=part < 0.1)["A"]
    best = measured(shards, sections.rounds(part, 5))
    slower = best["s3:"]["wall"] / best["bare"]["wall"]
    size = sum(map(os.path.getsize, shards))
    found: list[sections.Row] = [
        (f"{name}, {words}", f"{size / best[name]['wall'] / 1e6:,.0f} MB/s, {best[name]['cpu']:.2f} s CPU", "", True)
        for name, words in {"s3:": "as samples", "bare": "http.client"}.items()
    ]
    return [*found, ("s3: against bare", f"{slower:.2f} times as long", f"<= {SLOWER} times", slower <= SLOWER)]


def measured(shards: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """The best round of each side."""
    from servers import ceph, moto, programs

    with (
        tempfile.TemporaryDirectory() as folder,
        programs.served(partial(ceph.cluster, pathlib.Path(folder)), 2) as ports,
    ):
        server = moto.S3Server(ports[1])
        os.environ.update(server.environment() | {"AWS_EC2_METADATA_DISABLED": "true"})
        bucket = server.bucket()
        urls = [f"{bucket}/{os.path.basename(shard)}" for shard in shards]
        for shard, url in zip(shards, urls, strict=True):
            server.store(url, pathlib.Path(shard).read_bytes())
        return network.in_turns({"s3:": [sys.executable, network.READ], "bare": [sys.executable, BARE]}, urls, rounds)
