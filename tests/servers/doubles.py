"""Small servers of our own, for what cannot be had as a program: requests are kept, answers come from a function."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


@dataclass
class Question:
    """A request: the path in parts, decoded after they were split, as the real services do."""

    method: str
    raw_path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def words(self) -> list[str]:
        return [unquote(word) for word in self.raw_path.strip("/").split("/")]


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Double:
    """A server in a thread: `answer(question)` says what it answers."""

    def __init__(self, answer: Callable[[Question], Reply]) -> None:
        self.questions: list[Question] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def every(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
                headers = {name.lower(): value for name, value in self.headers.items()}
                question = Question(self.command, parts.path, query, headers, body)
                outer.questions.append(question)
                self.reply(answer(question))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = every

            def reply(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.body)

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                pass

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.port = int(self._http.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Double:
        return self

    def __exit__(self, *args: object) -> None:
        with contextlib.suppress(OSError):
            self.close()


def ranged(question: Question, data: bytes, etag: str) -> Reply:
    """An object, or the part of it that was asked for, as RFC 9110 has it."""
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    asked = _RANGE.match(question.headers.get("range", ""))
    if question.headers.get("if-match", etag) != etag:
        return Reply(412)
    if asked is None or question.headers.get("if-range", etag) != etag:
        return Reply(200, data, headers)
    start, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
    if start >= len(data):
        return Reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
    return Reply(206, data[start : end + 1], headers | {"Content-Range": f"bytes {start}-{end}/{len(data)}"})
