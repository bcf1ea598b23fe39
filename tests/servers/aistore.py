"""An AIStore cluster for tests: a real one if AIS_ENDPOINT is set, else a double that behaves like one.

The double is a proxy and two targets on loopback, each a server of its own, written after what a cluster of version
5.0 was seen to do: GET is answered 301, all else 307; a redirect carries `pid` and `utm`; errors are JSON; a target
refuses what was not redirected to it; a proxy answers PUT without reading the body. A target that died stays in the map
until it is noticed, then it is gone from it, with its objects: lists are shorter, reads are answered 404, and a batch
has `__404__/NAME` in the place of what nobody could reach. A target that joins answers 404 for what it should have,
until it knows of the others; then the cluster rebalances: reads find what has not moved yet, lists lack it, and say so
with a flag of their pages. A corrupt object is found out when all of it is read, and removed; whoever reads a part, a
member or a batch gets what is there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from servers.aistore_nodes import Answer, Node, Proxy, Stored, Target
from webdataset.storage.ais import smap

REAL_ENDPOINT = os.environ.get("AIS_ENDPOINT")
REAL_TOKEN = os.environ.get("AIS_AUTHN_TOKEN")


class DoubleCluster:
    """The double; its attributes make it misbehave, ask for tokens (`secret`) or sign its redirects (`signed`)."""

    def __init__(self) -> None:
        self.buckets: set[str] = set()
        self.objects: dict[str, dict[tuple[str, str], Stored]] = {"t1": {}, "t2": {}}
        self.smap = ["t1", "t2"]
        self.map_version = 1
        self.flags: dict[str, int] = {}
        self.writing = threading.Lock()
        self.meanwhile: list[Callable[[], object]] = []
        self.refusals: list[Answer] = []
        self.batch_refusals: list[Answer] = []
        self.cuts: list[int | None] = []
        self.batch_cuts: list[int | None] = []
        self.noticed_after: dict[str, int] = {}
        self.back_after: dict[str, int] = {}
        self.batch_stalls: list[int] = []
        self.closed = threading.Event()
        self.joining: set[str] = set()
        self.rebalancing = False
        self.bodies_at_proxy = 0
        self.page = 1000
        self.starting = self.garbled = self.signed = self.range_checksums = False
        self.checksums = True
        self.secret: bytes | None = None
        self.nodes = {"p1": Node(self, "p1", Proxy)} | {name: Node(self, name, Target) for name in self.objects}

    @property
    def endpoint(self) -> str:
        return self.nodes["p1"].address

    def close(self) -> None:
        self.closed.set()
        for node in self.nodes.values():
            node.kill()
            node.reservation.close()

    def place(self, bucket: str, name: str) -> str:
        """The target with the highest random weight; one that is dead stays in the map until it is noticed."""
        target = self.home(bucket, name)
        return self.place(bucket, name) if self.time_passes(target) else target

    def home(self, bucket: str, name: str) -> str:
        return max(self.active(), key=lambda each: hashlib.sha1(f"{each}/{bucket}/{name}".encode()).digest())

    def time_passes(self, target: str) -> bool:
        """A target that is asked for is noticed to be dead, or comes back, in the end."""
        for waits, happens in ((self.noticed_after, self.leave), (self.back_after, self.revive)):
            if target in waits:
                waits[target] -= 1
                if waits[target] < 0:
                    del waits[target]
                    happens(target)
                    return True
        return False

    def kill(self, target: str, *, noticed_after: int | None = None, back_after: int | None = None) -> None:
        """A target dies; the proxy notices, or it comes back, after so many redirects to it."""
        self.nodes[target].kill()
        if noticed_after is not None:
            self.noticed_after[target] = noticed_after
        if back_after is not None:
            self.back_after[target] = back_after

    def leave(self, target: str) -> None:
        """A target is not in the map any more, nor is what it held in the cluster."""
        self.nodes[target].kill()
        self.smap.remove(target)
        self.map_version += 1

    def revive(self, target: str) -> None:
        dead = self.nodes[target]
        self.nodes[target] = Node(self, target, dead.kind, dead.server_address[1])
        dead.reservation.close()
        if target in self.objects and target not in self.smap:
            self.smap.append(target)
            self.map_version += 1

    def join(self, target: str) -> None:
        """A new target is in the map, and does not know yet that others have what it should have."""
        self.objects[target] = {}
        self.nodes[target] = Node(self, target, Target)
        self.joining.add(target)
        self.smap.append(target)
        self.map_version += 1

    def rebalance(self) -> None:
        """The targets learn of each other; some objects move with each page of a list, until all have."""
        self.joining.clear()
        self.rebalancing = True

    def misplaced(self) -> list[tuple[str, tuple[str, str]]]:
        """Objects that are not where the map places them, with the targets that have them."""
        homes = self.smap if self.joining or self.rebalancing else ()
        return [(name, key) for name in homes for key in self.objects[name] if self.home(*key) != name]

    def move_some(self) -> None:
        """Half of what is left; when nothing is, the next page has no flag."""
        waiting = self.misplaced() if self.rebalancing else []
        for name, key in waiting[: len(waiting) // 2 + 1]:
            self.objects[self.home(*key)][key] = self.objects[name].pop(key)
        self.rebalancing = len(waiting) > 1

    def mirror(self) -> None:
        """Every target has every object."""
        merged = self.objects["t1"] | self.objects["t2"]
        self.objects = {name: dict(merged) for name in self.objects}

    def active(self) -> list[str]:
        """The targets that are asked for objects: those of the map that are not in maintenance."""
        return [name for name in self.smap if not self.flags.get(name)]

    def batch_target(self) -> str:
        """The target that makes the archive of a batch, alive or not."""
        chosen = self.active()[0]
        return self.batch_target() if self.time_passes(chosen) else chosen

    def map(self) -> dict[str, Any]:
        nodes = {name: {"daemon_id": name, "flags": self.flags.get(name, 0)} for name in self.smap}
        version = str(self.map_version)
        return {"uuid": "c1", "version": version, "pmap": {"p1": {"daemon_id": "p1", "flags": 2}}, "tmap": nodes}

    def listed(self, bucket: str) -> set[str]:
        """What the targets of the map list: each leaves out what should be elsewhere."""
        away = set(self.misplaced())
        held = {(target, key) for target in self.active() for key in self.objects[target]} - away
        return {name for _, (found, name) in held if found == bucket}

    def names(self, bucket: str) -> set[str]:
        return {name for each in self.objects.values() for found, name in each if found == bucket}

    def find(self, bucket: str, name: str) -> Stored:
        return next(each[bucket, name] for each in self.objects.values() if (bucket, name) in each)

    def held(self, target: str, key: tuple[str, str]) -> Stored | None:
        """What a target has, or gets from a neighbour while the cluster rebalances."""
        found = self.objects[target].get(key)
        if found is not None or not self.rebalancing:
            return found
        return next((each[key] for each in self.objects.values() if key in each), None)

    def lookup(self, bucket: str, name: str) -> bytes | None:
        """What the target that makes a batch gets of an object; nothing if nobody it can reach has it."""
        target = self.place(bucket, name)
        found = self.held(target, (bucket, name))
        return None if found is None or self.nodes[target].dead else found.data

    def remove(self, stored: Stored) -> None:
        for each in self.objects.values():
            for key in [key for key, found in each.items() if found is stored]:
                del each[key]

    def corrupt(self, bucket: str, name: str) -> bytes:
        """Another byte on the disk than was stored; returns what is there now."""
        stored = self.find(bucket, name)
        stored.checksum = stored.checksum  # that of what was stored
        stored.data, stored.is_corrupt = bytes([stored.data[0] ^ 1]) + stored.data[1:], True
        return stored.data

    def destroy(self, bucket: str) -> None:
        self.buckets.discard(bucket)
        for each in self.objects.values():
            for key in [key for key in each if key[0] == bucket]:
                del each[key]

    def signature(self, text: str) -> str:
        return hmac.new(b"redirects", text.encode(), hashlib.sha256).hexdigest()[:32]

    def seen(self, kind: str) -> list[tuple[str, str, dict[str, str]]]:
        """The requests that proxies (p) or targets (t) got."""
        return [request for name, node in self.nodes.items() if name.startswith(kind) for request in node.seen]


@dataclass
class Bucket:
    """A bucket of the cluster under test, filled without the code that is tested."""

    endpoint: str
    name: str
    double: DoubleCluster | None = None

    def url(self, name: str) -> str:
        return f"ais://{self.name}/{name}"

    def put(self, name: str, data: bytes) -> str:
        address = f"{self.endpoint}/v1/objects/{self.name}/{quote(name)}?provider=ais"
        request("PUT", request("PUT", address).headers["Location"], data)
        return self.url(name)

    def get(self, name: str) -> bytes | None:
        try:
            return request("GET", f"{self.endpoint}/v1/objects/{self.name}/{quote(name)}?provider=ais").read()
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, *answer: Any) -> Any:
        return super().redirect_request(req, *answer) if req.get_method() == "GET" else None


def request(method: str, address: str, body: bytes | None = None) -> Any:
    headers = {"Authorization": f"Bearer {REAL_TOKEN}"} if REAL_TOKEN and REAL_ENDPOINT else {}
    asked = urllib.request.Request(address, data=body, method=method, headers=headers)
    opener = urllib.request.build_opener(_Unfollowed, urllib.request.ProxyHandler({}))
    try:
        return opener.open(asked, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code in (301, 307):
            return error
        raise


@pytest.fixture
def ais_double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket in a double of its own, to be broken at will."""
    double = DoubleCluster()
    double.buckets.add("b")
    monkeypatch.setattr(smap, "CLUSTERS", defaultdict(smap.Membership))  # ports are used again
    monkeypatch.setenv("AIS_ENDPOINT", double.endpoint)
    monkeypatch.delenv("WDS_RETRIES", raising=False)
    monkeypatch.delenv("AIS_AUTHN_TOKEN", raising=False)
    yield Bucket(double.endpoint, "b", double)
    double.close()


@pytest.fixture
def ais_bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    """An empty bucket: of the cluster that AIS_ENDPOINT names, else of a double."""
    if REAL_ENDPOINT is None:
        yield request.getfixturevalue("ais_double")
        return
    bucket = Bucket(REAL_ENDPOINT.rstrip("/"), f"test-{secrets.token_hex(6)}")
    _action(bucket, "POST", "create-bck")
    yield bucket
    _action(bucket, "DELETE", "destroy-bck")


def _action(bucket: Bucket, method: str, action: str) -> None:
    address = f"{bucket.endpoint}/v1/buckets/{bucket.name}?provider=ais"
    request(method, address, json.dumps({"action": action}).encode())
