"""Progress on stderr while a command runs (rate and time left), and a summary when it is done."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from webdataset.storage.urls import local_path

INTERVAL = 0.5
LOOK_EVERY = 64


class ProgressDisplay:
    """Counts samples as they pass; shows a line if stderr is a terminal or the user asked for one.

    `for sample in progress(samples)`, then `progress.summary(stats)`.
    """

    def __init__(self, options: Namespace, urls: Sequence[str] | None = None, total: int | None = None) -> None:
        urls = getattr(options, "urls", ()) if urls is None else urls
        self.every = getattr(options, "every", 0) or 0
        self.json = getattr(options, "json", False)
        self.quiet = getattr(options, "quiet", False)
        self.shown = not self.quiet and (
            getattr(options, "progress", False) or self.json or bool(self.every) or sys.stderr.isatty()
        )
        self.verbose = getattr(options, "verbose", False)
        self.total = getattr(options, "count", None) if total is None else total
        self.count = self.bytes = 0
        self.start = time.monotonic()
        self._sizes = _sizes(urls) if self.shown else {}
        self._all = sum(self._sizes.values()) if len(self._sizes) == len(urls) and urls else 0
        self._shown_at = self.start
        self._line = False

    def __call__(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Count the samples, and show progress."""
        return self._watched(samples) if self.shown else self._counted(samples)

    def add(self, samples: int, size: int) -> None:
        """Count several samples at once."""
        self.count += samples
        self.bytes += size
        now = time.monotonic()
        if self.shown and now - self._shown_at > INTERVAL:
            self._shown_at = now
            self._show(now - self.start)

    def summary(self, stats: dict[str, Any] | None = None, **more: Any) -> None:
        """Print how much was done, and what was skipped and why; nothing with -q."""
        self.clear()
        if self.quiet:
            return
        seconds = time.monotonic() - self.start
        skipped = {name: n for name, n in (stats or {}).items() if name in SKIPPED and n}
        if self.json:
            reasons = (stats or {}).get("reasons", {})
            facts = {"done": True, "samples": self.count, "seconds": round(seconds, 3), **skipped, "reasons": reasons}
            sys.stderr.write(_json(facts | more))
            return
        if self.shown or self.verbose:
            sys.stderr.write(f"{self.count} samples in {seconds:.1f} s, {self.count / max(seconds, 1e-9):.0f}/s\n")
        for name, n in skipped.items():
            sys.stderr.write(f"left out: {n} {name.split('_')[0]}\n")
        if skipped:
            for reason, n in list((stats or {}).get("reasons", {}).items())[:10]:
                sys.stderr.write(f"  {n} x {reason}\n")

    def clear(self) -> None:
        """Erase the line, so that something else can be printed."""
        if self._line:
            sys.stderr.write("\r\x1b[K")
            self._line = False

    def _counted(self, samples: Iterable[Any]) -> Iterator[Any]:
        for sample in samples:
            self.count += 1 if type(sample) is dict else len(getattr(sample, "sizes", " "))
            yield sample

    def _watched(self, samples: Iterable[Any]) -> Iterator[Any]:
        for sample in samples:
            self.count += 1
            if packed := getattr(sample, "sizes", None):
                self.count += len(packed) - 1
                self.bytes += len(sample.data)
            elif self._all and isinstance(sample, dict):
                self.bytes += sum(512 + len(v) + -len(v) % 512 for v in sample.values() if type(v) is bytes)
            if self._is_time():
                self._shown_at = time.monotonic()
                self._show(self._shown_at - self.start)
            yield sample
        self.clear()

    def _is_time(self) -> bool:
        """Every N samples if the user asked for that, else twice a second."""
        if self.every:
            return self.count % self.every == 0
        look = self.count % LOOK_EVERY == 0 or self.count < LOOK_EVERY
        return look and time.monotonic() - self._shown_at > INTERVAL

    def _show(self, seconds: float) -> None:
        rate = self.count / seconds
        done = self.count / self.total if self.total else self.bytes / self._all if self._all else 0.0
        left = seconds / done * (1 - done) if 0 < done < 1 else None
        if self.json:
            facts = {"samples": self.count, "rate": round(rate, 1), "fraction": round(done, 4), "eta": left}
            sys.stderr.write(_json(facts))
            return
        text = f"{self.count} samples, {rate:.0f}/s" + (f", {done:.0%}, {_clock(left)} left" if left else "")
        sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")
        self._line = sys.stderr.isatty()
        sys.stderr.flush()


SKIPPED = ("samples_dropped", "shards_skipped", "members_dropped")


def _json(facts: dict[str, Any]) -> str:
    import json

    return json.dumps(facts) + "\n"


def _sizes(urls: Sequence[str]) -> dict[str, int]:
    """Return the sizes of local, uncompressed shards."""
    sizes = {}
    for url in urls:
        path = local_path(url)
        if path is not None and path.endswith(".tar") and os.path.isfile(path):
            sizes[url] = os.path.getsize(path)
    return sizes


def _clock(seconds: float) -> str:
    """
    >>> _clock(3725), _clock(59)
    ('1:02:05', '0:59')
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
