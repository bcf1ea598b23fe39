"""Which producer makes which feed: as many each at first, then as each is fast. Nothing is sent, and no clock is read.

A feed stays where it is, since whoever takes it over reads its windows again. It is moved when its producer is gone,
or when the trainer has waited for a slow one while another had nothing to do, and all would be faster by a fifth.

>>> placing = Placing()
>>> [placing.home(feed, number, ["a", "b"]) for number, feed in enumerate("wxyz")]
['a', 'b', 'a', 'b']
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

Feed = Hashable

LATEST = 32
"""Batches after which the speed of a producer is mostly that of the later ones."""
SILENCE_SECONDS = 10.0
"""Seconds of work after which a silence is mostly forgotten, however many batches came at once when it was over."""
LESS = 0.8
"""The part of the time that may be left, if feeds are to be moved."""


class _Mean:
    """A mean in which what is older counts less."""

    def __init__(self) -> None:
        self._sum = self._count = 0.0

    def add(self, value: float, decay: float, count: int = 1) -> None:
        self._sum, self._count = self._sum * decay + value, self._count * decay + count

    @property
    def value(self) -> float:
        return self._sum / self._count if self._count else self._sum


class _Speed:
    """How long a producer takes for a batch, while it is asked for some."""

    def __init__(self) -> None:
        self.since: float | None = None
        """When it gave the latest, or was asked for the first; None while it is asked for nothing."""
        self.has_given = False
        """Whether any batch of this pass is its own."""
        self.latest, self.lasting = _Mean(), _Mean()
        self.longest = 0.0
        self.making = 0.0
        """What the producer itself says: one that had time to make some ahead gives these at once."""

    def add(self, seconds: float, *, first: bool) -> None:
        self.has_given = True
        decay = 1 - 1 / LATEST
        self.latest.add(seconds, decay)
        if not first:
            self.lasting.add(seconds, math.exp(-seconds / SILENCE_SECONDS))
        self.longest = max(self.longest * decay, seconds)

    def wait_no_longer(self, now: float) -> None:
        """Count the silence up to now, since what would have ended it will come from somebody else."""
        if self.since is not None:
            self.latest.add(now - self.since, 1.0, 0)
            self.lasting.add(now - self.since, 1.0, 0)
            self.since = now

    def per_batch(self, usual: float = 0.0) -> float:
        """Seconds for a batch: who gives many at once after a silence is not fast; `usual` if it gave none."""
        return max(self.latest.value or usual, self.lasting.value, self.making)


class Placing:
    """The homes of feeds, and how fast producers are, each known by its address."""

    def __init__(self) -> None:
        self._homes: dict[Feed, str] = {}
        self._open: dict[Feed, str] = {}
        """Who has given a batch of a feed: the first takes longer, and says nothing of those that follow."""
        self._speeds: dict[str, _Speed] = {}

    def begin(self) -> None:
        """Deal all feeds again; who had none, since it was slow, is tried once more."""
        self._speeds = {address: speed for address, speed in self._speeds.items() if speed.has_given}
        for speed in self._speeds.values():
            speed.since, speed.has_given = None, False
        self._homes.clear()
        self._open.clear()

    def home(self, feed: Feed, number: int, able: Sequence[str]) -> str:
        """Who makes a feed: whoever has made it, or the one of the able that would be done first with one more.

        Of those that are as good, `number` chooses, so that the feeds of all ranks are spread over all producers.
        """
        found = self._homes.get(feed)
        if found is None or found not in able:
            found = self._homes[feed] = self.best(number, able)
        return found

    def best(self, number: int, able: Sequence[str]) -> str:
        """Who would be done first with one more feed."""
        turn, seconds, counts = number % len(able), self._seconds(able), self._counts()
        return min([*able[turn:], *able[:turn]], key=lambda one: (counts[one] + 1) * seconds[one])

    def ended(self, feed: Feed) -> None:
        """The last batch of a feed has come."""
        self._homes.pop(feed, None)
        self._open.pop(feed, None)

    def lost(self, address: str) -> None:
        """A producer is gone, and what it was asked for is not expected any more."""
        self._homes = {feed: home for feed, home in self._homes.items() if home != address}
        self._speeds.pop(address, None)

    def opened(self, feed: Feed, address: str) -> None:
        """A producer has given a batch of a feed."""
        self._open[feed] = address

    def is_open(self, feed: Feed, address: str) -> bool:
        """Whether a producer has given a batch of a feed, and so has read its first window."""
        return self._open.get(feed) == address

    # -- how fast they are -----------------------------------------------------------------------

    def asked(self, address: str, now: float) -> None:
        """A producer was asked for a batch."""
        speed = self._speeds.setdefault(address, _Speed())
        if speed.since is None:
            speed.since = now

    def came(self, address: str, now: float, *, more: bool, making: float = 0.0, first: bool = False) -> None:
        """A producer gave a batch; `more` says whether it is still asked for others, `making` how long one takes it.

        `first` says that it is the first of its feed.
        """
        speed = self._speeds.setdefault(address, _Speed())
        speed.making = making or speed.making
        if speed.since is not None:
            speed.add(now - speed.since, first=first)
        speed.since = now if more else None

    def unasked(self, address: str) -> None:
        """Nothing is expected of a producer any more."""
        if address in self._speeds:
            self._speeds[address].since = None

    # -- moving ----------------------------------------------------------------------------------

    def moved(self, slow: str, able: Sequence[str], now: float, keep: Feed = None) -> dict[Feed, str]:
        """Feeds of a slow producer and their new homes, if all would be faster by a fifth; `keep` is moved last.

        >>> placing = Placing()
        >>> homes = [placing.home(feed, feed, ["slow", "fast"]) for feed in range(16)]
        >>> for second in range(10):
        ...     placing.asked("fast", second)
        ...     placing.came("fast", second + 1, more=False)
        >>> placing.asked("slow", 0)
        >>> len(placing.moved("slow", ["slow", "fast"], now=10))
        7
        """
        seconds, counts = self._seconds(able, now), self._counts()
        feeds = sorted((feed for feed, home in self._homes.items() if home == slow), key=lambda feed: feed == keep)
        others, found = [one for one in able if one != slow], dict[Feed, str]()
        before = _slowest(able, counts, seconds)
        for feed in feeds:
            best = min(others, key=lambda one: (counts[one] + 1) * seconds[one])
            if (counts[best] + 1) * seconds[best] >= counts[slow] * seconds[slow]:
                break
            found[feed] = best
            counts[slow] -= 1
            counts[best] += 1
        if _slowest(able, counts, seconds) > LESS * before:
            return {}
        self._homes.update(found)
        if slow in self._speeds:
            self._speeds[slow].wait_no_longer(now)
        return found

    def _counts(self) -> Counter[str]:
        return Counter(self._homes.values())

    def _seconds(self, able: Sequence[str], now: float | None = None) -> dict[str, float]:
        """Seconds for a batch; of those that are not known yet as of the fastest, until they have taken longer."""
        speeds = {one: self._speeds.get(one) or _Speed() for one in able}
        known = [speed.per_batch() for speed in speeds.values() if speed.latest.value]
        usual, longest = min(known, default=1.0), max(speed.longest for speed in speeds.values())
        found = {}
        for one, speed in speeds.items():
            found[one] = max(speed.per_batch(usual), 1e-6)
            if now is not None and speed.since is not None and now - speed.since > 2 * longest:
                found[one] = max(found[one], now - speed.since)
        return found


def _slowest(able: Sequence[str], counts: Counter[str], seconds: dict[str, float]) -> float:
    return max(counts[one] * seconds[one] for one in able)
