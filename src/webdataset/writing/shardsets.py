"""The shards of a numbered pattern: their names, and those that were there before a writer began.

>>> shard_name("a-%03d.tar", 7), shard_number("a-%03d.tar", "a-007.tar"), shard_number("a-%03d.tar", "b-007.tar")
('a-007.tar', 7, None)
"""

from __future__ import annotations

import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, takewhile
from typing import Any

from webdataset.base.redact import redacted
from webdataset.errors import MissingShardError
from webdataset.gopen import open_ranges
from webdataset.storage.options import StorageOptions
from webdataset.storage.removing import remove, remove_file
from webdataset.storage.stores.lookup import is_stored, listed
from webdataset.storage.urls import FAMILIES, has_parameters, is_replaced, local_path, rewritten_url, scheme_of

from .outindex import index_names
from .outputs import local_target

AT_ONCE = 16
"""Requests to a server at the same time."""

_NUMBER = re.compile(r"%[-+ 0#]*\d*d")
_SHARD = re.compile(r"\{shard(?::([^{}]*))?\}")
_BASES = {"b": 2, "o": 8, "x": 16, "X": 16}

State = tuple[Any, ...]
"""A shard's size, time and the like: another for any shard that takes its name."""


def shard_name(pattern: str, shard: int) -> str:
    """The name of a shard.

    >>> shard_name("a-%03d.tar", 7), shard_name("a-{shard:03d}.tar", 7), shard_name("a.tar", 7)
    ('a-007.tar', 'a-007.tar', 'a.tar')
    """
    try:
        if _SHARD.search(pattern):
            return _SHARD.sub(lambda found: f"{shard:{found.group(1) or ''}}", pattern)
        return pattern % shard if _NUMBER.search(pattern) else pattern
    except (TypeError, ValueError) as error:
        hint = "write it once as %06d or {shard:06d}, and any other % as %%"
        raise ValueError(f"the pattern {pattern!r} does not take a shard's number ({error}); {hint}") from None


def shard_number(pattern: str, name: str) -> int | None:
    """The number of the shard that has this name; None if the pattern makes no such name.

    >>> shard_number("a-{shard:04x}.tar", "a-00ff.tar"), shard_number("a-%03d.tar", "a-7.tar")
    (255, None)
    """
    found = _regex(pattern).fullmatch(name)
    if found is None or not found.groups():
        return None
    spec = _SHARD.search(pattern)
    base = _BASES.get((spec.group(1) or "d")[-1:], 10) if spec else 10
    try:
        number = int(found.group(1), base)
    except ValueError:
        return None
    return number if shard_name(pattern, number) == name else None


def is_numbered(pattern: str) -> bool:
    """Whether a name takes the number of a shard.

    >>> is_numbered("a-%06d.tar"), is_numbered("a-{shard:04d}.tar"), is_numbered("a.tar")
    (True, True, False)
    """
    return shard_name(pattern, 0) != shard_name(pattern, 1)


def range_text(pattern: str, numbers: Sequence[int]) -> str:
    """Shards by their names: the only one, or the first and the last.

    >>> range_text("a-%03d.tar", [2, 3, 4]), range_text("a-%03d.tar", [7])
    ('a-002.tar to a-004.tar', 'a-007.tar')
    """
    first, last = (redacted(shard_name(pattern, number)) for number in (numbers[0], numbers[-1]))
    return first if first == last else f"{first} to {last}"


def counted(numbers: Sequence[int], kind: str = "shard") -> tuple[str, str]:
    """How many shards these are, and the verb that goes with them.

    >>> counted([3]), counted([3, 4], "complete shard")
    (('1 shard', 'is'), ('2 complete shards', 'are'))
    """
    return (f"1 {kind}", "is") if len(numbers) == 1 else (f"{len(numbers)} {kind}s", "are")


class EarlierShards:
    """The shards of a pattern, from a number on, as they are at this moment: before a new set is written.

    A folder and an object store are listed; a web server is asked for one number after the other, up to the first that
    is missing. Other places (`pipe:`, `ssh:`, schemes of your own) are not looked at. With `exact`, a shard of a store
    that is replaced later is noticed, too, which takes a request for each.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in (0, 1, 2, 7):
    ...         open(f"{folder}/a-{number:03d}.tar", "w").close()
    ...     earlier = EarlierShards(f"{folder}/a-%03d.tar")
    ...     earlier.remove(earlier.following(1))
    ...     earlier.numbers, sorted(os.listdir(folder))
    ([0, 7], ['a-000.tar', 'a-007.tar'])
    """

    def __init__(
        self,
        pattern: str,
        start: int = 0,
        *,
        exact: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._place = _place_of(pattern, start, StorageOptions.of(storage_options))
        self._states = {} if self._place is None else self._place.states(start, exact)

    @property
    def numbers(self) -> list[int]:
        """The shards that were there, without those that `remove` has removed."""
        return sorted(self._states)

    def unchanged(self, numbers: Iterable[int]) -> list[int]:
        """Which of these shards were there and have not changed."""
        known = [number for number in numbers if number in self._states]
        if not known or self._place is None:
            return []
        now = self._place.states_of(known)
        return [number for number in known if now[number] and self._states[number] in (None, now[number])]

    def following(self, number: int) -> list[int]:
        """The unchanged shards from this number on, up to the first gap."""
        there = self.unchanged(takewhile(self._states.__contains__, count(number)))
        return [found for found, expected in zip(there, count(number), strict=False) if found == expected]

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove shards with their indices, but none that was replaced since; the highest first: no gap appears."""
        for number in sorted(self.unchanged(numbers), reverse=True):
            assert self._place is not None
            self._place.remove(*self._place.indices(number), self._place.url(number))
            del self._states[number]

    def remove_indices(self, number: int) -> None:
        """Remove the indices of a shard that is about to be replaced: they must never stand beside the new one."""
        if number in self._states and self._place is not None:
            self._place.remove(*self._place.indices(number))

    def among(self, urls: Iterable[str]) -> list[str]:
        """Which of these urls are shards of the set."""
        if self._place is None or not self._states:
            return []
        shards = {_identity(self._place.address(number)) for number in self._states}
        return [url for url in urls if _identity(rewritten_url(url)) in shards]


class _Place(ABC):
    """Where the shards of a pattern are."""

    is_near = False
    """Whether looking at a shard costs nothing worth speaking of."""

    def __init__(self, pattern: str, options: StorageOptions) -> None:
        self.pattern = pattern
        self.options = options
        self._names: frozenset[str] | None = None  # what there is to be removed, as far as that is known

    @abstractmethod
    def state(self, url: str) -> State | None:
        """The present state of a shard; None if there is none."""

    def listed(self, start: int) -> Iterable[str] | None:  # noqa: ARG002 - for places that can be listed
        """The urls of all that is there, at least of the set's; None if they cannot be listed."""
        return None

    def url(self, number: int) -> str:
        """The name of a shard, as `state` and `remove` take it."""
        return shard_name(self.pattern, number)

    def address(self, number: int) -> str:
        """Where a shard is."""
        return rewritten_url(self.url(number))

    def states(self, start: int, exact: bool) -> dict[int, State | None]:
        """The shards that are there; None for the state of one that was only listed."""
        if not is_numbered(self.pattern):
            return {number: state for number, state in self.states_of([start]).items() if state}
        names = self.listed(start) if self._tells_numbers() else None
        if names is None:
            return self._in_turn(start)
        names = list(names)
        self._names = None if self.is_near else frozenset(names)
        numbers = [number for name in names if (number := self._number(name)) is not None and number >= start]
        if exact or self.is_near:
            return {number: state for number, state in self.states_of(numbers).items() if state}
        return dict.fromkeys(numbers)

    def states_of(self, numbers: Sequence[int]) -> dict[int, State | None]:
        """The present states of some shards."""
        if self.is_near or len(numbers) < 2:
            return {number: self.state(self.url(number)) for number in numbers}
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(AT_ONCE, "webdataset-look") as pool:
            return dict(zip(numbers, pool.map(self.state, map(self.url, numbers)), strict=True))

    def indices(self, number: int) -> list[str]:
        """The indices that a shard has."""
        is_there = self.state if self._names is None else self._names.__contains__
        return [name for name in index_names(self.url(number)) if is_there(name)]

    def remove(self, *urls: str) -> None:
        """Remove what belongs to the set."""
        for url in urls:
            remove(url, storage_options=self.options)

    def _number(self, url: str) -> int | None:
        return shard_number(self.pattern, url)

    def _tells_numbers(self) -> bool:
        """Whether the number can be found in a name: no odd pattern hides it."""
        return self._number(self.url(10)) == 10

    def _in_turn(self, start: int) -> dict[int, State | None]:
        found: dict[int, State | None] = {}
        size = 1  # mostly there is nothing at all
        while True:
            numbers = range(start + len(found), start + len(found) + size)
            for number, state in self.states_of(numbers).items():
                if not state:
                    return found
                found[number] = state
            size = AT_ONCE


class _Files(_Place):
    """A folder of this machine."""

    is_near = True

    def url(self, number: int) -> str:
        return os.path.abspath(local_path(rewritten_url(shard_name(self.pattern, number))) or "")

    def address(self, number: int) -> str:
        return self.url(number)

    def remove(self, *urls: str) -> None:
        for path in urls:
            remove_file(path)

    def state(self, url: str) -> State | None:
        try:
            status = os.stat(url)
        except OSError:
            return None
        regular = stat.S_ISREG(status.st_mode)
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) if regular else None

    def listed(self, start: int) -> Iterable[str] | None:
        folder = os.path.dirname(self.url(start))
        if folder != os.path.dirname(self.url(start + 1)):  # the number is the folder's
            return None
        return [os.path.join(folder, name) for name in os.listdir(folder)]

    def _number(self, url: str) -> int | None:
        return shard_number(os.path.basename(self.pattern), os.path.basename(url))


class _Web(_Place):
    """A web server."""

    def indices(self, number: int) -> list[str]:
        return [] if has_parameters(self.address(number)) else super().indices(number)

    def state(self, url: str) -> State | None:
        try:
            with open_ranges(url, storage_options=self.options) as reader:
                return reader.size, reader.version
        except MissingShardError:
            return None


class _Objects(_Web):
    """An object store."""

    def listed(self, start: int) -> Iterable[str] | None:  # noqa: ARG002 - for folders
        prefix, known = _words(self.pattern)[0], self.url(10)
        if prefix.count("/") < 3:  # the number is the bucket's
            return None
        if self.address(10) != rewritten_url(prefix) + known[len(prefix) :]:  # GOPEN_REWRITE hides the number
            return None
        try:
            return [url for url, _ in listed(prefix, self.options)]
        except MissingShardError:  # a bucket or folder that is not there yet
            return []


def _place_of(pattern: str, start: int, options: StorageOptions) -> _Place | None:
    """The place of a pattern, if it can be looked at."""
    url = rewritten_url(shard_name(pattern, start))
    if local_target(url) is not None:
        return _Files(pattern, options)
    if is_replaced(url):
        return None
    if is_stored(url):
        return _Objects(pattern, options)
    return _Web(pattern, options) if FAMILIES.get(scheme_of(url)) == "http" else None


def _identity(url: str) -> str:
    """A name that all names of one file share."""
    path = local_path(url)
    return url if path is None else os.path.realpath(path)


def _regex(pattern: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, _words(pattern))
    return re.compile("".join([first, *(f"([^/]+){word}" for word in rest)]), re.DOTALL)


def _words(pattern: str) -> list[str]:
    """The text before, between and after the numbers of a pattern."""
    if _SHARD.search(pattern):
        return re.split(r"\{shard(?::[^{}]*)?\}", pattern)
    return [word.replace("%%", "%") for word in _NUMBER.split(pattern)]
