"""Progress on stderr while a command runs, and a summary when it is done.

1/2 reading [=======>            ]  37%  12,345 samples  1,234/s  56.7 MB/s  3 of 10 shards  0:12 left
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from webdataset.base.stops import Thread
from webdataset.base.units import counted, size_text
from webdataset.storage.urls import local_path

from . import terminal

if TYPE_CHECKING:
    from webdataset.tools.parallel import SharedCounts

INTERVAL = 0.5
FIRST = 1.0
"""Seconds after which the line appears on a terminal: quick commands show none."""
WAIT = 1.0
"""Seconds that a command waits for its size at most, before it begins."""
LOOK_EVERY = 64
MANY_BYTES = 1 << 20
BAR = 20


class ProgressDisplay:
    """Counts what a command reads and writes; shows a line if stderr is a terminal or the user asked for one.

    `watch(samples)` counts what is read, here or in processes that were started after the display was made,
    `progress(samples)` what comes out, then `progress.summary(stats)` says it. A command that reads everything before
    it writes has two `passes`; the second begins with the first sample that comes out. `tick()` shows the line if it
    is time, where there is no sample to count. The line is JSON if `--json` says so; `as_json=False` is for commands
    whose result that option is about.
    """

    def __init__(
        self,
        options: Namespace,
        urls: Sequence[str] | None = None,
        total: int | None = None,
        *,
        passes: Sequence[str] = (),
        noun: str = "sample",
        as_json: bool | None = None,
    ) -> None:
        urls = getattr(options, "urls", ()) if urls is None else urls
        self.every = getattr(options, "every", 0) or 0
        self.json = getattr(options, "json", False) if as_json is None else as_json
        self.quiet = getattr(options, "quiet", False)
        self.terminal = sys.stderr.isatty()
        self.shown = not self.quiet and (
            getattr(options, "progress", False) or self.json or bool(self.every) or self.terminal
        )
        self.verbose = getattr(options, "verbose", False)
        self.summarized = getattr(options, "summarized", False)
        self.total = getattr(options, "count", None) if total is None else total
        self.passes = passes
        self.noun = noun
        self.count = self.read = self.bytes = self.shards = 0
        self.start = self._began = time.monotonic()
        self.stats: Callable[[], dict[str, Any]] = dict
        self._shards = len(urls)
        self._all = _size_of_all(urls) if self.shown else 0
        self._writing = len(passes) < 2
        self._shown_at = self.start + (FIRST - INTERVAL if self.terminal else 0 if self.json else -INTERVAL)
        self._line = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._elsewhere = _shared_counts() if self.shown and (getattr(options, "processes", 0) or 0) > 1 else None

    @classmethod
    def of(cls, options: Namespace, **more: Any) -> ProgressDisplay:
        """The display of this command; the first who asks makes it."""
        found: ProgressDisplay | None = getattr(options, "display", None)
        if found is None:
            found = options.display = cls(options, **more)
        return found

    def __call__(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Count the samples that come out, and show progress."""
        for sample in samples:
            if not self._writing:
                self._write()
            self.count += 1 if type(sample) is dict else len(getattr(sample, "sizes", " "))
            if self.shown and self._is_time(self.count):
                self._show()
            yield sample
        self.clear()

    def watch(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Count the samples that are read: a stage of the pipeline, where there is a line to show."""
        if self._elsewhere is not None and os.getpid() != self._process:
            yield from _counted_in(self._elsewhere, samples)
            return
        for sample in samples:
            self.read += 1
            self.bytes += _size_in_archive(sample)
            if not self.every and self._is_time(self.read):
                self._show()
            yield sample

    def expect(self, size_of_all: Callable[[], int]) -> None:
        """Count percent by bytes, of a number that is found out meanwhile if that takes long; 0 is unknown."""
        if not self.shown:
            return

        def find_out() -> None:
            with contextlib.suppress(Exception):  # what cannot be read is told where it is read
                self._all = size_of_all()

        thread = Thread(target=find_out, name="webdataset-size", daemon=True)
        thread.start()
        thread.join(WAIT)

    def add(self, samples: int, size: int, shards: int = 0) -> None:
        """Count several samples at once that were read and written."""
        with self._lock:
            self.count += samples
            self.read += samples
            self.bytes += size
            self.shards += shards
        self.tick()

    def tick(self) -> None:
        """Show the line if it is time, and if this is the thread that shows it."""
        if self.shown and not self.every and threading.current_thread() is threading.main_thread() and self._due():
            self._show()

    def summary(self, stats: dict[str, Any] | None = None, written: str = "", **more: object) -> None:
        """Print how much was read and written, and what was skipped and why; nothing with -q."""
        self.clear()
        if self.quiet:
            return
        stats = stats or {}
        seconds = time.monotonic() - self.start
        skipped = {name: n for name, n in stats.items() if name in SKIPPED and n}
        if self.json:
            reasons = stats.get("reasons", {})
            facts = {"done": True, "samples": self.count, "seconds": round(seconds, 3), **skipped, "reasons": reasons}
            terminal.err(_json(facts | more))
            return
        if self.verbose or self.summarized or (self.shown and (not self.terminal or seconds > FIRST)):
            terminal.err(self._sentence(stats, written, seconds))
        for name, n in skipped.items():
            terminal.err(f"left out: {counted(n, name.split('_')[0].removesuffix('s'))}\n")
        if skipped:
            for reason, n in list(stats.get("reasons", {}).items())[:10]:
                terminal.err(f"  {n:,} x {reason}\n")

    def clear(self) -> None:
        """Erase the line, so that something else can be printed."""
        if self._line:
            terminal.replace_line("")
            self._line = False

    def _sentence(self, stats: dict[str, Any], written: str, seconds: float) -> str:
        """What was read, what was written where, and how long that took."""
        read = stats.get("samples_read") or self.read or self.count
        shards = 0 if self.total else stats.get("shards_read", 0)  # some may have been read in part
        size = stats.get("bytes_read") or self.bytes
        parts = [counted(read, self.noun)]
        parts += [f"of {counted(shards, 'shard')}"] if shards else []
        parts += [f"of {counted(stats['files_read'], 'file')}"] if "files_read" in stats else []
        text = " ".join(parts) + (f" ({size_text(size)})" if size else "") + " read"
        if written:
            text += f", {f'{self.count:,}' if self.count != read else 'all'} written to {written}"
        elif self.count != read:
            text += f", {self.count:,} used"
        return f"{text}, in {seconds:.1f} s ({read / max(seconds, 1e-9):,.0f}/s)\n"

    def _write(self) -> None:
        """Begin the second pass: everything is read."""
        self._writing = True
        self._began = self.start if not self.shown else time.monotonic()

    def _is_time(self, count: int) -> bool:
        """Every N samples if the user asked for that, else twice a second."""
        if self.every:
            return count % self.every == 0
        return (count % LOOK_EVERY == 0 or count < LOOK_EVERY) and self._due()

    def _due(self) -> bool:
        return time.monotonic() - self._shown_at > INTERVAL

    def _show(self) -> None:
        self._shown_at = now = time.monotonic()
        seconds = max(now - self._began, 1e-9)
        second = bool(self.passes[1:]) and self._writing
        read, size = self._all_read()
        count = self.count if second else max(read, self.count)
        stats = self.stats()
        shards = max(stats.get("shards_read", 0), self.shards)
        count = count if second else max(count, stats.get("samples_read", 0))
        done = self._fraction(second, shards, read, size)
        left = seconds / done * (1 - done) if 0 < done < 1 else None
        if self.json:
            facts = {"samples": count, "rate": round(count / seconds, 1), "fraction": round(done, 4), "eta": left}
            terminal.err(_json(facts))
            return
        parts = [f"{1 + second}/{len(self.passes)} {self.passes[second]}"] if self.passes[1:] else []
        parts += [_bar(done)] if done else []
        parts += [counted(count, self.noun), f"{count / seconds:,.0f}/s"]
        parts += [f"{size_text(size / seconds)}/s"] if size and not second else []
        parts += [f"{shards:,} of {counted(self._shards, 'shard')}"] if self._shards and not second else []
        parts += [f"{_clock(left)} left"] if left is not None else []
        self._print("  ".join(parts))

    def _print(self, text: str) -> None:
        if self.terminal:
            text = text[: os.get_terminal_size(sys.stderr.fileno()).columns - 1] if _has_size() else text
            terminal.replace_line(text)
            self._line = True
        else:
            terminal.err(f"{text}\n")
        sys.stderr.flush()

    def _all_read(self) -> tuple[int, int]:
        """The samples and bytes that were read, by other processes too."""
        if self._elsewhere is None:
            return self.read, self.bytes
        return self.read + self._elsewhere.samples, self.bytes + self._elsewhere.bytes

    def _fraction(self, second: bool, shards: int, read: int, size: int) -> float:
        """How much of the pass is done, by bytes if the sizes are known, else by shards."""
        if second:
            total = read or self.stats().get("samples_read", 0)
            return min(self.count / total, 1.0) if total else 0.0
        found = [self.count / self.total] if self.total else []
        if self._all:
            found.append(size / self._all)
        if self._shards:
            found.append(shards / self._shards)
        return min(max(found, default=0.0), 1.0)


SKIPPED = ("samples_dropped", "shards_skipped", "members_dropped")


def _shared_counts() -> SharedCounts:
    from webdataset.tools.parallel import SharedCounts

    return SharedCounts()


def _counted_in(counts: SharedCounts, samples: Iterable[Any]) -> Iterator[Any]:
    """Count samples in memory that another process shows, some at a time."""
    number = size = 0
    try:
        for sample in samples:
            number, size = number + 1, size + _size_in_archive(sample)
            if number >= LOOK_EVERY or size > MANY_BYTES:
                counts.add(number, size)
                number = size = 0
            yield sample
    finally:
        counts.add(number, size)


def _size_in_archive(sample: Any) -> int:
    if not isinstance(sample, dict):
        return 0
    return sum(512 + len(data) + -len(data) % 512 for data in sample.values() if type(data) is bytes)


def _json(facts: dict[str, Any]) -> str:
    import json

    return json.dumps(facts) + "\n"


def _has_size() -> bool:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 1
    except (OSError, ValueError):
        return False


def _bar(done: float) -> str:
    """
    >>> _bar(0.25), _bar(1.0)
    ('[=====>              ]  25%', '[====================] 100%')
    """
    full = int(done * BAR)
    return f"[{'=' * full + '>' * (full < BAR):<{BAR}}] {done:4.0%}"


def _size_of_all(urls: Sequence[str]) -> int:
    """Return the size of all shards, if they are local and not compressed; else 0."""
    total = 0
    for url in urls:
        path = local_path(url)
        if path is None or not path.endswith(".tar") or not os.path.isfile(path):
            return 0
        total += os.path.getsize(path)
    return total


def _clock(seconds: float) -> str:
    """
    >>> _clock(3725), _clock(59)
    ('1:02:05', '0:59')
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
