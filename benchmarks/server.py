"""A web server as slow as one wishes: `python server.py FOLDER [--delay 0.02] [--rate BYTES] [--endless N SHARD...]`.

It prints its address and serves the files of a folder, with ranges, after a delay, at most at a rate. `/endless.tar` is
the shards again and again, without their end markers, up to N bytes, and lies nowhere.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 1 << 18


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--endless", nargs="+", default=[0])
    options = parser.parse_args()
    size, *shards = options.endless

    class Handler(_Handler):
        folder, delay, rate = options.folder, options.delay, options.rate
        endless, members = int(size), b"".join(map(members_of, shards))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


def members_of(shard: str) -> bytes:
    """A shard without its end marker."""
    with open(shard, "rb") as file:
        data = file.read()
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // 512) * 512]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder, delay, rate, endless, members = "", 0.0, 0.0, 0, b""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        time.sleep(self.delay)
        name = os.path.basename(self.path)
        path = os.path.join(self.folder, name)
        is_endless = name == "endless.tar" and self.endless
        if not is_endless and not os.path.isfile(path):
            self.send_error(404)
            return
        size = self.endless if is_endless else os.path.getsize(path)
        start, stop = self._range(size)
        self.send_response(200 if (start, stop) == (0, size) else 206)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{size}"')
        if (start, stop) != (0, size):
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        if body and is_endless:
            self._send(self._again, start, stop)
        elif body:
            with open(path, "rb") as file:
                self._send(lambda at, most: (file.seek(at), file.read(most))[1], start, stop)

    def _again(self, at: int, most: int) -> bytes:
        begin = at % len(self.members)
        return self.members[begin : begin + most]

    def _range(self, size: int) -> tuple[int, int]:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return 0, size
        return int(asked[1]), min(int(asked[2]) + 1, size) if asked[2] else size

    def _send(self, read: Callable[[int, int], bytes], start: int, stop: int) -> None:
        began, sent = time.monotonic(), 0
        while start + sent < stop:
            data = read(start + sent, min(PIECE, stop - start - sent))
            try:
                self.wfile.write(data)
            except OSError:
                return  # the reader has left
            sent += len(data)
            if self.rate:
                time.sleep(max(0.0, began + sent / self.rate - time.monotonic()))

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    main()
