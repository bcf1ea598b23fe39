"""A producer: it binds an address and makes the batches that trainers ask for.

A request says all that there is to know about a batch, so producers know nothing of each other, and one that is
started again goes on at once. Trainers of one job are told apart by their rank; of two that say they are the same,
the newer counts.
"""

from __future__ import annotations

import os
import socket as sockets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from webdataset.base.logs import Log
from webdataset.base.units import number_of_bytes
from webdataset.errors import StorageError, WebDatasetError

from .addresses import check_allowed, checked, zeromq
from .feeds import FeedStep
from .keys import PRODUCER, Keys, keys_of
from .making import Asked, ServedPlan, Workshop
from .wire import MAX_REQUEST_BYTES, VERSION, described_error, packed, size_of, unpacked

log = Log(__name__)

AHEAD = 256 << 20
IDLE_SECONDS = 60.0
"""After so long without a word, what was prepared for a trainer is let go."""
MOST_TRAINERS = 1024
MOST_WAITING = 256
"""Messages that wait for a trainer to receive them; it asks for fewer."""
AT_A_TIME = 64


class ProducerStatus(NamedTuple):
    """What a producer does."""

    batches: int
    bytes: int
    rate: float
    """Batches per second, of late."""
    byte_rate: float
    readers: list[str]
    feeds: int
    ready: int
    ready_bytes: int
    refused: int
    """Messages that were not understood, or not allowed."""

    def __str__(self) -> str:
        who = ", ".join(self.readers) or "nobody"
        return (
            f"{self.rate:.1f} batches/s, {self.byte_rate / 1e6:.1f} MB/s to {who}; "
            f"{self.ready} batches ready ({self.ready_bytes / 1e6:.1f} MB) of {self.feeds} feeds; "
            f"{self.batches} batches in all"
        )


class _Trainer:
    """Who asks."""

    def __init__(self, client: bytes, hello: dict[str, Any]) -> None:
        self.client = client
        self.session = str(hello["session"])[:64]
        self.job = str(hello.get("job", ""))[:100]
        self.rank, self.world = int(hello["rank"]), int(hello["world"])
        self.name = str(hello.get("name", ""))[:100]
        self.heard = time.monotonic()

    @property
    def owner(self) -> tuple[str, int, int]:
        return self.job, self.rank, self.world

    @property
    def shown(self) -> str:
        job = f"{self.job} " if self.job else ""
        return f"{job}rank {self.rank} of {self.world}"


class Producer:
    """Serves the batches of an exact pipeline at an address until `stop()`.

    With port 0 the system chooses one; `address` says which.
    """

    def __init__(
        self,
        pipeline: object,
        address: str,
        *,
        keys: Keys | None = None,
        insecure: bool = False,
        threads: int | None = None,
        ahead: int | str = AHEAD,
    ) -> None:
        zmq = zeromq()
        keys = keys_of(keys, PRODUCER)
        check_allowed(checked(address), keys, insecure=insecure)
        self._plan = served_plan(pipeline)
        self._described = self._plan.described()
        self._context = zmq.Context()
        self._guard: Any = None
        self._socket = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.SNDHWM, MOST_WAITING),
            (zmq.MAXMSGSIZE, MAX_REQUEST_BYTES),
            (zmq.IPV6, 1),
        ):
            self._socket.setsockopt(option, value)
        try:
            if keys is not None:
                self._guard = keys.serve(self._context, self._socket)
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._close_socket()
            hint = "another program, perhaps another producer, is there" if error.errno == zmq.EADDRINUSE else ""
            raise StorageError(f"the address cannot be bound: {error}", url=address, hint=hint) from None
        port = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]
        self.address = f"{address[:-1]}{port}" if address.startswith("tcp://") and address.endswith(":0") else address
        self._trainers: dict[bytes, _Trainer] = {}
        self._owners: dict[Any, bytes] = {}
        self._done: deque[tuple[bytes, dict[str, Any], list[Any]]] = deque()
        self._wake, self._woken = sockets.socketpair()
        self._wake.setblocking(False)
        self._stopped = False
        self._batches = self._bytes = self._refused = 0
        self._recent: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])
        threads = min(4, os.cpu_count() or 1) if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        self._workshop = Workshop(self._plan, self._later, threads=threads, ahead=number_of_bytes(ahead))

    # -- running ---------------------------------------------------------------------------------

    def run(self, watch: Callable[[ProducerStatus], object] | None = None, every: float = 1.0) -> None:
        """Serve until `stop()`; `watch(status)` is called every `every` seconds."""
        zmq = zeromq()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._woken.fileno(), zmq.POLLIN)
        seen = time.monotonic()
        try:
            while not self._stopped:
                events = dict(poller.poll(200))
                if self._woken.fileno() in events:
                    self._woken.recv(4096)
                while self._done:
                    self._send(*self._done.popleft())
                if self._socket in events:
                    self._receive()
                if time.monotonic() - seen >= every:
                    seen = time.monotonic()
                    self._look_round(seen)
                    if watch is not None:
                        watch(self.status())
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run()` return; from any thread, or a signal."""
        self._stopped = True
        with suppress(OSError):
            self._wake.send(b"!")

    def close(self) -> None:
        """Release the address and everything else."""
        self._stopped = True
        self._workshop.close()
        self._close_socket()
        self._wake.close()
        self._woken.close()

    def status(self) -> ProducerStatus:
        """What it does."""
        (then, batches, size), now = self._recent[0], time.monotonic()
        seconds = max(now - then, 1e-3)
        feeds, ready, ready_bytes = self._workshop.queue()
        return ProducerStatus(
            self._batches,
            self._bytes,
            (self._batches - batches) / seconds,
            (self._bytes - size) / seconds,
            sorted(trainer.shown for trainer in self._trainers.values()),
            feeds,
            ready,
            ready_bytes,
            self._refused,
        )

    def _look_round(self, now: float) -> None:
        self._recent.append((now, self._batches, self._bytes))
        while len(self._recent) > 10:
            self._recent.popleft()
        for trainer in [one for one in self._trainers.values() if now - one.heard > IDLE_SECONDS]:
            self._forget(trainer)

    # -- messages --------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Some messages; a flood of them does not keep batches from being sent."""
        zmq = zeromq()
        for _ in range(AT_A_TIME):
            try:
                client, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            try:
                if len(frames) != 1:
                    raise ValueError(f"a request has one frame, not {len(frames)}")
                self._handle(client, unpacked(frames[0]))
            except (WebDatasetError, KeyError, TypeError, ValueError, OverflowError) as error:
                self._refused += 1
                self._send(client, {**described_error(error, -1), "fatal": True}, [])

    def _handle(self, client: bytes, message: dict[str, Any]) -> None:
        kind = message["kind"]
        trainer = self._trainers.get(client)
        if trainer is not None:
            trainer.heard = time.monotonic()
        if kind == "hello":
            self._greet(client, message)
        elif kind == "status":
            self._send(client, {"kind": "status", "status": self.status()._asdict()}, [])
        elif trainer is None:
            self._send(client, {"kind": "who", "id": message.get("id", -1)}, [])
        elif kind == "ping":
            self._send(client, {"kind": "pong"}, [])
        elif kind == "bye":
            self._forget(trainer)
        elif kind == "cancel":
            self._workshop.drop(trainer.owner)
        elif kind == "outline":
            asked = Asked(client, int(message["id"]))
            names = ("epoch", "start", "feeds")
            wanted = {name: int(message[name]) for name in names} | {"rank": trainer.rank, "world": trainer.world}
            self._workshop.outline(asked, **wanted)
        elif kind == "get":
            at = FeedStep(*map(int, message["at"]))
            self._check(at, int(message["feeds"]))
            asked = Asked(client, int(message["id"]))
            self._workshop.get(trainer.owner, int(message["epoch"]), int(message["feeds"]), at, asked)
        else:
            raise ValueError(f"there is no request {kind[:20]!r}")

    def _check(self, at: FeedStep, feeds: int) -> None:
        fine = min(at) >= 0 and at.workers > at.worker and at.rank < at.world <= feeds <= 1 << 20 and at.step < at.stop
        if not fine:
            raise ValueError(f"there is no such batch: {at}")

    def _greet(self, client: bytes, message: dict[str, Any]) -> None:
        if message.get("version") != VERSION:
            text = f"the trainer speaks version {message.get('version')!r} of the protocol, and this producer {VERSION}"
            hint = "install the same release of webdataset on both"
            self._send(
                client, {"kind": "error", "id": -1, "type": "version", "text": f"{text}; {hint}", "fatal": True}, []
            )
            return
        trainer = _Trainer(client, message)
        before = self._trainers.get(self._owners.get(trainer.owner, b""))
        if before is None and len(self._trainers) >= MOST_TRAINERS:
            raise ValueError(f"{MOST_TRAINERS} trainers are there already")
        if before is not None and before.client != client:
            # what the older one waits for would only be sent to nobody
            self._workshop.unask(trainer.owner)
            del self._trainers[before.client]
            if before.session != trainer.session:
                text = (
                    f"another trainer, {trainer.name}, says that it is {trainer.shown}, too; "
                    "give two jobs that share producers different names: RemoteLoader(..., job='name')"
                )
                self._send(
                    before.client, {"kind": "error", "id": -1, "type": "replaced", "text": text, "fatal": True}, []
                )
        self._trainers[client] = trainer
        self._owners[trainer.owner] = client
        self._send(client, {"kind": "plan", "plan": self._described}, [])

    def _forget(self, trainer: _Trainer) -> None:
        self._trainers.pop(trainer.client, None)
        if self._owners.get(trainer.owner) == trainer.client:
            del self._owners[trainer.owner]
            self._workshop.drop(trainer.owner)

    # -- sending ---------------------------------------------------------------------------------

    def _later(self, client: bytes, message: dict[str, Any], frames: list[Any]) -> None:
        """Send something from another thread."""
        self._done.append((client, message, frames))
        with suppress(OSError):  # there are enough bytes in the pipe already, or it is closed
            self._wake.send(b"!")

    def _send(self, client: bytes, message: dict[str, Any], frames: list[Any]) -> None:
        zmq = zeromq()
        try:
            self._socket.send_multipart([client, packed(message), *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            log.debug("what was meant for a trainer is dropped: %s", error)  # it is gone, or does not receive
        else:
            if frames:
                self._batches += 1
                self._bytes += size_of(frames)

    def _close_socket(self) -> None:
        if self._guard is not None:
            self._guard.stop()
            self._guard = None
        if not self._socket.closed:
            self._socket.close(linger=0)
            self._context.term()


def served_plan(pipeline: Any) -> ServedPlan:
    """The plan of a pipeline; a TypeError says what it takes to have one."""
    if not getattr(pipeline, "exact", False):
        raise TypeError(
            "only an exact pipeline can be served to RemoteLoader: WebDataset(..., exact=True).batched(n); "
            "a stream is sent to a url such as zpush://host:port"
        )
    if getattr(pipeline, "repetitions", 1) != 1 or getattr(pipeline, "nsamples", -1) > 0:
        raise ValueError("with_epoch() and repeat() are the trainer's: RemoteLoader(...).with_epoch(n)")
    return ServedPlan(pipeline.runner.program(), pipeline.invoke, pipeline.strict)
