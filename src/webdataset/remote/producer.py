"""A producer: it binds an address and makes the batches that trainers ask for.

A request says all that there is to know about a batch, so producers know nothing of each other, and one that is
started again goes on at once. Trainers of one job are told apart by their rank; of two that say they are the same,
the newer counts: each takes a higher turn than those that its producers have seen.
"""

from __future__ import annotations

import os
import socket as sockets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from webdataset.base.logs import Log
from webdataset.base.units import number_of_bytes
from webdataset.errors import StorageError, WebDatasetError

from .addresses import check_allowed, checked, zeromq
from .feeds import MOST_FEEDS, feed_step
from .keys import PRODUCER, Keys, keys_of
from .making import Asked, ServedPlan, Workshop
from .wire import MAX_REQUEST_BYTES, VERSION, described_error, in_parts, packed, size_of, unpacked, whole, words

log = Log(__name__)

AHEAD = 256 << 20
IDLE_SECONDS = 60.0
"""After so long without a word, what was prepared for a trainer is let go."""
MOST_TRAINERS = 1024
MOST_WAITING = 256
"""Answers that wait for a trainer to receive them; it asks for fewer."""
MOST_SENT = 64
"""Messages that are given to ZeroMQ for a trainer before it has received any."""
FULL_SECONDS = 0.002
"""After how long it is tried again to send something."""
AT_A_TIME = 64
MOST = (1 << 63) - 1
"""Any number in a message is at most this: larger ones cannot be sent back."""


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

    def __init__(self, client: bytes, join: dict[str, Any]) -> None:
        self.client = client
        self.session, self.name = words(join, "session"), words(join, "name")
        self.turn = whole(join, "turn", MOST)
        self.job = words(join, "job")
        self.world = whole(join, "world", MOST_FEEDS, least=1)
        self.rank = whole(join, "rank", self.world - 1)
        self.heard = time.monotonic()
        self.answers: deque[deque[list[Any]]] = deque()
        """What is still to be sent: the messages of each answer."""

    @property
    def newer(self) -> tuple[int, str]:
        """Of two trainers with the same owner, the one with the higher value is the newer."""
        return self.turn, self.session

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
            (zmq.SNDHWM, MOST_SENT),
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
        self._newest: dict[Any, _Trainer] = {}
        """The newest trainer of each owner that was ever seen, also when it is gone."""
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
                is_full = any(trainer.answers for trainer in self._trainers.values())
                events = dict(poller.poll(FULL_SECONDS * 1000 if is_full else 200))
                if self._woken.fileno() in events:
                    self._woken.recv(4096)
                while self._done:
                    self._send(*self._done.popleft())
                for trainer in self._trainers.values():
                    self._pass_on(trainer)
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
        kind = words(message, "kind")
        trainer = self._trainers.get(client)
        if trainer is not None:
            trainer.heard = time.monotonic()
        if kind == "hello":
            self._greet(client, message)
        elif kind == "join":
            self._admit(_Trainer(client, message))
        elif kind == "status":
            self._send(client, {"kind": "status", "status": self.status()._asdict()}, [])
        elif trainer is None:
            self._send(client, {"kind": "who"}, [])
        elif kind == "ping":
            self._send(client, {"kind": "pong"}, [])
        elif kind == "bye":
            self._forget(trainer)
        elif kind == "leave":
            epoch, feeds = whole(message, "epoch", MOST), whole(message, "feeds", MOST_FEEDS, least=1)
            self._workshop.leave(trainer.owner, epoch, feeds, feed_step([*message["feed"], 0]).feed)
        elif kind == "outline":
            wanted = {name: whole(message, name, MOST) for name in ("epoch", "start")}
            wanted |= {name: whole(message, name, MOST_FEEDS, least=1) for name in ("feeds", "order")}
            wanted |= {"rank": trainer.rank, "world": trainer.world}
            self._workshop.outline(Asked(client, whole(message, "id", MOST)), **wanted)
        elif kind == "get":
            epoch, feeds = whole(message, "epoch", MOST), whole(message, "feeds", MOST_FEEDS, least=1)
            asked = Asked(client, whole(message, "id", MOST))
            self._workshop.get(trainer.owner, epoch, feeds, feed_step(message["at"]), asked)
        else:
            raise ValueError(f"there is no request {kind[:20]!r}")

    def _greet(self, client: bytes, message: dict[str, Any]) -> None:
        if message.get("version") != VERSION:
            version = str(message.get("version"))[:40]
            text = f"the trainer speaks version {version} of the protocol, and this producer {VERSION}"
            hint = "install the same release of webdataset on both"
            self._send(
                client, {"kind": "error", "id": -1, "type": "version", "text": f"{text}; {hint}", "fatal": True}, []
            )
            return
        newest = self._newest.get(_Trainer(client, {**message, "turn": 0}).owner)
        turn = 1 if newest is None else min(newest.turn + 1, MOST)
        self._send(client, {"kind": "plan", "plan": self._described, "turn": turn}, [])

    def _admit(self, trainer: _Trainer) -> None:
        """A trainer joins, unless a newer one is or was there; an older one is told."""
        newest = self._newest.get(trainer.owner)
        if newest is not None and newest.newer > trainer.newer:
            self._replace(trainer, newest)
            return
        before = self._trainers.get(self._owners.get(trainer.owner, b""))
        if before is None and len(self._trainers) >= MOST_TRAINERS:
            raise ValueError(f"{MOST_TRAINERS} trainers are there already")
        if before is not None and before.client != trainer.client:
            # what the older one waits for would only be sent to nobody
            self._workshop.unask(trainer.owner)
            del self._trainers[before.client]
            if before.session != trainer.session:
                self._replace(before, trainer)
        elif before is not None:
            trainer.answers = before.answers  # it has raised its turn
        self._trainers[trainer.client] = trainer
        self._owners[trainer.owner] = trainer.client
        self._newest.pop(trainer.owner, None)
        self._newest[trainer.owner] = trainer
        while len(self._newest) > MOST_TRAINERS:
            del self._newest[next(iter(self._newest))]

    def _replace(self, older: _Trainer, newer: _Trainer) -> None:
        text = (
            f"another trainer, {newer.name}, says that it is {newer.shown}, too; "
            "give two jobs that share producers different names: RemoteLoader(..., job='name')"
        )
        known = {"turn": newer.turn, "session": newer.session}
        self._send(
            older.client, {"kind": "error", "id": -1, "type": "replaced", "text": text, "fatal": True, **known}, []
        )

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
        """Send an answer, or have it wait until its trainer has received what comes before it."""
        trainer = self._trainers.get(client)
        answer = deque(_messages(message, frames))
        if trainer is None:
            self._sent(client, answer[0])
            return
        if len(trainer.answers) >= MOST_WAITING:
            log.debug("what was meant for a trainer is dropped: it does not receive")
            return
        trainer.answers.append(answer)
        self._pass_on(trainer)
        if frames:
            self._batches += 1
            self._bytes += size_of(frames)

    def _pass_on(self, trainer: _Trainer) -> None:
        """Send what waits for a trainer, as far as there is room."""
        while trainer.answers:
            answer = trainer.answers[0]
            while answer:
                if not self._sent(trainer.client, answer[0]):
                    return
                answer.popleft()
            trainer.answers.popleft()

    def _sent(self, client: bytes, frames: list[Any]) -> bool:
        """Send a message; False if there is no room for it."""
        zmq = zeromq()
        try:
            self._socket.send_multipart([client, *frames], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            log.debug("what was meant for a trainer is dropped: %s", error)  # it is gone
        return True

    def _close_socket(self) -> None:
        if self._guard is not None:
            self._guard.stop()
            self._guard = None
        if not self._socket.closed:
            self._socket.close(linger=0)
            self._context.term()


def _messages(message: dict[str, Any], frames: list[Any]) -> Iterator[list[Any]]:
    """An answer as messages: a large batch in parts, of which the first says how large its frames are."""
    if not frames:
        yield [packed(message)]
        return
    first, *later = in_parts(frames)
    yield [packed({**message, "sizes": [size_of([frame]) for frame in frames]}), *first]
    for part in later:
        yield [packed({"kind": "part", "id": message["id"]}), *part]


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
