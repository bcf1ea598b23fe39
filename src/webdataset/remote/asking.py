"""A trainer's side of the wire: it asks producers for batches by number, and asks another one if one does not answer.

One thread owns the sockets. It keeps as many requests under way as fit into the budget of bytes, notices when a
producer is gone (its connection ends), hangs (it says nothing), or fails (it says so), and gives the batches in order
to whoever iterates.
"""

from __future__ import annotations

import os
import secrets
import socket as sockets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.logs import Log
from webdataset.base.states import differences
from webdataset.base.stops import Bell, Thread
from webdataset.errors import (
    SampleError,
    SecurityError,
    StateError,
    UnavailableError,
    WebDatasetError,
    WorkerError,
)

from .addresses import zeromq
from .feeds import FeedStep, Outline
from .wire import MAX_HEADER_BYTES, VERSION, batch_items, packed, size_of, unpacked

if TYPE_CHECKING:
    from .keys import KeyFile

log = Log(__name__)

MOST_ASKED = 64
"""Batches that are asked for, or held, at the same time, however small they are."""
MOST_FAILURES = 3
"""How often a batch is asked for again after it could not be made, or came damaged."""
FIRST_SECONDS = 0.5
"""How long the first producer that answers waits for the others, so that differences are found before training."""
TICK = 0.1
MONITORED = ("DISCONNECTED", "HANDSHAKE_FAILED_AUTH", "HANDSHAKE_FAILED_PROTOCOL", "HANDSHAKE_FAILED_NO_DETAIL")


class AskingOptions(NamedTuple):
    """How a trainer deals with its producers."""

    budget: int
    """Bytes of batches that are under way or wait to be taken."""
    timeout: float
    """Seconds of silence after which a producer is taken to hang."""
    patience: float
    """Seconds without any producer, or any batch, after which it is an error."""
    largest: int
    """The most bytes of one array."""


class Arrived(NamedTuple):
    """A step as it came."""

    number: int
    items: list[Any]
    size: int
    counts: dict[str, Any]
    reasons: dict[str, int]


class _Wanted:
    """A batch that was asked for."""

    def __init__(self, number: int, at: FeedStep) -> None:
        self.number = number
        self.at = at
        self.asked: dict[int, float] = {}
        """Whom it was asked of, and when."""
        self.failures: list[str] = []
        self.failed: set[str] = set()
        self.since = time.monotonic()


class _Peer:
    """The connection to one producer."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket: Any = None
        self.monitor: Any = None
        self.plan: dict[str, Any] | None = None
        """What it serves, once it has said so."""
        self.refused = ""
        """Why it is not used."""
        self.is_live = False
        self.failures = 0
        """Greetings that failed, one after the other."""
        self.heard = self.pinged = 0.0


class _Pass:
    """The steps of an epoch that one iteration takes."""

    def __init__(self, outline: Outline, epoch: int, first: int) -> None:
        self.outline = outline
        self.epoch = epoch
        self.next_asked = first
        self.wanted: dict[int, _Wanted] = {}
        self.arrived: dict[int, Arrived] = {}


class Producers:
    """The producers that a trainer asks, with the thread that does it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        keys: KeyFile | None,
        options: AskingOptions,
        rank: int,
        world: int,
        job: str = "",
        plan: dict[str, Any] | None = None,
    ) -> None:
        self.addresses = list(urls)
        self.process = os.getpid()
        self._keys = keys
        self._options = options
        self._hello = {
            "kind": "hello",
            "version": VERSION,
            "session": secrets.token_hex(8),
            "job": job,
            "rank": rank,
            "world": world,
            "name": f"{sockets.gethostname()}:{os.getpid()}",
        }
        self._zmq = zeromq()
        self._context = self._zmq.Context()
        self._peers = [_Peer(address) for address in self.addresses]
        self._lock = threading.RLock()
        self._changed = Bell()
        self._plan = plan
        self._pass: _Pass | None = None
        self._outlines: dict[int, Any] = {}
        self._error: Exception | None = None
        self._ids = 0
        self._numbers: dict[int, int] = {}
        """Request -> the number of the batch it is for."""
        self._largest = self._held = 0
        self._slowest = 0.0
        self._first_at: float | None = None
        self._alone_since = self._progress = time.monotonic()
        self.counts = dict.fromkeys(("batches_received", "bytes_received", "batches_asked_again", "producers_lost"), 0)
        self._wake, self._woken = sockets.socketpair()
        self._wake.setblocking(False)
        self._is_closed = False
        self._thread = Thread(target=self._run, name="producers", daemon=True)
        self._thread.start()

    # -- for whoever iterates --------------------------------------------------------------------

    def plan(self) -> dict[str, Any]:
        """What the producers serve; waits for one of them, and a moment for the others."""
        self._wait(lambda: self._plan is not None)
        assert self._plan is not None
        return self._plan

    def outline(self, *, epoch: int, start: int, feeds: int) -> Outline:
        """An epoch as this rank takes it."""
        self.plan()
        with self._lock:
            self._ids += 1
            asked = self._ids
            request = {"kind": "outline", "id": asked, "epoch": epoch, "start": start, "feeds": feeds}
            self._outlines[asked] = request
        self._alert()
        self._wait(lambda: not isinstance(self._outlines[asked], dict))
        with self._lock:
            found = self._outlines.pop(asked)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def steps(self, outline: Outline, epoch: int, first: int) -> Generator[Arrived, None, None]:
        """The steps of an epoch from one on, in order."""
        with self._lock:
            self._pass = mine = _Pass(outline, epoch, first)
            self._numbers.clear()
            self._held = 0
            self._progress = time.monotonic()
        self._alert()
        try:
            for number in range(first, outline.steps):
                self._wait(lambda number=number: number in mine.arrived)  # type: ignore[misc]
                with self._lock:
                    found = mine.arrived.pop(number)
                    self._held -= found.size
                self._alert()
                yield found
        finally:
            with self._lock:
                if self._pass is mine:
                    self._pass = None
                    self._numbers.clear()
            self._alert()

    def live(self) -> list[str]:
        """The addresses of the producers that answer."""
        with self._lock:
            return [peer.address for peer in self._peers if peer.is_live]

    def close(self) -> None:
        """Say goodbye, and close the connections."""
        self._is_closed = True
        self._alert()
        if threading.current_thread() is not self._thread:
            self._thread.join(10)

    def _wait(self, condition: Callable[[], bool]) -> None:
        while not self._changed.wait(lambda: condition() or self._has_ended(), 1.0):
            pass  # a thread that ends rings before it has ended
        if not condition():
            raise self._error or WorkerError("the connection to the producers was closed")

    def _has_ended(self) -> bool:
        return self._error is not None or self._is_closed or not self._thread.is_alive()

    def _alert(self) -> None:
        with suppress(OSError):
            self._wake.send(b"!")

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            for peer in self._peers:
                self._open(peer)
            while not self._is_closed and self._error is None:
                self._turn()
        except Exception as error:
            self._fail(error)
        finally:
            with suppress(Exception):
                for peer in self._peers:
                    self._send(peer, {"kind": "bye"})
            for peer in self._peers:
                self._shut(peer, linger=200)
            with suppress(Exception):
                self._context.term()
            self._wake.close()
            self._woken.close()
            self._changed.ring()

    def _turn(self) -> None:
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(self._woken.fileno(), zmq.POLLIN)
        for peer in self._peers:
            poller.register(peer.socket, zmq.POLLIN)
            poller.register(peer.monitor, zmq.POLLIN)
        events = dict(poller.poll(TICK * 1000))
        if self._woken.fileno() in events:
            self._woken.recv(4096)
        for peer in self._peers:
            if peer.socket in events:
                self._receive(peer)
            if peer.monitor in events:
                self._observe(peer)
        now = time.monotonic()
        with self._lock:
            self._agree(now)
            self._look_after(now)
            self._ask(now)

    # -- connections -----------------------------------------------------------------------------

    def _open(self, peer: _Peer) -> None:
        zmq = self._zmq
        peer.socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, 1),
            (zmq.RECONNECT_IVL, 100),
            (zmq.RECONNECT_IVL_MAX, 2000),
            (zmq.RCVHWM, 2 * MOST_ASKED),
            (zmq.MAXMSGSIZE, self._options.largest),
        ):
            peer.socket.setsockopt(option, value)
        if self._keys is not None:
            self._keys.connect(peer.socket)
        events = 0
        for name in MONITORED:
            events |= getattr(zmq, f"EVENT_{name}")
        peer.monitor = peer.socket.get_monitor_socket(events)
        peer.is_live, peer.plan = False, None
        peer.socket.connect(peer.address)
        self._send(peer, self._hello)

    def _shut(self, peer: _Peer, linger: int = 0) -> None:
        if peer.socket is not None and not peer.socket.closed:
            peer.socket.disable_monitor()
            peer.monitor.close(linger=0)
            peer.socket.close(linger=linger)

    def _lose(self, peer: _Peer, reason: str) -> None:
        """A producer is gone, or not believed: others are asked for its batches, and its address is tried again."""
        if peer.is_live:
            log.warning("producer %s: %s", peer.address, reason)
            self.counts["producers_lost"] += 1
        # a socket that is kept would deliver old requests to the producer when it is there again
        self._shut(peer)
        self._open(peer)
        now = time.monotonic()
        with self._lock:
            if not any(one.is_live for one in self._peers):
                self._alone_since = now
            for wanted in self._pass.wanted.values() if self._pass is not None else ():
                wanted.asked.pop(id(peer), None)
            for request in self._outlines.values():
                if isinstance(request, dict) and request.get("asked") == id(peer):
                    del request["asked"]

    def _observe(self, peer: _Peer) -> None:
        from zmq.utils.monitor import recv_monitor_message

        zmq = self._zmq
        while peer.monitor is not None and not peer.monitor.closed and peer.monitor.poll(0):
            event = recv_monitor_message(peer.monitor)["event"]
            if event == zmq.EVENT_DISCONNECTED:
                self._lose(peer, "its connection has ended")
                return
            peer.failures += 1
            # one that ends while it is being greeted looks the same, but once only
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH or peer.failures >= MOST_FAILURES:
                peer.refused = "it does not let this trainer in, or is not who it should be: see the keys of both"

    # -- receiving -------------------------------------------------------------------------------

    def _receive(self, peer: _Peer) -> None:
        zmq = self._zmq
        for _ in range(MOST_ASKED):
            if peer.socket.closed:
                return
            try:
                envelope, *frames = peer.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                return
            peer.heard = time.monotonic()
            try:
                message = unpacked(envelope.buffer, MAX_HEADER_BYTES)
                self._handle(peer, message, frames)
            except (SampleError, KeyError, TypeError, ValueError) as error:
                with self._lock:
                    self._blame(peer, self._numbers.get(_id(envelope)), f"sent something that cannot be read: {error}")
                self._lose(peer, f"what it sends cannot be read: {error}")
                return

    def _handle(self, peer: _Peer, message: dict[str, Any], frames: list[Any]) -> None:
        kind = message["kind"]
        if kind == "batch":
            self._take(peer, int(message["id"]), frames)
        elif kind == "plan":
            with self._lock:
                self._meet(peer, message["plan"])
        elif kind == "outline":
            names = Outline._fields
            with self._lock:
                if message["id"] in self._outlines:
                    self._outlines[message["id"]] = Outline(*(message[name] for name in names))
                    self._changed.ring()
        elif kind == "error":
            self._hear_of_error(peer, message)
        elif kind == "who":  # it was restarted, and nobody noticed
            self._lose(peer, "it has been started again")

    def _take(self, peer: _Peer, request: int, frames: list[Any]) -> None:
        with self._lock:
            number = self._numbers.pop(request, None)
            current = self._pass
            wanted = None if number is None or current is None else current.wanted.get(number)
        if wanted is None or current is None or number is None:
            return  # nobody waits for it any more
        try:
            views = [frame.buffer for frame in frames]
            header = unpacked(views[0], MAX_HEADER_BYTES) if views else {}
            items = batch_items(header, views[1:])
            counts, reasons = dict(header["counts"]), dict(header["reasons"])
        except (SampleError, KeyError, TypeError, ValueError) as error:
            with self._lock:
                self._blame(peer, number, f"sent a damaged batch: {error}")
            self._lose(peer, f"it sends damaged batches: {error}")
            return
        except WebDatasetError as error:
            self._fail(error)
            return
        size = size_of(views)
        now = time.monotonic()
        with self._lock:
            self._slowest = max(self._slowest, now - wanted.asked.get(id(peer), now))
            del current.wanted[number]
            current.arrived[number] = Arrived(number, items, size, counts, reasons)
            self._largest = max(self._largest, size)
            self._held += size
            self._progress = now
            self.counts["batches_received"] += 1
            self.counts["bytes_received"] += size
            self._changed.ring()

    def _hear_of_error(self, peer: _Peer, message: dict[str, Any]) -> None:
        text = f"{message['text']}"
        if message.get("type") == "replaced":
            self._fail(StateError(text, url=peer.address))
        elif message.get("fatal"):
            peer.refused = text
            peer.is_live = False
            log.warning("producer %s refuses: %s", peer.address, text)
        elif message["id"] in self._outlines:
            with self._lock:
                self._outlines[message["id"]] = WorkerError(f"{message['type']}: {text}", url=peer.address)
                self._changed.ring()
        else:
            with self._lock:
                self._blame(peer, self._numbers.pop(message["id"], None), f"{message['type']}: {text}")

    def _blame(self, peer: _Peer, number: int | None, text: str) -> None:
        """A producer could not make a batch: another is asked, and if that cannot either it is an error."""
        wanted = self._pass.wanted.get(number) if self._pass is not None and number is not None else None
        if wanted is None:
            return
        wanted.asked.pop(id(peer), None)
        wanted.failures.append(f"{peer.address}: {text}")
        wanted.failed.add(peer.address)
        live = [one.address for one in self._peers if one.is_live]
        if len(wanted.failures) >= MOST_FAILURES or {*live} <= wanted.failed:
            self._fail(WorkerError(f"batch {number} cannot be made: {wanted.failures[-1]}"))

    def _meet(self, peer: _Peer, plan: dict[str, Any]) -> None:
        peer.plan = plan
        if plan.get("version") != VERSION:
            peer.refused = f"it speaks version {plan.get('version')!r} of the protocol, and this trainer {VERSION}"
            return
        peer.refused, peer.failures = "", 0
        if self._plan is not None:
            self._accept(peer)
        elif self._first_at is None:
            self._first_at = time.monotonic()

    def _accept(self, peer: _Peer) -> None:
        assert self._plan is not None
        assert peer.plan is not None
        differing = list(differences("", self._plan["of"], peer.plan.get("of")))
        if differing:
            peer.refused = "it serves something else: " + "; ".join(differing[:3])
            peer.is_live = False
            log.warning("producer %s is not used: %s", peer.address, peer.refused)
            return
        peer.is_live = True
        peer.heard = time.monotonic()

    def _agree(self, now: float) -> None:
        """When the first producers have answered, what they serve must be the same."""
        if self._plan is not None or self._first_at is None:
            return
        known = [peer for peer in self._peers if peer.plan is not None and not peer.refused]
        if not known:
            self._first_at = None  # who had answered is gone again
            return
        if len(known) < len(self._peers) and now - self._first_at < FIRST_SECONDS:
            return
        first = known[0]
        assert first.plan is not None
        for other in known[1:]:
            assert other.plan is not None
            if differing := list(differences("", first.plan["of"], other.plan["of"])):
                text = "; ".join(differing[:3])
                self._fail(
                    StateError(
                        f"the producers {first.address} and {other.address} serve different data: {text}",
                        hint="start all of them with the same program and the same data",
                    )
                )
                return
        self._plan = first.plan
        for peer in known:
            self._accept(peer)
        self._changed.ring()

    # -- asking ----------------------------------------------------------------------------------

    def _look_after(self, now: float) -> None:
        """Notice who says nothing any more, and when there is nobody left."""
        options = self._options
        for peer in self._peers:
            if peer.is_live and now - peer.heard > options.timeout:
                self._lose(peer, f"it has said nothing for {options.timeout:g} s")
            elif peer.is_live and now - max(peer.heard, peer.pinged) > min(1.0, options.timeout / 4):
                peer.pinged = now
                self._send(peer, {"kind": "ping"})
        if any(peer.is_live for peer in self._peers):
            self._alone_since = now
            waits = self._pass is not None and bool(self._pass.wanted)
            if not waits:
                self._progress = now
            elif now - self._progress > max(options.patience, 2 * options.timeout):
                self._fail(UnavailableError(f"no batch came for {options.patience:g} s from {self._shown()}"))
        elif all(peer.refused for peer in self._peers):
            self._fail(self._all_refuse())
        elif now - self._alone_since > options.patience:
            self._fail(UnavailableError(f"no producer answered for {options.patience:g} s: {self._shown()}"))

    def _all_refuse(self) -> Exception:
        by_key = all("keys" in peer.refused for peer in self._peers)
        return (SecurityError if by_key else StateError)(f"no producer can be used: {self._shown()}")

    def _shown(self) -> str:
        few = [peer.address + (f" ({peer.refused})" if peer.refused else "") for peer in self._peers[:8]]
        more = len(self._peers) - len(few)
        return ", ".join(few) + (f" and {more} more" if more else "")

    def _ask(self, now: float) -> None:
        for asked, request in self._outlines.items():
            if isinstance(request, dict) and "asked" not in request:
                peer = next((one for one in self._peers if one.is_live), None)
                if peer is not None:
                    self._send(peer, {**request, "id": asked})
                    request["asked"] = id(peer)
        current = self._pass
        if current is None or self._plan is None:
            return
        for wanted in current.wanted.values():
            if not wanted.asked or self._is_late(wanted, now):
                self._ask_for(current, wanted, now)
        while current.next_asked < current.outline.steps and self._has_room(current):
            wanted = _Wanted(current.next_asked, current.outline.at(current.next_asked))
            if not self._ask_for(current, wanted, now):
                return
            current.wanted[wanted.number] = wanted
            current.next_asked += 1

    def _has_room(self, current: _Pass) -> bool:
        under_way = len(current.wanted)
        if not under_way and not current.arrived:
            return True
        if not self._largest or under_way + len(current.arrived) >= MOST_ASKED:
            return False
        return (under_way + 1) * self._largest + self._held <= self._options.budget

    def _is_late(self, wanted: _Wanted, now: float) -> bool:
        """Whether a batch takes so long that another producer is asked, too: the first that answers counts."""
        limit = max(3 * self._options.timeout, 4 * self._slowest)
        return len(wanted.asked) == 1 and now - min(wanted.asked.values()) > limit

    def _ask_for(self, current: _Pass, wanted: _Wanted, now: float) -> bool:
        peer = self._owner(wanted)
        if peer is None:
            return False
        self._ids += 1
        self._numbers[self._ids] = wanted.number
        if wanted.asked or now - wanted.since > TICK:
            self.counts["batches_asked_again"] += 1
        wanted.asked[id(peer)] = now
        feeds = current.outline.feeds
        self._send(
            peer, {"kind": "get", "id": self._ids, "epoch": current.epoch, "feeds": feeds, "at": list(wanted.at)}
        )
        return True

    def _owner(self, wanted: _Wanted) -> _Peer | None:
        """Whom to ask: each feed has its home, and if that is not there the others take over evenly."""
        at, count = wanted.at, len(self._peers)
        feed = at.rank + at.worker * at.world
        turn, home = divmod(feed, count)
        others = [(home + 1 + (turn + step) % (count - 1)) % count for step in range(count - 1)]
        for number in [home, *others]:
            peer = self._peers[number]
            if peer.is_live and peer.address not in wanted.failed and id(peer) not in wanted.asked:
                return peer
        return None

    def _send(self, peer: _Peer, message: dict[str, Any]) -> None:
        with suppress(self._zmq.ZMQError):
            peer.socket.send(packed(message), self._zmq.NOBLOCK)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._error = self._error or error
            self._changed.ring()


def _id(envelope: Any) -> int:
    try:
        return int(unpacked(envelope.buffer, MAX_HEADER_BYTES)["id"])
    except (WebDatasetError, KeyError, TypeError, ValueError):
        return -1
