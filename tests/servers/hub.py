"""A double of the Hugging Face hub: files are redirected to a second host, which refuses who shows it a token."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

import pytest

from servers.doubles import Double, Question, Reply, ranged
from servers.object_stores import ObjectServer

TOKEN = "hf_the-token"


class Hub(ObjectServer):
    """Repositories are dictionaries of files; those in `private` need the token."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.page = 1000
        self.elsewhere = ""
        self.cdn_port = 0
        self.web = Double(self.answer)
        self.cdn = Double(self.deliver)
        super().__init__(self.web.port)

    def environment(self, port: int | None = None) -> dict[str, str]:
        self.cdn_port = port or self.cdn.port
        return {"HF_ENDPOINT": self.web.url, "HF_TOKEN": TOKEN}

    @property
    def data_port(self) -> int:
        return self.cdn.port

    def store(self, url: str, data: bytes) -> None:
        _, _, _, owner, name, path = url.split("/", 5)
        self.repositories[f"{owner}/{name}"][path] = data

    def bucket(self) -> str:
        name = f"owner/{self.name()}"
        self.repositories[name] = {}
        return f"hf://datasets/{name}"

    def answer(self, question: Question) -> Reply:
        words = question.words
        kind, *words = words[1:] if words[0] == "api" else words
        name = "/".join(words[:2])
        files = self.repositories.get(name)
        allowed = name not in self.private or question.headers.get("authorization") == f"Bearer {TOKEN}"
        if kind != "datasets" or files is None or not allowed:
            return Reply(401, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        if words[3] != "main":
            return Reply(404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        verb = {"resolve": self.resolve, "tree": self.tree, "preupload": self.preupload, "commit": self.commit}
        return verb[words[2]](question, files, "/".join(words[4:]))

    def resolve(self, question: Question, files: dict[str, bytes], path: str) -> Reply:
        if path not in files:
            return Reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
        data = files[path]
        name = hashlib.sha256(data).hexdigest()
        self.contents[name] = data
        location = f"http://127.0.0.1:{self.cdn_port}/{name}?Signature=abc"
        return Reply(302, b"", {"Location": location, "X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{name}"'})

    @property
    def contents(self) -> dict[str, bytes]:
        return self.extra

    def deliver(self, question: Question) -> Reply:
        if "authorization" in question.headers:
            return Reply(400, b"Only one auth mechanism allowed")
        name = question.words[0]
        return ranged(question, self.contents[name], f'"{name}"')

    def tree(self, question: Question, files: dict[str, bytes], folder: str) -> Reply:
        found = sorted(path for path in files if not folder or path.startswith(f"{folder}/"))
        if folder and not found:
            return Reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
        start = int(question.query.get("cursor", "0"))
        items = [{"type": "file", "path": path, "size": len(files[path])} for path in found[start : start + self.page]]
        headers = {}
        if start + self.page < len(found):
            following = f"{self.elsewhere or self.web.url}{question.raw_path}?recursive=true&cursor={start + self.page}"
            headers["Link"] = f'<{following}>; rel="next"'
        return Reply(200, json.dumps([*items, {"type": "directory", "path": "x", "size": 0}]).encode(), headers)

    def preupload(self, question: Question, files: dict[str, bytes], _path: str) -> Reply:
        asked = json.loads(question.body)["files"]
        answer = [{"path": item["path"], "uploadMode": "regular", "shouldIgnore": False} for item in asked]
        return Reply(200, json.dumps({"files": answer}).encode(), {"Content-Type": "application/json"})

    def commit(self, question: Question, files: dict[str, bytes], _path: str) -> Reply:
        for line in question.body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            if entry["key"] == "deletedFile" and files.pop(entry["value"]["path"], None) is None:
                return Reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
        answer = {"commitUrl": f"{self.web.url}/c/1", "commitOid": "1" * 40, "hookOutput": "", "success": True}
        return Reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    with hub.web, hub.cdn:
        yield hub
