"""How fast is an object store? `python benchmarks/objects.py [--quick] [--save]`, after `./run servers`.

Data A in a bucket of Ceph's gateway on loopback, in turns, each time in a fresh process: WebLoader from s3: urls,
parsing included, and a bare loop of `http.client` that only receives the same objects from the same server, with
signatures made beforehand. The best round of each counts. S3 may take a fifth longer.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

import data
import network
import sections

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))

SLOWER = 1.20

BARE = """
import http.client, json, os, sys, time, urllib.parse
from webdataset.storage.stores.s3 import S3Client
clients = [S3Client(url) for url in sys.argv[1:]]
asked = [(client.address(), client.prepare("GET", client.address(), {})) for client in clients]
wall, cpu = time.perf_counter(), sum(os.times()[:4])
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
json.dump({"count": count, "wall": time.perf_counter() - wall, "cpu": sum(os.times()[:4]) - cpu}, sys.stdout)
"""


def main() -> int:
    options = sections.options(__doc__, rounds=7, needs="radosgw")
    shards = data.make(os.path.join(HERE, ".data"), options.part)["A"]
    best = measured(shards, options.rounds)
    slower = best["s3:"]["wall"] / best["bare"]["wall"]
    size = sum(map(os.path.getsize, shards))
    rows = [
        (f"{name}, {words}", f"{size / best[name]['wall'] / 1e6:,.0f} MB/s, {best[name]['cpu']:.2f} s CPU", "", True)
        for name, words in {"s3:": "as samples", "bare": "http.client"}.items()
    ]
    rows.append(("s3: against bare", f"{slower:.2f} times as long", f"<= {SLOWER} times", slower <= SLOWER))
    print(sections.shown(rows))
    if options.save:
        words = "Data A from Ceph's gateway on loopback, against a bare loop that receives the same objects."
        sections.save("objects", "Object stores", words, rows)
    return 0 if slower <= SLOWER or options.quick else 1


def measured(shards: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """The best round of each side."""
    from servers import ceph, moto

    with tempfile.TemporaryDirectory() as folder, ceph.cluster(pathlib.Path(folder)) as port:
        server = moto.S3Server(port)
        os.environ.update(server.environment() | {"AWS_EC2_METADATA_DISABLED": "true"})
        bucket = server.bucket()
        urls = [f"{bucket}/{os.path.basename(shard)}" for shard in shards]
        for shard, url in zip(shards, urls, strict=True):
            server.store(url, pathlib.Path(shard).read_bytes())
        return network.in_turns({"s3:": [sys.executable, network.READ], "bare": [sys.executable, BARE]}, urls, rounds)


if __name__ == "__main__":
    sys.exit(main())
