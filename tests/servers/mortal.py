"""A web server that is a process of its own, to be killed and started again on its port.

server = MortalServer(folder)
server.start(); server.kill(); server.start()
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.faults import held_port

# Files with sizes, ETags and ranges; so many bytes are sent of a file before the server asks, on its standard output,
# whether to go on.
PROGRAM = """
import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(send=False)

    def do_GET(self):
        self.answer(send=True)

    def answer(self, send):
        try:
            with open("." + self.path, "rb") as file:
                data = file.read()
        except OSError:
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        first, last = 0, len(data) - 1
        self.send_response(206 if asked else 200)
        if asked:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end or last), last)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"%d"' % len(data))
        self.end_headers()
        stop = first + STOP if STOP and send else last + 1
        self.wfile.write(data[first:min(stop, last + 1)] if send else b"")
        self.wfile.flush()
        if send and stop <= last:
            print("stopped", flush=True)
            sys.stdin.read()

    def log_message(self, *args):
        pass

class Server(http.server.ThreadingHTTPServer):
    allow_reuse_port = True
    daemon_threads = True

PORT, STOP = int(sys.argv[1]), int(sys.argv[2])
with Server(("127.0.0.1", PORT), Handler) as server:
    print("listening", flush=True)
    server.serve_forever()
"""


class MortalServer:
    """Serves the files of a folder while it lives; nobody else gets its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = held_port()
        self.port = int(self._held.getsockname()[1])
        self._process: subprocess.Popen[str] | None = None

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def start(self, *, stop_after: int = 0) -> None:
        """Listen; with `stop_after`, send no more than so many bytes of a file, and then nothing."""
        command = [sys.executable, "-c", PROGRAM, str(self.port), str(stop_after)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, cwd=self.folder, text=True, **pipes)
        assert self._line() == "listening"

    def wait_until_stopped(self) -> None:
        """Wait until it has sent what it may send of a file."""
        assert self._line() == "stopped"

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def close(self) -> None:
        self.kill()
        self._held.close()

    def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def mortal_server(tmp_path: Path) -> Iterator[MortalServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    server = MortalServer(folder)
    yield server
    server.close()
