"""Look after processes that do items: give them work, end those that take too long, replace those that die."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from webdataset.base.settings import settings
from webdataset.errors import WorkerError

from .forks import ForkedProcess, can_fork
from .generations import check_newest
from .outcomes import EXIT_CODES, Verdict
from .plans import RunPlan
from .records import DONE, KILLED, TIMEOUT, AttemptRecord, RecordReader, RecordWriter, Tries, generation_of, records_of

START_SECONDS = 120.0
"""For a process to start, on a busy machine."""
GRACE_SECONDS = 1.0
"""For processes to end, all together, before they are killed."""


Serve = Callable[[str], int]
"""Serves a plan in this process: what a copy of it calls."""


class Hand:
    """A process that does items of one plan: `wl task PLAN --serve`, or a copy of this one that calls `serve`."""

    def __init__(
        self, plan: RunPlan, serve: Serve | None = None, others: Iterable[Hand] = (), memory: int | None = None
    ) -> None:
        self.plan = plan
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill and dismiss
        # what a copy has of this process would count
        self.process = self._started() if serve is None or memory else self._copied(serve, others)
        if memory:
            _limit_memory(self.process.pid, memory)
        self.job: tuple[int, int] | None = None
        """Number and attempt of what it does."""
        self.began, self._since = 0.0, 0.0
        """When it began, for people; and by a clock that nobody sets, for the time limit."""
        self.is_ready = False
        """Whether it has started, which does not count as time of an item."""
        self._answer = b""

    def _copied(self, serve: Serve, others: Iterable[Hand]) -> ForkedProcess:
        """Fork, which takes a hundredth of the time, as everything is imported already."""
        # a copy that held the others' pipes would keep them from noticing that nobody asks any more
        pipes = [stream.fileno() for hand in others for stream in (hand.process.stdin, hand.process.stdout)]
        settings_of = self.plan.options.environment

        def call() -> int:
            settings.update_environment(settings_of)
            return serve(self.plan.url)

        return ForkedProcess(call, self.said.fileno(), pipes)

    def _started(self) -> Any:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        return subprocess.Popen(  # noqa: S603 - this program itself
            [sys.executable, "-m", "webdataset", "task", self.plan.url, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env=settings.child_environment({"PYTHONPATH": path} | self.plan.options.environment),
            start_new_session=True,  # Ctrl-C is for who looks after it; and its own children end with it
        )

    def ask(self, number: int, attempt: int, task: str = "") -> None:
        """Let it do an item, for this task."""
        self.job = number, attempt
        self._begin()
        with contextlib.suppress(BrokenPipeError):  # it has died, which its answer will tell
            asked = {"number": number, "attempt": attempt, "task": task}
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()

    def fileno(self) -> int:
        return int(self.process.stdout.fileno())

    def answer(self) -> AttemptRecord | None:
        """Return the record that it has sent, None if it has not sent all of it; EOFError if it is dead."""
        data = os.read(self.fileno(), 1 << 16)
        if not data:
            raise EOFError
        self._answer += data
        if not self.is_ready and b"\n" in self._answer:
            # a short item may be done already: then its record has come with this line
            _, _, self._answer = self._answer.partition(b"\n")
            self.is_ready = True
            self._begin()
        if not self.is_ready or b"\n" not in self._answer:
            return None
        line, _, self._answer = self._answer.partition(b"\n")
        self.job = None
        return AttemptRecord.parsed(line)

    def seconds_left(self, limit: float) -> float:
        """Return how much longer an item may take."""
        return self._since + limit + (0 if self.is_ready else START_SECONDS) - time.monotonic()

    def _begin(self) -> None:
        self.began, self._since = time.time(), time.monotonic()

    @property
    def is_alive(self) -> bool:
        return bool(self.process.poll() is None)

    def kill(self) -> int:
        """End it and all that it has started, and return its exit code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code: int = self.process.wait()
        self._close()
        return code

    def terminate(self) -> None:
        """Ask it, and all that it has started, to end: it removes what it has not finished."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if self.job is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, which it does in this time or by force."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def last_words(self) -> str:
        """Return the last line that it has written to stderr outside of items."""
        with contextlib.suppress(OSError, ValueError):
            self.said.seek(0)
            lines = self.said.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.said):
            with contextlib.suppress(OSError):
                stream.close()


def can_limit_memory() -> bool:
    """Whether this system holds processes to an amount of memory."""
    return hasattr(resource, "prlimit")


def _limit_memory(pid: int, memory: int) -> None:
    """Let a process, and each that it starts, allocate no more than this."""
    with contextlib.suppress(ProcessLookupError):  # it has died, which its answer will tell
        _, most = resource.prlimit(pid, resource.RLIMIT_DATA)
        least = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.prlimit(pid, resource.RLIMIT_DATA, (least, least))


class Crew:
    """Does items with several processes; `poll` until `finished`, then `close`."""

    def __init__(
        self,
        plan: RunPlan,
        numbers: Iterable[int],
        size: int = 1,
        *,
        hands: Iterable[Hand] = (),
        task: str = "",
        tried: Mapping[int, int] | None = None,
        serve: Serve | None = None,
        memory: int | None = None,
    ) -> None:
        self.plan = plan
        self._serve = serve
        self._memory = memory
        """What a process may have, where nothing else limits it."""
        self.task = task
        """The name of the task, `GENERATION-SUBMISSION-NUMBER`."""
        self._tried = tried or {}
        """How often items have been tried in other tasks."""
        self.stopped: AttemptRecord | None = None
        """The record that says that going on makes no sense."""
        self._fresh = iter(numbers)
        self._again: deque[tuple[int, int]] = deque()
        self._size = size
        self._idle = [hand for hand in hands if hand.is_alive]
        self._busy: list[Hand] = []
        self._records = RecordWriter(plan.place, task)
        self._selector = selectors.DefaultSelector()
        self._exhausted = False
        self._deaths = 0
        """How many processes died in a row before they had done anything."""

    @property
    def running(self) -> int:
        return len(self._busy)

    @property
    def finished(self) -> bool:
        return not self._busy and (self._exhausted and not self._again)

    def poll(self, seconds: float) -> list[AttemptRecord]:
        """Give out work and wait for answers, at most this long; return the records of attempts that ended."""
        self._give_out()
        found = []
        for key, _ in self._selector.select(self._patience(seconds)) if self._busy else ():
            hand: Any = key.fileobj
            try:
                record = hand.answer()
            except EOFError:
                record = self._dead(hand)
            if record is not None:
                found.append(record)
                self._settle(hand, record)
        found += self._overdue()
        self._give_out()
        return found

    def close(self, *, keep: bool = False) -> list[Hand]:
        """End the processes; with `keep`, return those that are idle instead."""
        kept, self._idle = (self._idle, []) if keep else ([], self._idle)
        ended([*self._busy, *self._idle])
        self._selector.close()
        return kept

    def _next(self) -> tuple[int, int] | None:
        if self.stopped is not None:
            self._exhausted = True
            self._again.clear()
            return None
        if self._again:
            return self._again.popleft()
        number = next(self._fresh, None)
        self._exhausted = number is None
        return None if number is None else (number, self._tried.get(number, 0) + 1)

    def _give_out(self) -> None:
        while len(self._busy) < self._size and (job := self._next()) is not None:
            hand = self._idle.pop() if self._idle else self._new_hand()
            hand.ask(*job, self.task)
            self._busy.append(hand)
            self._selector.register(hand, selectors.EVENT_READ)

    def _new_hand(self) -> Hand:
        """Start a process: a copy of this one, where that is possible."""
        serve = self._serve if can_fork() else None
        return Hand(self.plan, serve, [*self._busy, *self._idle], self._memory)

    def _patience(self, seconds: float) -> float:
        limit = self.plan.options.timeout
        if limit is None or not self._busy:
            return seconds
        return max(0.0, min(seconds, *(hand.seconds_left(limit) for hand in self._busy)))

    def _settle(self, hand: Hand, record: AttemptRecord) -> None:
        self._selector.unregister(hand)
        self._busy.remove(hand)
        if hand.process.returncode is None:
            self._idle.append(hand)
            self._deaths = 0
        if record.verdict == Verdict.STOP:
            self.stopped = record
        elif not record.final:
            self._again.append((record.number, record.attempt + 1))

    def _overdue(self) -> list[AttemptRecord]:
        limit = self.plan.options.timeout
        if limit is None:
            return []
        found = []
        for hand in [hand for hand in self._busy if hand.seconds_left(limit) <= 0]:
            hand.kill()
            record = self._ended(hand, TIMEOUT, f"it took more than {limit:g} seconds")
            found.append(record)
            self._settle(hand, record)
        return found

    def _dead(self, hand: Hand) -> AttemptRecord:
        code = hand.process.wait()
        words = hand.last_words()
        hand.kill()
        self._deaths += 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        text = f"the process {how}" + (f": {words}" if words else "")
        record = self._ended(hand, KILLED, text, code)
        if code in (1, 2) and words and self._deaths > self.plan.options.retries + self._size:
            raise WorkerError(f"processes that do shards end at once: {words}")
        return record

    def _ended(self, hand: Hand, status: str, error: str, code: int | None = None) -> AttemptRecord:
        """Record the end of an attempt whose process cannot."""
        assert hand.job is not None
        number, attempt = hand.job
        item, plan = self.plan.item(number), self.plan
        generation = generation_of(self.task)
        record = AttemptRecord(item.name, status, attempt, plan.id, generation, number, plan.digest, item.version)
        record.time, record.seconds, record.error, record.code = hand.began, time.time() - hand.began, error, code
        record.verdict, record.final = Verdict.RETRY, attempt > plan.options.retries
        self._records.write(record)
        return record


def ended(hands: Sequence[Hand]) -> None:
    """End processes: all are asked at once, so that many take no longer than one."""
    for hand in hands:
        hand.terminate()
    until = time.monotonic() + GRACE_SECONDS
    for hand in hands:
        hand.wait(max(until - time.monotonic(), 0))


def do_items(
    plan: RunPlan,
    numbers: Sequence[int],
    hands: Iterable[Hand] = (),
    *,
    keep: bool = False,
    task: str = "",
    tried: Mapping[int, int] | None = None,
    memory: int | None = None,
) -> tuple[int, list[Hand]]:
    """Do these items, one after the other; return the exit code, and the idle processes if they are to be kept.

    Engines start a task again when its worker dies, Dask even one that had ended there: what has been done in it is
    not done again, and what was being done is left to be tried alone.
    """
    tried, worst = dict(tried or {}), Verdict.DONE
    rank = list(EXIT_CODES).index
    if task:
        check_newest(plan.place, generation_of(task))
        earlier = Tries(tried)
        earlier.add(RecordReader(plan.place, records_of(task)).new())
        lost = earlier.lost()
        tried |= {number: earlier.count(number) for number in earlier.begun}
        is_alone, most = len(numbers) == 1, plan.options.retries
        wanted = [n for n in numbers if n not in earlier.settled]
        numbers = [n for n in wanted if tried.get(n, 0) <= most and (n not in lost or is_alone)]
        worst = Verdict.DONE if numbers == wanted else Verdict.GIVE_UP
    crew = Crew(plan, numbers, hands=hands, task=task, tried=tried, memory=memory)
    kept: list[Hand] = []
    try:
        while not crew.finished:
            for record in crew.poll(60.0):
                if record.final and record.status != DONE:
                    verdict = Verdict.STOP if record.verdict == Verdict.STOP else Verdict.GIVE_UP
                    worst = max(worst, verdict, key=rank)
    finally:
        kept = crew.close(keep=keep)
    return EXIT_CODES[worst], kept
