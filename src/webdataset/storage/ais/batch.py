"""Many objects of an AIStore cluster, or members of its shards, with one request: GetBatch.

The response is a tar archive with one member for each item of the request, in the same order. An empty member named
`__404__/...` stands for an item that the cluster did not find or could not reach; an archive that was given up just
ends. The reader of the archive must count, and request again what is not in it.
"""

from __future__ import annotations

import email.message
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from webdataset.errors import StorageError
from webdataset.storage.http.connect import OpenResponse
from webdataset.storage.http.faults import TRANSIENT_ERRORS, describe

from .client import JSON, AisConnector, Cluster, cluster_of, failure
from .objects import AisStream, ObjectName, object_name

MISSING = "__404__/"
SILENT_SECONDS = 5.0
"""When a response is given up: after its targets changed, a cluster waits 20 s for each item that another one has."""


@dataclass(frozen=True)
class BatchItem:
    """One item of a batch: an object, or a member of a shard."""

    url: str
    name: ObjectName

    @property
    def member(self) -> str:
        """Its name in the archive."""
        inside = self.name.query.get("archpath")
        return f"{self.name.key}/{inside}" if inside else self.name.key

    def is_called(self, name: str) -> bool:
        """Whether a member of the archive is this one; the bucket may stand before its name."""
        return name in (self.member, f"{self.name.bucket}/{self.member}")

    def is_missing(self, name: str) -> bool:
        """Whether a member of the archive says that this item, or its shard, was not found."""
        lacking = name.removeprefix(MISSING)
        shard = (self.name.key, f"{self.name.bucket}/{self.name.key}")
        return lacking != name and (self.is_called(lacking) or lacking in shard)

    def entry(self) -> dict[str, str]:
        entry = {"objname": self.name.key, "bucket": self.name.bucket, "provider": self.name.provider}
        if "namespace" in self.name.query:
            entry["uname"] = self.name.uname
        return entry | {key: text for key, text in self.name.query.items() if key == "archpath"}


def batch_item(url: str) -> BatchItem:
    """
    >>> batch_item("ais://b/a.tar?archpath=1.jpg").member
    'a.tar/1.jpg'
    """
    name = object_name(url)
    if not name.key or set(name.query) - {"archpath", "namespace"}:
        raise StorageError("a batch takes objects and members of shards (?archpath=)", url=url)
    return BatchItem(url, name)


def read_singly(item: BatchItem, **options: Any) -> bytes:
    """An item by a request of its own, which waits for a cluster in trouble; MissingShardError if it is missing."""
    with AisStream(item.url, cluster_of(item.url, **options), item.name) as stream:
        return stream.read()


def open_batch(items: Sequence[BatchItem], *, streaming: bool = True, coloc: int = 0, **options: Any) -> BatchStream:
    """The archive with these items, as a stream; `streaming=False` lets the cluster complete it first, in its memory.

    `coloc` tells the cluster that the items lie on few targets (1), or in few shards, too (2). What fails, or is silent
    for SILENT_SECONDS, is an error at once: single requests have the patience.
    """
    if not items:
        raise ValueError("a batch needs at least one item")
    cluster = cluster_of(items[0].url, **{"read_timeout": SILENT_SECONDS} | options | {"patience": 0.0})
    body = {"in": [item.entry() for item in items], "coer": True, "onob": True, "strm": streaming, "mime": ".tar"}
    body |= {"coloc": coloc} if coloc else {}
    return BatchStream(cluster, items[0].name, json.dumps(body).encode(), coloc)


class BatchStream:
    """The archive of a batch, being read."""

    def __init__(self, cluster: Cluster, first: ObjectName, body: bytes, coloc: int = 0) -> None:
        self.url = f"ais://{first.bucket}"
        self._seconds = cluster.options.read_timeout
        self._archive: memoryview | None = None
        self._place = 0
        query = {"provider": first.provider, "namespace": first.query.get("namespace")}
        query["coloc"] = str(coloc) if coloc else None  # for the proxy, which chooses the target that makes the archive
        address = cluster.address("v1", "ml", "moss", first.bucket, **query)
        connector = AisConnector(cluster, first, address, self.url, headers=JSON)
        self._response = connector.send("GET", None, body)
        try:
            if self._response.status != 200:
                raise failure(self._response, self.url)
            if (self._response.header("Content-Type") or "").startswith("multipart/"):
                self._archive = self._archive_part(self._response)
        except BaseException:
            self._response.close()
            raise

    def read(self, size: int = -1) -> bytes:
        """Some bytes as they arrive, none at the end; a response that breaks is an error."""
        if self._archive is None:
            return self._received(lambda: self._response.raw.read1(size))
        place, end = self._place, len(self._archive)
        self._place = end if size < 0 else min(place + size, end)
        return bytes(self._archive[place : self._place])

    def close(self) -> None:
        self._response.close()

    def _received(self, receive: Callable[[], bytes]) -> bytes:
        try:
            data: bytes = receive()
        except TRANSIENT_ERRORS as exn:
            raise StorageError(f"the batch was cut: {describe(exn, self._seconds)}", url=self.url) from None
        if not data and self._response.raw.length:
            raise StorageError("the batch was cut: the connection was closed", url=self.url)
        return data

    def _archive_part(self, response: OpenResponse) -> memoryview:
        """The second part of a multipart response (`streaming=False`); the first part describes it."""
        kind = email.message.Message()
        kind["Content-Type"] = response.header("Content-Type") or ""
        boundary = b"\r\n--" + (kind.get_boundary() or "").encode()
        data = self._received(response.raw.read)
        start = 0
        while (body := data.find(b"\r\n\r\n", start)) >= 0:
            if b'name="archive"' in data[start:body] or b"x-tar" in data[start:body]:
                end = data.rfind(boundary)
                return memoryview(data)[body + 4 : end if end > body else len(data)]
            start = max(data.find(boundary, body), body + 4)
        raise StorageError("the cluster's answer has no archive in it", url=self.url)
