"""A trainer's side of the wire: it asks producers for batches by number, and asks another one if one does not answer.

One thread owns the sockets. It keeps as many requests under way as fit into the budget of bytes, notices when a
producer is gone (its connection ends), hangs (nothing comes from it, not even a part of a batch), fails (it says so),
or is slower than others, and gives the batches in order to whoever iterates.
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

from .addresses import Lookup, check_allowed, zeromq
from .feeds import FeedStep, Outline, Remaining
from .placing import Placing
from .wire import MAX_HEADER_BYTES, VERSION, Incoming, batch_items, packed, size_of, unpacked

if TYPE_CHECKING:
    from .keys import KeyFile

log = Log(__name__)

MOST_ASKED = 64
"""Batches that are asked for, or held, at the same time, however small they are."""
MOST_FAILURES = 3
"""How often a batch is asked for again after it could not be made, or came damaged."""
FIRST_SECONDS = 0.5
"""How long the first producer that answers waits for the others, so that differences are found before training."""
MOST_QUEUED = 8
"""Messages of a producer that wait for the thread: they are no part of the budget."""
TICK = 0.1
AGAIN_SECONDS, MOST_AGAIN_SECONDS = 0.1, 2.0
"""After how long a producer is greeted again, at first, and after many times."""
WAIT_SECONDS = 0.5
"""How long a trainer waits for one producer while another has nothing to do, until feeds move: reading again costs."""
SETTLED_ROUNDS = 4
"""Rounds of the feeds after which they may be moved again."""
DENIED = 400
"""What a producer says of a key that is not in its list."""


COUNTED = ("batches_received", "bytes_received", "batches_asked_again", "producers_lost", "feeds_moved")


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
        self.asked: dict[_Peer, float] = {}
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
        self.refused: WebDatasetError | None = None
        """Why it is not used, whatever happens."""
        self.seen = ""
        """What happened last instead of an answer."""
        self.is_live = self.was_met = False
        self.failures = 0
        """Greetings that failed, one after the other."""
        self.open_at = 0.0
        """When it is greeted, or greeted again."""
        self.heard = self.pinged = self.gave = 0.0
        self.making = 0.0
        """How long a batch takes it, as it says."""
        self.incoming: dict[int, Incoming] = {}
        """Batches of which a part has come, by the number of the request."""

    @property
    def shown(self) -> str:
        said = str(self.refused) if self.refused is not None else self.seen
        return f"{self.address} ({said})" if said else self.address


class _Pass:
    """The steps of an epoch that one iteration takes."""

    def __init__(self, outline: Outline | Remaining, epoch: int, first: int) -> None:
        self.outline = outline
        self.epoch = epoch
        self.next_asked = first
        self.wanted: dict[int, _Wanted] = {}
        self.arrived: dict[int, Arrived] = {}
        self.next_given = first
        self.is_waited_for = False
        """Whether whoever iterates waits for the next one."""
        self.waited: dict[str, float] = {}
        """Seconds of waiting for each producer while another had nothing to do."""
        self.settled_at = 0
        """The step after which feeds may be moved again."""


class Producers:
    """The producers that a trainer asks, with the thread that does it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        keys: KeyFile | None,
        insecure: bool = False,
        options: AskingOptions,
        rank: int,
        world: int,
        job: str = "",
        plan: dict[str, Any] | None = None,
    ) -> None:
        self.process = os.getpid()
        self._keys = keys
        self._insecure = insecure
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
        self._lookup = Lookup(urls)
        self._peers: list[_Peer] = []
        self._lock = threading.RLock()
        self._changed = Bell()
        self._plan = plan
        self._pass: _Pass | None = None
        self._outlines: dict[int, Any] = {}
        self._error: Exception | None = None
        self._ids = 0
        self._numbers: dict[int, int] = {}
        """Request -> the number of the batch it is for."""
        self._placing = Placing()
        self._turn_number = 0
        """Of two trainers of one job and rank the one with the higher number is the newer."""
        self._largest = self._held = 0
        self._slowest = 0.0
        self._first_at: float | None = None
        self._alone_since = self._progress = time.monotonic()
        self.counts = dict.fromkeys(COUNTED, 0)
        self._has_told_of_idle = False
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

    def outline(self, *, epoch: int, start: int, feeds: int, order: int) -> Outline:
        """An epoch as this rank takes it."""
        self.plan()
        with self._lock:
            self._ids += 1
            asked = self._ids
            where = {"epoch": epoch, "start": start, "feeds": feeds, "order": order}
            request = {"kind": "outline", "id": asked, **where}
            self._outlines[asked] = request
        self._alert()
        self._wait(lambda: not isinstance(self._outlines[asked], dict))
        with self._lock:
            found = self._outlines.pop(asked)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def steps(self, outline: Outline | Remaining, epoch: int, first: int) -> Generator[Arrived, None, None]:
        """The steps of an epoch from one on, in order."""
        with self._lock:
            self._pass = mine = _Pass(outline, epoch, first)
            self._placing.begin()
            self._forget_requests()
            self._held = 0
            self._progress = time.monotonic()
        self._alert()
        try:
            for number in range(first, outline.steps):
                mine.next_given, mine.is_waited_for = number, True
                self._wait(lambda number=number: number in mine.arrived)  # type: ignore[misc]
                with self._lock:
                    found = mine.arrived.pop(number)
                    self._held -= found.size
                    mine.is_waited_for = False
                self._alert()
                yield found
        finally:
            with self._lock:
                if self._pass is mine:
                    self._pass = None
                    self._forget_requests()
            self._alert()

    def live(self) -> list[str]:
        """The addresses of the producers that answer."""
        with self._lock:
            return [peer.address for peer in self._peers if peer.is_live]

    def close(self) -> None:
        """Say goodbye, and close the connections."""
        self._is_closed = True
        self._lookup.close()
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

    def _forget_requests(self) -> None:
        self._numbers.clear()
        for peer in self._peers:
            self._placing.unasked(peer.address)

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            seen = time.monotonic()
            while not self._is_closed and self._error is None:
                self._follow()
                self._hear()
                now = time.monotonic()
                with self._lock:
                    self._agree(now)
                    self._look_after(now)
                    self._ask(now)
                    self._weigh(now, now - seen)
                seen = now
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

    def _follow(self) -> None:
        """Meet producers that have come, and forget those that are gone, also from where they are looked up."""
        found, known = self._lookup.found, {peer.address for peer in self._peers}
        new = [address for address in found if address not in known]
        gone = [peer for peer in self._peers if not peer.is_live and peer.address not in found]
        for address in new:
            check_allowed(address, self._keys, insecure=self._insecure)
        for peer in gone:
            self._shut(peer)
        if new or gone:
            with self._lock:
                self._peers = [peer for peer in self._peers if peer not in gone] + [_Peer(address) for address in new]

    def _hear(self) -> None:
        """Wait until something comes, but not for long."""
        zmq, now = self._zmq, time.monotonic()
        poller = zmq.Poller()
        poller.register(self._woken.fileno(), zmq.POLLIN)
        for peer in self._peers:
            if peer.socket is None and now >= peer.open_at:
                self._open(peer)
            if peer.socket is not None:
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

    # -- connections -----------------------------------------------------------------------------

    def _open(self, peer: _Peer) -> None:
        zmq = self._zmq
        peer.socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, 1),
            (zmq.RECONNECT_IVL, 100),
            (zmq.RECONNECT_IVL_MAX, 2000),
            (zmq.HANDSHAKE_IVL, max(1000, int(self._options.timeout * 1000))),
            (zmq.RCVHWM, MOST_QUEUED),
            (zmq.MAXMSGSIZE, MAX_HEADER_BYTES),
        ):
            peer.socket.setsockopt(option, value)
        if self._keys is not None:
            self._keys.connect(peer.socket)
        peer.monitor = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        peer.socket.connect(peer.address)
        self._send(peer, self._hello)

    def _shut(self, peer: _Peer, linger: int = 0) -> None:
        if peer.socket is not None:
            peer.socket.disable_monitor()
            peer.monitor.close(linger=0)
            peer.socket.close(linger=linger)
        peer.socket = peer.monitor = None

    def _lose(self, peer: _Peer, reason: str) -> None:
        """A producer is gone, or not believed: others are asked for its batches, and its address is tried again."""
        if peer.is_live:
            log.warning("producer %s: %s", peer.address, reason)
            self.counts["producers_lost"] += 1
        # a socket that is kept would deliver old requests to the producer when it is there again
        self._shut(peer)
        now = time.monotonic()
        with self._lock:
            peer.open_at = now + min(AGAIN_SECONDS * 2**peer.failures, MOST_AGAIN_SECONDS)
            peer.failures += not peer.is_live
            peer.is_live, peer.plan, peer.seen = False, None, reason
            peer.incoming.clear()
            self._placing.lost(peer.address)
            self._ask_others(peer)

    def _ask_others(self, peer: _Peer) -> None:
        """Nothing that a producer was asked for is expected of it any more."""
        for wanted in self._pass.wanted.values() if self._pass is not None else ():
            wanted.asked.pop(peer, None)
        for request in self._outlines.values():
            if isinstance(request, dict) and request.get("asked") is peer:
                del request["asked"]

    def _observe(self, peer: _Peer) -> None:
        from zmq.utils.monitor import recv_monitor_message

        zmq = self._zmq
        while peer.monitor is not None and peer.monitor.poll(0):
            event = recv_monitor_message(peer.monitor)
            if event["event"] == zmq.EVENT_DISCONNECTED:
                self._lose(peer, "its connection has ended" if peer.is_live else self._unanswered())
            elif event["value"] == DENIED:  # others say that it could not be found out
                hint = "its keys have no such trainer: `wl keygen` adds one, and it reads them when it starts"
                peer.refused = SecurityError("it does not let this trainer in", hint=hint)

    def _unanswered(self) -> str:
        """What may be if a connection ends before there is an answer: what is there, or on the way, does not say."""
        keys = "does it want keys" if self._keys is None else "is this trainer's key of the same `wl keygen`"
        return f"a connection is made, but ends before it answers: is a producer there, and {keys}?"

    # -- receiving -------------------------------------------------------------------------------

    def _receive(self, peer: _Peer) -> None:
        zmq = self._zmq
        for _ in range(MOST_ASKED):
            if peer.socket is None:
                return
            try:
                envelope, *frames = peer.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                return
            peer.heard = time.monotonic()
            try:
                message = unpacked(envelope.buffer, MAX_HEADER_BYTES)
                self._handle(peer, message, frames)
            except (SampleError, AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                with self._lock:
                    self._blame(peer, self._numbers.get(_id(envelope)), f"sent something that cannot be read: {error}")
                self._lose(peer, f"what it sends cannot be read: {error}")
                return

    def _handle(self, peer: _Peer, message: dict[str, Any], frames: list[Any]) -> None:
        kind = message["kind"]
        if kind in ("batch", "part"):
            self._add(peer, message, [frame.buffer for frame in frames])
        elif kind == "plan":
            with self._lock:
                self._meet(peer, message["plan"], message.get("turn", 0))
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

    def _add(self, peer: _Peer, message: dict[str, Any], pieces: list[memoryview]) -> None:
        """A part of a batch; the first says how large its frames are."""
        request = int(message["id"])
        with self._lock:
            number, current = self._numbers.get(request), self._pass
            wanted = None if number is None or current is None else current.wanted.get(number)
            if wanted is None or current is None or peer not in wanted.asked:
                peer.incoming.pop(request, None)  # nobody waits for it any more
                self._numbers.pop(request, None)
                return
            now = time.monotonic()
            self._slowest = max(self._slowest, now - max(wanted.asked[peer], peer.gave))
            peer.gave = self._progress = now
        try:
            if message["kind"] == "batch":
                peer.incoming[request] = Incoming(message.get("sizes"), self._options.largest)
                peer.making = float(message.get("seconds", 0.0))
            incoming = peer.incoming[request]
            if not incoming.add(pieces):
                return
            views = incoming.frames
            header = unpacked(views[0], MAX_HEADER_BYTES)
            items = batch_items(header, views[1:])
            counts, reasons = dict(header["counts"]), dict(header["reasons"])
        except (SampleError, AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            with self._lock:
                self._blame(peer, wanted.number, f"sent a damaged batch: {error}")
            self._lose(peer, f"it sends damaged batches: {error}")
            return
        except WebDatasetError as error:
            self._fail(error)
            return
        with self._lock:
            self._take(peer, request, current, wanted, Arrived(wanted.number, items, size_of(views), counts, reasons))

    def _take(self, peer: _Peer, request: int, current: _Pass, wanted: _Wanted, found: Arrived) -> None:
        now = time.monotonic()
        del peer.incoming[request], self._numbers[request], current.wanted[found.number]
        first = not self._placing.is_open(wanted.at.feed, peer.address)
        self._placing.came(peer.address, now, more=self._is_asked(peer), making=peer.making, first=first)
        for other in wanted.asked:
            self._unask(other)
        self._placing.opened(wanted.at.feed, peer.address)
        if wanted.at.after.step >= wanted.at.stop:
            self._placing.ended(wanted.at.feed)
        current.arrived[found.number] = found
        self._largest = max(self._largest, found.size)
        self._held += found.size
        self.counts["batches_received"] += 1
        self.counts["bytes_received"] += found.size
        self._changed.ring()

    def _is_asked(self, peer: _Peer) -> bool:
        return self._pass is not None and any(peer in wanted.asked for wanted in self._pass.wanted.values())

    def _hear_of_error(self, peer: _Peer, message: dict[str, Any]) -> None:
        text = f"{message['text']}"
        if message.get("type") == "replaced":
            if (message["turn"], message["session"]) > (self._turn_number, self._hello["session"]):
                self._fail(StateError(text, url=peer.address))
            else:
                self._join(peer)  # it had not heard yet that this one is the newer
        elif message.get("fatal"):
            peer.refused = StateError(text)
            log.warning("producer %s refuses: %s", peer.address, text)
            with self._lock:
                peer.is_live = False
                self._ask_others(peer)
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
        wanted.asked.pop(peer, None)
        wanted.failures.append(f"{peer.address}: {text}")
        wanted.failed.add(peer.address)
        self._unask(peer)
        live = [one.address for one in self._peers if one.is_live]
        if len(wanted.failures) >= MOST_FAILURES or {*live} <= wanted.failed:
            self._fail(WorkerError(f"batch {number} cannot be made: {wanted.failures[-1]}"))

    def _meet(self, peer: _Peer, plan: dict[str, Any], turn: object) -> None:
        peer.plan = plan
        if plan.get("version") != VERSION:
            text = f"it speaks version {plan.get('version')!r} of the protocol, and this trainer {VERSION}"
            peer.refused = StateError(text)
            return
        peer.refused, peer.seen, peer.failures = None, "", 0
        # only at first: whoever comes back may have been replaced meanwhile
        if not peer.was_met and isinstance(turn, int) and turn > self._turn_number:
            self._turn_number = turn
            for other in self._peers:
                if other.is_live:
                    self._join(other)
        peer.was_met = True
        if self._plan is not None:
            self._accept(peer)
        elif self._first_at is None:
            self._first_at = time.monotonic()

    def _accept(self, peer: _Peer) -> None:
        assert self._plan is not None
        assert peer.plan is not None
        differing = list(differences("", self._plan["of"], peer.plan.get("of")))
        if differing:
            peer.refused = StateError("it serves something else: " + "; ".join(differing[:3]))
            peer.is_live = False
            log.warning("producer %s is not used: %s", peer.address, peer.refused)
            return
        peer.is_live = True
        peer.heard = time.monotonic()
        self._join(peer)

    def _join(self, peer: _Peer) -> None:
        self._send(peer, {**self._hello, "kind": "join", "turn": self._turn_number})

    def _agree(self, now: float) -> None:
        """When the first producers have answered, what they serve must be the same."""
        if self._plan is not None or self._first_at is None:
            return
        known = [peer for peer in self._peers if peer.plan is not None and peer.refused is None]
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
        elif self._peers and all(peer.refused is not None for peer in self._peers):
            self._fail(self._all_refuse())
        elif now - self._alone_since > options.patience:
            self._fail(UnavailableError(f"no producer answered for {options.patience:g} s: {self._shown()}"))

    def _all_refuse(self) -> Exception:
        by_key = all(isinstance(peer.refused, SecurityError) for peer in self._peers)
        return (SecurityError if by_key else StateError)(f"no producer can be used: {self._shown()}")

    def _shown(self) -> str:
        failed = [f"{place} ({why})" for place, why in self._lookup.failed.items()]
        few, more = [*failed, *(peer.shown for peer in self._peers[:8])], len(self._peers) - 8
        return ", ".join(few) + (f" and {more} more" if more > 0 else "")

    def _ask(self, now: float) -> None:
        for asked, request in self._outlines.items():
            if isinstance(request, dict) and "asked" not in request:
                peer = next((one for one in self._peers if one.is_live), None)
                if peer is not None:
                    self._send(peer, {**request, "id": asked})
                    request["asked"] = peer
        current = self._pass
        if current is None or self._plan is None:
            return
        self._tell_of_idle(current.outline)
        for wanted in current.wanted.values():
            if not wanted.asked or self._is_late(wanted, now):
                self._ask_for(current, wanted, now)
        while current.next_asked < current.outline.steps and self._has_room(current):
            wanted = _Wanted(current.next_asked, current.outline.at(current.next_asked))
            if not self._ask_for(current, wanted, now):
                return
            current.wanted[wanted.number] = wanted
            current.next_asked += 1

    def _tell_of_idle(self, outline: Outline | Remaining) -> None:
        live, feeds = sum(peer.is_live for peer in self._peers), outline.feeds
        if live > feeds and not self._has_told_of_idle:
            self._has_told_of_idle = True
            log.warning(
                "%d producers share %d feeds, so %d have nothing to do: RemoteLoader(..., feeds=%d) has one for each",
                *(live, feeds, live - feeds, -(-live // outline.world) * outline.world),
            )

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
        # those behind a large one wait for it
        return len(wanted.asked) == 1 and all(now - max(at, one.gave) > limit for one, at in wanted.asked.items())

    def _ask_for(self, current: _Pass, wanted: _Wanted, now: float) -> bool:
        peer = self._whom(wanted)
        if peer is None:
            return False
        self._ids += 1
        self._numbers[self._ids] = wanted.number
        if wanted.asked or now - wanted.since > TICK:
            self.counts["batches_asked_again"] += 1
        wanted.asked[peer] = now
        self._placing.asked(peer.address, now)
        feeds = current.outline.order
        self._send(
            peer, {"kind": "get", "id": self._ids, "epoch": current.epoch, "feeds": feeds, "at": list(wanted.at)}
        )
        return True

    def _whom(self, wanted: _Wanted) -> _Peer | None:
        """Whom to ask: each feed has its home, and if that cannot make a batch another one does."""
        live = {peer.address: peer for peer in self._peers if peer.is_live}
        able = [one for one, peer in live.items() if one not in wanted.failed and peer not in wanted.asked]
        if not able:
            return None
        at = wanted.at
        number = at.rank + at.worker * at.world
        home = self._placing.home(at.feed, number, [*live])
        return live[home if home in able else self._placing.best(number, able)]

    def _weigh(self, now: float, passed: float) -> None:
        """Move feeds of a producer for which the trainer waits while another one has nothing to do."""
        current = self._pass
        wanted = current.wanted.get(current.next_given) if current is not None and current.is_waited_for else None
        if current is None or wanted is None or len(wanted.asked) != 1 or wanted.number < current.settled_at:
            return
        slow = next(iter(wanted.asked))
        live = [peer for peer in self._peers if peer.is_live]
        if slow not in live or not self._placing.is_open(wanted.at.feed, slow.address):
            return
        if all(self._is_asked(peer) for peer in live):
            return
        current.waited[slow.address] = waited = current.waited.get(slow.address, 0.0) + passed
        if waited < WAIT_SECONDS:
            return
        current.waited.clear()
        moved = self._placing.moved(slow.address, [peer.address for peer in live], now, keep=wanted.at.feed)
        if not moved:
            return
        log.info("producer %s is slow: %d of its feeds are made by others", slow.address, len(moved))
        self.counts["feeds_moved"] += len(moved)
        current.settled_at = wanted.number + SETTLED_ROUNDS * current.outline.feeds // current.outline.world
        for one in current.wanted.values():
            if one.at.feed in moved and slow in one.asked and not self._is_coming(slow, one):
                del one.asked[slow]
        self._unask(slow)
        for feed in moved:
            self._send(slow, {"kind": "leave", "epoch": current.epoch, "feeds": current.outline.order, "feed": feed})
        self._ask(now)

    def _unask(self, peer: _Peer) -> None:
        """Something is not expected of a producer any more."""
        if not self._is_asked(peer):
            self._placing.unasked(peer.address)

    def _is_coming(self, peer: _Peer, wanted: _Wanted) -> bool:
        """Whether a part of a batch has come already."""
        return any(self._numbers.get(request) == wanted.number for request in peer.incoming)

    def _send(self, peer: _Peer, message: dict[str, Any]) -> None:
        if peer.socket is not None:
            with suppress(self._zmq.ZMQError):
                peer.socket.send(packed(message), self._zmq.NOBLOCK)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._error = self._error or error
            self._changed.ring()


def _id(envelope: Any) -> int:
    try:
        return int(unpacked(envelope.buffer, MAX_HEADER_BYTES)["id"])
    except (WebDatasetError, AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return -1
