"""A double of Google Cloud Storage's JSON interface.

As the real one: 308 with the bytes kept while an upload is under way, 499 when it is cancelled, MD5 in base64,
errors as JSON, and a token service. A part whose first try is answered with 503 is half kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from servers.doubles import Double, Question, Reply, ranged
from servers.object_stores import ObjectServer
from servers.programs import program, running, served

TOKEN = "ya29.the-token"
CHUNK = 256 * 1024
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass
class Session:
    bucket: str
    name: str
    data: bytes = b""
    hiccups: int = 0


class Gcs:
    """Buckets in memory; `needs_token` makes them private."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.sessions: dict[str, Session] = {}
        self.needs_token = False
        self.hiccups = 0  # so many parts of the next upload are kept by half, and answered with 503
        self.page = 1000
        self.double = Double(self.answer)

    def answer(self, question: Question) -> Reply:
        words = question.words
        if words == ["token"]:
            return self.token(question)
        if self.needs_token and question.headers.get("authorization") != f"Bearer {TOKEN}":
            status = 401 if "authorization" not in question.headers else 403
            return error(status, "required" if status == 401 else "forbidden", "not allowed")
        if words[0] == "upload":
            return self.upload(question, words[4])
        bucket = self.buckets.get(words[3])
        if bucket is None:
            return error(404, "notFound", "The specified bucket does not exist.")
        return self.object(question, bucket, words[5]) if len(words) > 5 else self.listing(question, bucket)

    def token(self, question: Question) -> Reply:
        form = question.body.decode()
        if "refresh_token=good" in form or "assertion=" in form:
            return Reply(200, json.dumps({"access_token": TOKEN, "expires_in": 3599}).encode())
        return Reply(400, json.dumps({"error": "invalid_grant", "error_description": "Bad Request"}).encode())

    def object(self, question: Question, bucket: dict[str, bytes], name: str) -> Reply:
        if name not in bucket:
            return error(404, "notFound", f"No such object: {name}")
        data = bucket[name]
        if question.method == "DELETE":
            del bucket[name]
            return Reply(204)
        if question.query.get("alt") == "media":
            return ranged(question, data, f'"{hashlib.md5(data).hexdigest()}"')
        return Reply(200, resource(name, data))

    def listing(self, question: Question, bucket: dict[str, bytes]) -> Reply:
        names = sorted(name for name in bucket if name.startswith(question.query.get("prefix", "")))
        start = int(question.query.get("pageToken", "0"))
        stop = start + min(self.page, int(question.query["maxResults"]))
        found = {"items": [json.loads(resource(name, bucket[name])) for name in names[start:stop]]}
        if stop < len(names):
            found["nextPageToken"] = str(stop)
        return Reply(200, json.dumps(found if found["items"] else {}).encode())

    def upload(self, question: Question, bucket: str) -> Reply:
        if bucket not in self.buckets:
            return error(404, "notFound", "The specified bucket does not exist.")
        if question.method == "POST":
            return self.begin(question, bucket)
        session = self.sessions.get(question.query["upload_id"])
        if session is None:
            return error(404, "notFound", "no such upload")
        if question.method == "DELETE":
            del self.sessions[question.query["upload_id"]]
            return Reply(499)
        return self.part(question, session)

    def begin(self, question: Question, bucket: str) -> Reply:
        name = question.query["name"]
        if question.query["uploadType"] == "media":
            self.buckets[bucket][name] = question.body
            return Reply(200, resource(name, question.body))
        key = f"id{len(self.sessions)}"
        self.sessions[key] = Session(bucket, name, hiccups=self.hiccups)
        location = f"http://{question.headers['host']}{question.raw_path}?uploadType=resumable&upload_id={key}"
        return Reply(200, b"", {"Location": location})

    def part(self, question: Question, session: Session) -> Reply:
        found = _RANGE.match(question.headers["content-range"])
        assert found is not None
        if found[1] is not None:
            start = int(found[1])
            if start > len(session.data):
                return error(400, "invalid", "a gap")
            body = question.body[len(session.data) - start :]
            if found[3] == "*" and len(question.body) % CHUNK:
                return error(400, "invalid", "not a multiple of 256 KiB")
            if session.hiccups:
                session.hiccups -= 1
                session.data += body[: len(body) // 2 // CHUNK * CHUNK]
                return Reply(503)
            session.data += body
        if found[3] != "*" and len(session.data) == int(found[3]):
            self.buckets[session.bucket][session.name] = session.data
            self.sessions = {key: value for key, value in self.sessions.items() if value is not session}
            return Reply(200, resource(session.name, session.data))
        return Reply(308, b"", {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {})


class GcsServer(ObjectServer):
    def __init__(self, gcs: Gcs) -> None:
        super().__init__(gcs.double.port)
        self.gcs = gcs

    def environment(self, port: int | None = None) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port or self.port}"}

    def bucket(self) -> str:
        name = self.name()
        self.gcs.buckets[name] = {}
        return f"gs://{name}"

    def unfinished(self, bucket: str) -> int:
        return sum(f"gs://{session.bucket}" == bucket for session in self.gcs.sessions.values())


def resource(name: str, data: bytes) -> bytes:
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    return json.dumps({"kind": "storage#object", "name": name, "size": str(len(data)), "md5Hash": md5}).encode()


def error(status: int, reason: str, message: str) -> Reply:
    body = {"error": {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}}
    return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def gcs_server() -> Iterator[GcsServer]:
    gcs = Gcs()
    with gcs.double:
        yield GcsServer(gcs)


@pytest.fixture(scope="session")
def gcp_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Somebody else's idea of Google Cloud Storage, with one bucket; its address."""
    command = [program("gcp-storage-emulator", "pip gcp-storage-emulator"), "start", "--host=127.0.0.1"]
    command += ["--in-memory", "--default-bucket=bucket"]
    folder = tmp_path_factory.mktemp("gcp")
    with served(lambda port: running([*command, f"--port={port}"], port, folder)) as (port,):
        yield f"http://127.0.0.1:{port}"
