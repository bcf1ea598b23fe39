"""Many objects of an AIStore cluster, or members of its shards, with one request: GetBatch.

The answer is a tar archive with one member for each thing asked for, in the same order. The cluster does not say so
when one is missing: in the middle an empty member named `__404__/...` stands for it, at the end there is nothing.
Whoever reads the archive must count.
"""

from __future__ import annotations

import email.message
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webdataset.errors import StorageError

from .ais import Named, named
from .ais_client import AisConnector, Cluster, cluster_of, failure
from .connect import Reply
from .faults import BROKEN, described

MISSING = "__404__/"


@dataclass(frozen=True)
class Item:
    """One thing to ask for: an object, or a member of it."""

    url: str
    name: Named

    @property
    def member(self) -> str:
        """What it is called in the archive."""
        inside = self.name.query.get("archpath")
        return f"{self.name.key}/{inside}" if inside else self.name.key

    def is_called(self, name: str) -> bool:
        """Whether a member of the archive is this one; the bucket may stand before its name."""
        return name in (self.member, f"{self.name.bucket}/{self.member}")

    def entry(self) -> dict[str, str]:
        entry = {"objname": self.name.key, "bucket": self.name.bucket, "provider": self.name.provider}
        return entry | {key: text for key, text in self.name.query.items() if key == "archpath"}


def item_of(url: str) -> Item:
    """
    >>> item_of("ais://b/a.tar?archpath=1.jpg").member
    'a.tar/1.jpg'
    """
    name = named(url)
    if not name.key or set(name.query) - {"archpath"}:
        raise StorageError("a batch takes objects and members of shards (?archpath=)", url=url)
    return Item(url, name)


def open_batch(
    items: Sequence[Item], *, skip_missing: bool = False, streaming: bool = True, coloc: int = 0, **options: Any
) -> BatchStream:
    """The archive with these items, as a stream; `streaming=False` lets the cluster complete it first, in its memory.

    `coloc` tells the cluster that the items lie on few targets (1), or in few shards, too (2).
    """
    if not items:
        raise ValueError("a batch needs at least one item")
    first = items[0].name
    cluster = cluster_of(items[0].url, **options)
    body = {"in": [item.entry() for item in items], "coer": skip_missing, "onob": True, "strm": streaming}
    body |= {"mime": ".tar"} | ({"coloc": coloc} if coloc else {})
    return BatchStream(cluster, first, json.dumps(body).encode())


class BatchStream:
    """The archive of a batch, being read."""

    def __init__(self, cluster: Cluster, first: Named, body: bytes) -> None:
        self.url = f"ais://{first.bucket}"
        self._seconds = cluster.read_timeout
        self._rest: bytes | None = None
        address = cluster.address("v1", "ml", "moss", first.bucket, provider=first.provider)
        connector = AisConnector(cluster, address, self.url, headers={"Content-Type": "application/json"})
        self._reply = connector.send("GET", None, body)
        if self._reply.status != 200:
            error = failure(self._reply, self.url)
            self._reply.close()
            raise error
        if (self._reply.header("Content-Type") or "").startswith("multipart/"):
            self._rest = self._archive_part(self._reply)

    def read(self, size: int = -1) -> bytes:
        """Some bytes as they arrive, none at the end; a broken answer is an error."""
        if self._rest is not None:
            end = len(self._rest) if size < 0 else size
            data, self._rest = self._rest[:end], self._rest[end:]
            return data
        return self._received(lambda: self._reply.response.read1(size))

    def close(self) -> None:
        self._reply.close()

    def _received(self, receive: Any) -> bytes:
        try:
            data: bytes = receive()
        except BROKEN as exn:
            raise StorageError(f"the batch was cut: {described(exn, self._seconds)}", url=self.url) from None
        if not data and self._reply.response.length:
            raise StorageError("the batch was cut: the connection was closed", url=self.url)
        return data

    def _archive_part(self, reply: Reply) -> bytes:
        """The second part of the answer of a cluster that completed the archive first; the first part describes it."""
        kind = email.message.Message()
        kind["Content-Type"] = reply.header("Content-Type") or ""
        boundary = (kind.get_boundary() or "").encode()
        pieces = self._received(reply.response.read).split(b"--" + boundary)
        for piece in pieces[1:]:
            head, _, data = piece.partition(b"\r\n\r\n")
            if b'name="archive"' in head or b"x-tar" in head:
                return data.removesuffix(b"\r\n")
        raise StorageError("the cluster's answer has no archive in it", url=self.url)
