"""A way to a server that breaks as told: a TCP proxy that cuts, resets, stalls, delays and slows down.

with fault_proxy(server.port, [Cut(after=1000), Stall(after=5000)]) as proxy:
    ...  # the first connection is cut after 1000 bytes of answers, the second stalls, the others work
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

PIECE = 64 << 10
_REQUEST = re.compile(rb"^(?:GET|HEAD|PUT|POST|DELETE) \S+ HTTP/1\.1\r$", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """What happens to one connection once so many bytes of answers have passed."""

    after: int = 0


class Cut(Fault):
    """The connection is closed, as by a server that ends in peace."""


class Reset(Fault):
    """The connection is reset."""


class Stall(Fault):
    """Nothing comes any more, and the connection stays open."""


class Fine(Fault):
    """Nothing happens."""


class Together(Fault):
    """Answers are held back until there are some on as many connections as `after` says."""


class FaultProxy:
    """Listens on `port`; the n-th connection meets the n-th fault, those after the last one meet `default`.

    `delay` is added to the way there and back once per request; `bytes_per_second` bounds each connection.
    `requests` counts those that came.
    """

    def __init__(
        self,
        target_port: int,
        faults: Iterable[Fault] = (),
        *,
        default: Fault | None = None,
        delay: float = 0.0,
        bytes_per_second: float | None = None,
    ) -> None:
        self.target_port = target_port
        self.faults = list(faults)
        self.default = default
        self.delay = delay
        self.bytes_per_second = bytes_per_second
        self.connections = 0
        self.requests = 0
        self.passed = 0
        self._answered = 0
        self._met = threading.Condition()
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._held = held_port()
        self.port = int(self._held.getsockname()[1])
        self.up()

    def up(self) -> None:
        """Take connections."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128, reuse_port=True)
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def down(self) -> None:
        """Reset the connections that there are, and refuse others, as a server does that was killed."""
        self._stop_listening()
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.shutdown(socket.SHUT_RDWR)

    def url(self, path: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        self._closing.set()
        with self._met:
            self._met.notify_all()
        self._stop_listening()
        self._held.close()
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    # -- inside ----------------------------------------------------------------------------------

    def _stop_listening(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            fault = self.faults[self.connections] if self.connections < len(self.faults) else self.default
            self.connections += 1
            threading.Thread(target=self._serve, args=(client, fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: Fault | None) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target_port))
        except OSError:
            client.close()
            return
        with self._lock:
            self._sockets |= {client, server}
        asking = threading.Thread(target=self._questions, args=(client, server), daemon=True)
        asking.start()
        try:
            with contextlib.suppress(OSError):
                self._answers(server, client, fault)
        finally:
            # the thread that reads from it must be gone before closing means anything
            _end(client, socket.SHUT_RD if isinstance(fault, Reset) else socket.SHUT_RDWR)
            _end(server)
            asking.join(60)
            if isinstance(fault, Reset):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with self._lock:
                self._sockets -= {client, server}
            client.close()
            server.close()

    def _questions(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(PIECE):
                self.requests += len(_REQUEST.findall(data))
                if self.delay:
                    self._closing.wait(self.delay)
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _meet(self, count: int) -> None:
        """Wait until so many connections have an answer to bring."""
        with self._met:
            self._answered += 1
            self._met.notify_all()
            self._met.wait_for(lambda: self._answered >= count or self._closing.is_set())

    def _answers(self, server: socket.socket, client: socket.socket, fault: Fault | None) -> None:
        left = None if fault is None or isinstance(fault, (Fine, Together)) else fault.after
        meeting = fault.after if isinstance(fault, Together) else 0
        while not self._closing.is_set():
            if left == 0:
                if isinstance(fault, Stall):
                    with contextlib.suppress(OSError):
                        while client.recv(PIECE):
                            pass
                return
            data = server.recv(PIECE if left is None else min(PIECE, left))
            if not data:
                return
            if meeting:
                self._meet(meeting)
                meeting = 0
            self.passed += len(data)  # before: who has got it may look
            client.sendall(data)
            left = None if left is None else left - len(data)
            if self.bytes_per_second:
                time.sleep(len(data) / self.bytes_per_second)


def held_port() -> socket.socket:
    """A socket that keeps a port of loopback for servers that listen with SO_REUSEPORT; without one it refuses."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", 0))
    return sock


def _end(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)


@contextlib.contextmanager
def fault_proxy(
    target_port: int,
    faults: Iterable[Fault] = (),
    *,
    default: Fault | None = None,
    delay: float = 0.0,
    bytes_per_second: float | None = None,
) -> Iterator[FaultProxy]:
    """A way to `target_port` that breaks as told, for the length of the block."""
    proxy = FaultProxy(target_port, faults, default=default, delay=delay, bytes_per_second=bytes_per_second)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def make_fault_proxy() -> Iterator[type[FaultProxy]]:
    """`make_fault_proxy(port, [Cut(after=1000)])`: proxies that end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *words, **options: stack.enter_context(fault_proxy(*words, **options))  # type: ignore[misc]
