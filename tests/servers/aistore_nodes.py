"""The nodes of the double of an AIStore cluster: a proxy that redirects, and targets that have the data."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from servers.aistore_objects import archive_of, in_namespace, member_of
from webdataset.storage.ais import xxhash

PAGE_LIMIT = 10_000


def checksum_of(data: bytes) -> str:
    return xxhash.xxh64(data)


@dataclass
class Stored:
    data: bytes
    version: int = 1
    is_corrupt: bool = False

    @cached_property
    def checksum(self) -> str:
        """That of the data as it was stored."""
        return checksum_of(self.data)


@dataclass
class Answer(Exception):
    """What a node says instead of going on."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    message: str = ""
    code: str = "Err"
    cut: int | None = None
    chunked: bool = False
    stall: int | None = None


class Node(ThreadingHTTPServer):
    """A proxy or a target: it can die and come back on the same port."""

    daemon_threads = True
    allow_reuse_address = True
    allow_reuse_port = True

    def __init__(self, cluster: Any, name: str, handler: type[Handler], port: int = 0) -> None:
        self.reservation = socket.socket()  # while the node is dead, nobody else gets its port
        self.reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.reservation.bind(("127.0.0.1", port))
        super().__init__(self.reservation.getsockname(), handler)
        self.cluster = cluster
        self.name = name
        self.kind = handler
        self.open: set[socket.socket] = set()
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.dead = False
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def kill(self) -> None:
        """As kill -9 does: the port is closed, and every connection is reset."""
        if self.dead:
            return
        self.dead = True
        self.shutdown()
        self.server_close()
        for each in list(self.open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class Handler(BaseHTTPRequestHandler):
    """What proxies and targets have in common."""

    protocol_version = "HTTP/1.1"
    server: Node

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one(self) -> None:
        node = self.server
        if not self.path.startswith("/v1/daemon"):
            node.seen.append((self.command, self.path, {name.lower(): text for name, text in self.headers.items()}))
        parts = urlsplit(self.path)
        try:
            self.answer(node.cluster, unquote(parts.path).strip("/").split("/"), dict(parse_qsl(parts.query)))
        except Answer as answer:
            self.send(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def answer(self, cluster: Any, path: list[str], query: dict[str, str]) -> None:
        raise NotImplementedError

    def send(self, answer: Answer) -> None:
        body, headers = answer.body, dict(answer.headers)
        if answer.message:
            told = {"status": answer.status, "message": answer.message, "method": self.command, "url_path": self.path}
            told |= {"remote_addr": "127.0.0.1", "node": self.server.name, "tcode": answer.code, "caller": ""}
            body = json.dumps(told).encode()
            if self.command == "HEAD":
                headers["Hdr-Error"], body = json.dumps(told), b""
        self.send_response(answer.status)
        if answer.chunked:
            headers["Transfer-Encoding"] = "chunked"
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _pieces(body, 5000)) + b"0\r\n\r\n"
        else:
            headers.setdefault("Content-Length", str(len(body)))
        if headers.get("Connection") == "close" or answer.cut is not None:
            self.close_connection = True
        for name, text in headers.items():
            if text:
                self.send_header(name, text)
        self.end_headers()
        if answer.stall is not None:
            self.wfile.write(body[: answer.stall])
            self.server.cluster.closed.wait()  # silent for longer than any test waits
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(body if answer.cut is None else body[: answer.cut])

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


class Proxy(Handler):
    def answer(self, cluster: Any, path: list[str], query: dict[str, str]) -> None:
        if path[:2] == ["v1", "health"]:
            raise Answer(503 if cluster.starting else 200)
        if cluster.refusals and path[:2] != ["v1", "daemon"]:
            refusal = cluster.refusals.pop(0)
            self.close_connection = True
            raise refusal
        self.check_token(cluster)
        if path[:2] == ["v1", "daemon"]:
            raise Answer(200, json.dumps(cluster.map()).encode(), {"Content-Type": "application/json"})
        if path[:2] == ["v1", "buckets"]:
            self.bucket(cluster, bucket_in(query, path[2]), query)
        name = path[3] if path[:3] == ["v1", "ml", "moss"] else path[2] if path[0] == "v1" else path[1]
        bucket = bucket_in(query, name)
        if bucket not in cluster.buckets:
            raise Answer(404, message=f'bucket "ais://{bucket}" does not exist')
        if path[:3] == ["v1", "ml", "moss"]:
            self.body()  # read over, so that the connection can be used again
            self.redirect(cluster, cluster.batch_target(), 307, self.path.replace("?", "/xid/wid/1?", 1))
        name = "/".join(path[3 if path[0] == "v1" else 2 :])
        if int(self.headers.get("Content-Length") or 0):
            cluster.bodies_at_proxy += 1
        status = 301 if self.command == "GET" and path[0] == "v1" else 307
        self.redirect(cluster, cluster.place(bucket, name), status, self.path)

    def redirect(self, cluster: Any, target: str, status: int, path: str) -> None:
        location = path + ("&" if "?" in path else "?") + f"pid=proxy1&utm={time.time_ns()}"
        if cluster.signed:
            location += f"&sig={cluster.signature(location)}"
        headers = {"Location": cluster.nodes[target].address + location}
        if self.command == "PUT":
            headers["Connection"] = "close"
        raise Answer(status, headers=headers)

    def check_token(self, cluster: Any) -> None:
        if cluster.secret is None:
            return
        claims = claims_of(self.headers.get("Authorization"), cluster.secret)
        if claims is None:
            raise Answer(401, message="token required")
        if claims["exp"] < time.time():
            raise Answer(401, message="token expired")
        if not claims.get("admin") and self.command not in claims.get("methods", ()):
            raise Answer(403, message="no permission")

    def bucket(self, cluster: Any, bucket: str, query: dict[str, str]) -> None:
        message = json.loads(self.body() or b"{}")
        if self.command == "POST":
            if bucket in cluster.buckets:
                raise Answer(409, message="ErrBucketAlreadyExists")
            cluster.buckets.add(bucket)
            raise Answer(200)
        if bucket not in cluster.buckets:
            raise Answer(404, message=f'bucket "{query.get("provider")}://{bucket}" does not exist')
        if self.command == "DELETE":
            cluster.destroy(bucket)
            raise Answer(200)
        if any(cluster.nodes[name].dead for name in cluster.active()):
            raise Answer(400, message="failed to list: connection refused", code="ErrFailedTo")
        value = message["value"]
        limit = min(int(value.get("pagesize") or cluster.page), PAGE_LIMIT)
        after = value.get("continuation_token") or ""
        names = sorted(name for name in cluster.listed(bucket) if name.startswith(value.get("prefix") or ""))
        names = [name for name in names if name > after]
        page = [
            {"name": name, "size": str(len(cluster.find(bucket, name).data)), "flags": 64} for name in names[:limit]
        ]
        more = page[-1]["name"] if len(names) > limit else ""
        told = {"uuid": "u1", "entries": page or None, "continuation_token": more, "flags": int(cluster.rebalancing)}
        cluster.move_some()
        raise Answer(200, json.dumps(told).encode(), {"Content-Type": "application/json"})


class Target(Handler):
    def answer(self, cluster: Any, path: list[str], query: dict[str, str]) -> None:
        self.check_redirected(cluster, query)
        if path[:3] == ["v1", "ml", "moss"]:
            self.batch(cluster, bucket_in(query, path[3]))
        bucket, name = (path[2], "/".join(path[3:])) if path[0] == "v1" else (path[1], "/".join(path[2:]))
        bucket = bucket_in(query, bucket)
        mine = cluster.objects[self.server.name]
        if self.command == "PUT":
            self.store(mine, bucket, name)
        found = cluster.held(self.server.name, (bucket, name))
        if found is None:
            raise Answer(404, message=f'object "ais://{bucket}/{name}" does not exist')
        if self.command == "DELETE":
            del mine[bucket, name]
            raise Answer(200)
        self.give(cluster, found, query)

    def check_redirected(self, cluster: Any, query: dict[str, str]) -> None:
        if "pid" not in query and (self.command == "PUT" or cluster.secret):
            raise Answer(403 if cluster.secret else 400, message="expected to be redirected")
        if cluster.signed:
            signed, _, signature = self.path.rpartition("&sig=")
            if signature != cluster.signature(signed):
                raise Answer(401, message="the signature of the redirect is wrong")

    def store(self, mine: dict[tuple[str, str], Stored], bucket: str, name: str) -> None:
        data = self.body()
        if len(data) < int(self.headers["Content-Length"]):
            self.close_connection = True
            raise Answer(400, message="short body")
        claimed = self.headers.get("Ais-Checksum-Value")
        if claimed and claimed != checksum_of(data):
            raise Answer(500, message="ErrBadCksum", code="ErrBadCksum")
        answer = self.publish(mine, (bucket, name), data, claimed)
        if self.server.cluster.meanwhile:
            self.server.cluster.meanwhile.pop(0)()
        raise answer

    def publish(self, mine: dict[tuple[str, str], Stored], key: tuple[str, str], data: bytes, claimed: Any) -> Answer:
        """The last one wins; nothing happens, and nothing is told, if the same bytes are there already."""
        with self.server.cluster.writing:
            before = mine.get(key)
            if claimed and before is not None and before.checksum == claimed:
                return Answer(200)
            mine[key] = stored = Stored(data, before.version + 1 if before else 1)
        return Answer(200, headers=self.described(stored))

    def described(self, found: Stored) -> dict[str, str]:
        headers = {"Ais-Checksum-Type": "xxhash2", "Ais-Checksum-Value": found.checksum, "Ais-Atime": "1"}
        if not self.server.cluster.checksums:
            del headers["Ais-Checksum-Type"], headers["Ais-Checksum-Value"]
        return headers | {"Ais-Version": str(found.version)}

    def give(self, cluster: Any, found: Stored, query: dict[str, str]) -> None:
        headers = self.described(found) | {"Ais-Present": "true", "Accept-Ranges": "bytes"}
        wanted, data = self.headers.get("Range"), found.data
        if self.command == "HEAD":  # an empty object has no length
            raise Answer(200, headers=headers | {"Content-Length": str(len(data) or "")})
        if "archpath" in query:
            if wanted:
                raise Answer(400, message="range is not supported with archpath")
            data = member_of(data, query["archpath"])
            if data is None:
                raise Answer(404, message=f'file "{query["archpath"]}" not found')
            headers = {"Ais-Archpath": quote(query["archpath"])}
        if "etl_name" in query:
            if query["etl_name"] != "upper":
                raise Answer(501, message="etl is not supported")
            data, headers = data.upper() + query.get("etl_args", "").encode(), {}
        if not wanted and headers.get("Ais-Version") and found.is_corrupt:
            cluster.remove(found)
            raise Answer(500, message="ErrBadCksum: bad checksum", code="ErrBadCksum")
        status, cut = 200, cluster.cuts.pop(0) if cluster.cuts else None
        if wanted:
            start, last = _range(wanted, len(data))
            headers |= {"Content-Range": f"bytes {start}-{last}/{len(data)}"}
            data, status = data[start : last + 1], 206
            if cluster.range_checksums:
                headers["Ais-Checksum-Value"] = checksum_of(data)
        if cluster.garbled:
            data = bytes([data[0] ^ 1]) + data[1:]
        raise Answer(status, data, headers, cut=cut)

    def batch(self, cluster: Any, bucket: str) -> None:
        message = json.loads(self.body())
        if cluster.batch_refusals:
            raise cluster.batch_refusals.pop(0)
        status, archive, told = archive_of(message, bucket, cluster.lookup)
        if status != 200:
            raise Answer(status, message=told)
        cut = cluster.batch_cuts.pop(0) if cluster.batch_cuts else None
        stall = cluster.batch_stalls.pop(0) if cluster.batch_stalls else None
        if message["strm"]:
            raise Answer(200, archive, {"Content-Type": "application/x-tar"}, cut=cut, chunked=True, stall=stall)
        parts = [("metadata", "application/json", told.encode()), ("archive", "application/x-tar", archive)]
        body = b"".join(
            b'--bd\r\nContent-Disposition: form-data; name="%b"\r\nContent-Type: %b\r\n\r\n%b\r\n'
            % (name.encode(), kind.encode(), data)
            for name, kind, data in parts
        )
        raise Answer(200, body + b"--bd--\r\n", {"Content-Type": "multipart/mixed; boundary=bd"}, cut=cut, stall=stall)


def bucket_in(query: dict[str, str], name: str) -> str:
    """The bucket's name, with the namespace before it if there is one."""
    return in_namespace(query.get("namespace", ""), name)


def token(secret: bytes, *, admin: bool = True, seconds: float = 60, methods: tuple[str, ...] = ()) -> str:
    """A JWT signed with HS256; one who is no admin may use these methods."""
    claims = {"sub": "me", "exp": int(time.time() + seconds), "admin": admin, "methods": methods}
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    return f"{text}.{_base64(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def claims_of(header: str | None, secret: bytes) -> dict[str, Any] | None:
    kind, _, jwt = (header or "").partition(" ")
    text, _, signature = jwt.rpartition(".")
    if kind != "Bearer" or signature != _base64(hmac.new(secret, text.encode(), hashlib.sha256).digest()):
        return None
    payload = text.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


def _range(text: str, size: int) -> tuple[int, int]:
    first, _, last = text.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if "," in text or start >= size:
        raise Answer(416, headers={"Content-Range": f"bytes */{size}"}, message="range")
    return start, end


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
