"""What the double of AIStore makes of objects: members of shards, and the archive of a batch."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from typing import Any

Lookup = Callable[[str, str], "bytes | None"]


def member_of(shard: bytes, path: str) -> bytes | None:
    with tarfile.open(fileobj=io.BytesIO(shard)) as tar:
        try:
            file = tar.extractfile(path)
        except KeyError:
            return None
        return file.read() if file else None


def archive_of(message: dict[str, Any], bucket: str, lookup: Lookup) -> tuple[int, bytes, str]:
    """Status, archive, and the metadata (or the message of an error).

    A cluster that streams has answered 200 before it knows: what is missing becomes an empty member, and is simply
    absent if it is the last.
    """
    entries = [(entry, _data(entry, bucket, lookup)) for entry in message["in"]]
    strict = not message.get("coer")
    if strict and not message["strm"] and any(data is None for _, data in entries):
        return 404, b"", "some of the requested items do not exist"
    file, metadata = io.BytesIO(), []
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number, (entry, data) in enumerate(entries):
            name = "/".join(filter(None, [entry["objname"], entry.get("archpath")]))
            if not message.get("onob"):
                name = f"{_bucket(entry, bucket)}/{name}"
            # as seen: items of other targets come back with another name
            told = {"objname": name, "archpath": "", "bucket": bucket, "provider": "", "size": len(data or b"")}
            metadata.append(told | ({} if data is not None else {"err_msg": "not found"}))
            if data is None and strict and number == len(entries) - 1:
                continue
            info = tarfile.TarInfo(name if data is not None else f"__404__/{_missing(entry, bucket, lookup, name)}")
            info.size = len(data or b"")
            tar.addfile(info, io.BytesIO(data or b""))
    return 200, file.getvalue(), json.dumps({"uuid": "x", "out": metadata})


def _data(entry: dict[str, Any], bucket: str, lookup: Lookup) -> bytes | None:
    found = lookup(_bucket(entry, bucket), entry["objname"])
    return member_of(found, entry["archpath"]) if found is not None and entry.get("archpath") else found


def _missing(entry: dict[str, Any], bucket: str, lookup: Lookup, name: str) -> str:
    """Where the whole shard is missing, that is what the archive names."""
    absent = entry.get("archpath") and lookup(_bucket(entry, bucket), entry["objname"]) is None
    return name.removesuffix(f"/{entry['archpath']}") if absent else name


def _bucket(entry: dict[str, Any], bucket: str) -> str:
    if not entry.get("uname"):
        return str(entry.get("bucket") or bucket)
    _, namespace, name, _ = entry["uname"].split("/", 3)
    return in_namespace(namespace, name)


def in_namespace(namespace: str, bucket: str) -> str:
    """A bucket by its full name: `@cluster#space/bucket`, or just `bucket`."""
    cluster, _, space = namespace.removeprefix("@").partition("#")
    return f"@{cluster}#{space}/{bucket}" if cluster or space else bucket
