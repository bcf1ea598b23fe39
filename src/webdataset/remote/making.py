"""Batches as a producer makes them: each feed from a step on, by threads, some ahead of time.

Everything here follows from what is asked for: a feed that is being read is only a cache, which another request may
move, and which any other producer can have as well.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from webdataset.base.reports import Report
from webdataset.base.states import plain
from webdataset.base.stops import Bell, Thread
from webdataset.base.workers import make_seed
from webdataset.epochs.mixed import Mixed
from webdataset.epochs.share import Share
from webdataset.exact.positions import InEpoch, in_epoch
from webdataset.exact.program import Program
from webdataset.exact.run import EpochRun
from webdataset.handlers import close

from .feeds import FeedStep, Outline, outline
from .wire import VERSION, described_error, packed_batch, size_of

LATEST = 32
"""Batches after which the time for one is mostly that of the later ones."""
READERS = 2
"""Threads that read for a feed from servers: there are several feeds."""
NEAR = 4
"""Steps that are made rather than left out to get to the one that is asked for."""
KEPT_EPOCHS, KEPT_SHARES = 2, 64
MOST_OPEN, MOST_OPEN_IN_ALL = 256, 1024
"""Feeds that are open for one trainer, and for all: another closes the one that was asked for longest ago, for which
nobody waits, since a trainer asks for fewer at a time."""

Made = list[Any] | Exception
"""The frames of a batch, or why there is none."""
Send = Callable[[bytes, dict[str, Any], list[Any]], None]
"""`send(client, message, frames)`."""


class ServedPlan:
    """The plan of an exact pipeline, for any number of feeds; threads share it."""

    def __init__(self, program: Program, invoke: Callable[..., Any], strict: bool | None = None) -> None:
        self.program = program
        self.invoke = invoke
        self.strict = strict
        self._lock = threading.Lock()
        self._epochs: OrderedDict[tuple[int, int], Mixed] = OrderedDict()
        self._shares: OrderedDict[tuple[int, ...], Share] = OrderedDict()

    @property
    def in_turn(self) -> bool:
        """Whether steps are dealt to the ranks as they are without feeds."""
        return self.program.bucketing is not None or not self.program.sources[0].shards.settings.shuffle_bytes

    def described(self) -> dict[str, Any]:
        """All that a trainer has to know; what is under `of` must be the same at all producers."""
        program = self.program
        epoch = program.epoch(0)
        return {
            "version": VERSION,
            "of": plain({**program.described(), "cut": list(program.cut), "samples": epoch.total}),
            "batches": list(program.batches),
            "varies": program.varies,
            "in_turn": self.in_turn,
            "tokens": program.bucketing is not None,
        }

    def outline(self, *, epoch: int, start: int, feeds: int, order: int, rank: int, world: int) -> Outline:
        """An epoch as a rank takes it, which is in the order for `order` feeds, and dealt to `feeds`."""
        mixed = self.epoch(order, epoch)
        program = self.program
        return outline(
            lambda begin, number, ranks: self.share(order, epoch, begin, number, ranks),
            mixed.total,
            program.cut,
            feeds=feeds,
            rank=rank,
            world=world,
            start=start,
            in_turn=self.in_turn,
            order=order,
            per_step=program.batches.per_step,
            items_in=program.items_in,
        )

    def epoch(self, feeds: int, epoch: int) -> Mixed:
        """The order of an epoch with this number of feeds."""
        with self._lock:
            key = feeds, epoch
            if key not in self._epochs:
                self._epochs[key] = self._scaled_program(feeds).epoch(epoch)
                while len(self._epochs) > KEPT_EPOCHS:
                    self._epochs.popitem(last=False)
            self._epochs.move_to_end(key)
            return self._epochs[key]

    def share(self, feeds: int, epoch: int, start: int, rank: int, world: int) -> Share:
        """One share of it."""
        mixed, key = self.epoch(feeds, epoch), (feeds, epoch, start, rank, world)
        with self._lock:
            if key not in self._shares:
                self._shares[key] = self._scaled_program(feeds).share(mixed, start, (rank, world))
                while len(self._shares) > KEPT_SHARES:
                    self._shares.popitem(last=False)
            self._shares.move_to_end(key)
            return self._shares[key]

    def run(self, feeds: int, epoch: int, at: FeedStep, report: Report) -> EpochRun:
        """What makes a feed from a step on."""
        share = self.share(feeds, epoch, at.start, at.rank, at.world)
        if at.step >= min(at.stop, share.steps):
            raise ValueError(f"there is no step {at.step} in a feed of {share.steps}")
        seed = self.program.sources[0].shards.settings.seed
        return EpochRun(
            self._scaled_program(feeds),
            in_epoch(epoch, InEpoch(at.start, at.step, base=at.base)),
            report,
            worker=at.worker,
            workers=at.workers,
            ahead=not self.program.has_local_shards,
            part=(self.epoch(feeds, epoch), share),
            stop=at.stop,
            readers=min(READERS, self.program.connections or READERS),
            base_seed=make_seed("remote", seed, feeds, epoch, at.start, at.rank, at.world),
        )

    def _scaled_program(self, feeds: int) -> Program:
        # where feeds take turns, the order is that of ranks that read by themselves
        return self.program if self.in_turn else self.program.scaled(feeds)


class Asked(NamedTuple):
    """A request for a batch."""

    client: bytes
    id: int
    turn: int = 0
    """When it came: of several trainers, none is served first because its numbers are smaller."""


class FeedMaker:
    """One feed that is being read, from a step on."""

    def __init__(self, plan: ServedPlan, feeds: int, epoch: int, at: FeedStep) -> None:
        self.at = at
        """The step that is made next."""
        self.epoch = epoch
        self.ready: dict[int, Made] = {}
        """What nobody has asked for yet."""
        self.asked: dict[int, Asked] = {}
        self.is_busy = self.is_closed = False
        self._plan = plan
        self._feeds = feeds
        self._steps: Iterator[list[Any]] | None = None

    @property
    def has_more(self) -> bool:
        """Whether there are steps to be made."""
        return self.at.step < self.at.stop

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a step that it will come to."""
        return any(step >= self.at.step for step in self.asked)

    @property
    def ready_bytes(self) -> int:
        """Bytes that are made and not asked for."""
        return sum(size_of(made) for made in self.ready.values() if not isinstance(made, Exception))

    def reaches(self, step: int) -> bool:
        """Whether it has a step, or will come to it soon."""
        farthest = max([self.at.step, *self.asked])
        return step in self.ready or self.at.step <= step <= farthest + NEAR * self.at.workers

    def make(self) -> tuple[int, Made]:
        """Make the next step: the frames of its message, or what went wrong."""
        step = self.at.step
        try:
            if self._steps is None:
                self._steps = self._made()
            return step, next(self._steps)
        except Exception as error:
            self.release()
            if isinstance(error, StopIteration):
                error = RuntimeError(f"the feed has ended before its step {step}")
            return step, error

    def _made(self) -> Iterator[list[Any]]:
        report, before = Report(strict=self._plan.strict), dict[str, int]()
        with ExitStack() as opened:
            run = self._plan.run(self._feeds, self.epoch, self.at, report)
            opened.callback(run.close)
            work, steps = run.work(self._plan.invoke), run.steps()
            opened.callback(close, steps)
            for step in steps:
                number, items, counts = work(step)
                report.add(counts)
                now = {**report.counts}
                news = {name: count - before.get(name, 0) for name, count in now.items()}
                before = now
                yield packed_batch(items, step=number, counts=news, reasons=dict(report.reasons))

    def release(self) -> None:
        """Close what is open; the next step opens it again."""
        steps, self._steps = self._steps, None
        if steps is not None:
            close(steps)


class Workshop:
    """The feeds that are being read for all who ask, and the threads that do it.

    `send` is called in those threads with what is done.
    """

    def __init__(self, plan: ServedPlan, send: Send, *, threads: int, ahead: int) -> None:
        self._plan = plan
        self._send = send
        self._ahead = ahead
        self._makers: dict[tuple[Any, ...], FeedMaker] = {}
        self._turns = count()
        self._tasks: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._changed = Bell()
        self._is_closed = False
        self._seconds = 0.0
        self._threads = [Thread(target=self._run, name=f"feeds-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    # -- what is asked for -----------------------------------------------------------------------

    def get(self, owner: object, epoch: int, feeds: int, at: FeedStep, asked: Asked) -> None:
        """Make a batch of a feed and send it, or send it at once if it is there."""
        key = owner, epoch, feeds, at.feed
        with self._lock:
            self._drop(lambda other: other[0] == owner and other[1] != epoch)
            maker = self._makers.get(key)
            if maker is not None:
                self._makers[key] = self._makers.pop(key)  # the latest are at the end
            if maker is None or not maker.reaches(at.step):
                later = {} if maker is None else {step: who for step, who in maker.asked.items() if step > at.step}
                if maker is not None:
                    self._close(key)
                maker = self._makers[key] = FeedMaker(self._plan, feeds, epoch, at)
                maker.asked.update(later)
                self._close_some(owner)
            made = maker.ready.pop(at.step, None)
            for step in [step for step in maker.ready if step < at.step]:
                del maker.ready[step]
            if made is None:
                maker.asked[at.step] = asked._replace(turn=next(self._turns))
            self._changed.ring()
        if made is not None:
            self._answer(asked, made)

    def outline(self, asked: Asked, **wanted: int) -> None:
        """Find out how an epoch is for a rank, and send that."""
        with self._lock:
            self._tasks.append(partial(self._send_outline, asked, wanted))
            self._changed.ring()

    def leave(self, owner: object, epoch: int, feeds: int, feed: tuple[int, ...]) -> None:
        """An owner asks another producer for a feed."""
        with self._lock:
            self._drop(lambda key: key == (owner, epoch, feeds, feed))

    def unask(self, owner: object) -> None:
        """Nobody waits for what an owner has asked for any more: its feeds stay as they are."""
        with self._lock:
            for key, maker in self._makers.items():
                if key[0] == owner:
                    maker.asked.clear()

    def drop(self, owner: object) -> None:
        """Close the feeds of an owner."""
        with self._lock:
            self._drop(lambda key: key[0] == owner)

    def queue(self) -> tuple[int, int, int]:
        """How many feeds are open, how many batches are ready, and how many bytes they are."""
        with self._lock:
            makers = list(self._makers.values())
            return len(makers), sum(len(maker.ready) for maker in makers), sum(maker.ready_bytes for maker in makers)

    def close(self) -> None:
        """End the threads, and close all feeds."""
        with self._lock:
            self._is_closed = True
            self._drop(lambda _: True)
            self._changed.ring()
        for thread in self._threads:
            thread.join(5)
        while self._tasks:
            task = self._tasks.popleft()
            if getattr(task, "__name__", "") == "release":
                task()

    # -- the threads -----------------------------------------------------------------------------

    def _run(self) -> None:
        while (task := self._changed.wait(self._task)) is not None and task is not _over:
            task()

    def _task(self) -> Callable[[], object] | None:
        """What a thread does next, if there is anything to do."""
        with self._lock:
            if self._is_closed:
                return _over
            if self._tasks:
                return self._tasks.popleft()
            maker = self._next()
            if maker is None:
                return None
            maker.is_busy = True
            return partial(self._work, maker)

    def _work(self, maker: FeedMaker) -> None:
        begun = time.monotonic()
        step, made = maker.make()
        seconds = (time.monotonic() - begun) / len(self._threads)
        with self._lock:
            self._seconds += (seconds - self._seconds) / LATEST if self._seconds else seconds
            maker.at = maker.at.after
            maker.is_busy = False
            asked = maker.asked.pop(step, None)
            if not maker.has_more or maker.is_closed:
                self._tasks.append(maker.release)
            if not maker.is_closed and asked is None:
                maker.ready[step] = made
            self._changed.ring()
        if asked is not None and not maker.is_closed:
            self._answer(asked, made)

    def _answer(self, asked: Asked, made: Made) -> None:
        if isinstance(made, Exception):
            self._send(asked.client, described_error(made, asked.id), [])
        else:
            self._send(asked.client, {"kind": "batch", "id": asked.id, "seconds": self._seconds}, made)

    def _next(self) -> FeedMaker | None:
        """The feed to work at: one that is waited for, else the one with the fewest batches ready."""
        free = [maker for maker in self._makers.values() if not maker.is_busy and maker.has_more]
        wanted = [maker for maker in free if maker.is_wanted]
        if wanted:
            return min(wanted, key=lambda maker: min(asked.turn for asked in maker.asked.values()))
        poorest = min(free, key=lambda maker: len(maker.ready), default=None)
        if poorest is None or not poorest.ready:
            return poorest
        return poorest if sum(maker.ready_bytes for maker in self._makers.values()) < self._ahead else None

    def _send_outline(self, asked: Asked, wanted: dict[str, int]) -> None:
        try:
            found = self._plan.outline(**wanted)
        except Exception as error:
            self._send(asked.client, described_error(error, asked.id), [])
        else:
            self._send(asked.client, {"kind": "outline", "id": asked.id, **found._asdict()}, [])

    def _drop(self, which: Callable[[tuple[Any, ...]], bool]) -> None:
        for key in [key for key in self._makers if which(key)]:
            self._close(key)

    def _close_some(self, owner: object) -> None:
        """Close the feeds that were asked for longest ago, if there are too many."""
        own = [key for key in self._makers if key[0] == owner]
        if len(own) > MOST_OPEN:
            self._close(own[0])
        if len(self._makers) > MOST_OPEN_IN_ALL:
            most, _ = Counter(key[0] for key in self._makers).most_common(1)[0]
            self._close(next(key for key in self._makers if key[0] == most))

    def _close(self, key: tuple[Any, ...]) -> None:
        maker = self._makers.pop(key)
        maker.is_closed = True
        maker.ready.clear()
        if not maker.is_busy:  # else it is released when its step is done
            # by a thread of ours, since it may wait for a server, and requests are to be heard meanwhile
            self._tasks.append(maker.release)
            self._changed.ring()


def _over() -> None:
    """Nothing is to be done any more."""
