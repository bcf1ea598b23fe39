"""Brace patterns: one string that stands for many urls.

>>> list(braceexpand("train-{000..002}.tar"))
['train-000.tar', 'train-001.tar', 'train-002.tar']
>>> list(braceexpand("{a,b{1..2}}.tar"))
['a.tar', 'b1.tar', 'b2.tar']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from webdataset.base.redact import redacted

MAX_URLS = 10_000_000
MAX_CHARACTERS = 1_000_000_000
"""Of all urls together: ten million of a hundred characters."""
MAX_DEPTH = 64

_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?")
_PADDED = re.compile(r"-?0\d")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def braceexpand(pattern: str, *, escape: bool = True, limit: int = MAX_URLS) -> Iterator[str]:
    """Expand the braces of a pattern as a shell does, lazily; more than `limit` results are refused at once.

    A backslash takes the meaning from the next character, unless `escape` is false.

    >>> list(braceexpand("{1..5..2}")), list(braceexpand("{x}"))
    (['1', '3', '5'], ['{x}'])
    """
    parts = _Parser(pattern, escape).parse()
    size = _size(parts)
    if size > limit:
        raise ValueError(
            f"the braces in {_short(pattern)} stand for {_amount(size)} urls, more than the limit of {limit}; "
            "write a smaller range"
        )
    if (characters := size * _length(parts)) > MAX_CHARACTERS:
        raise ValueError(
            f"the braces in {_short(pattern)} stand for {_amount(characters)} characters, more than {MAX_CHARACTERS}; "
            "write shorter numbers"
        )
    return _expand(parts)


class UnbalancedBracesError(ValueError):
    """A brace without its partner."""


class _Range:
    """`{1..9}` or `{a..f}`: values first, first + step, ..."""

    def __init__(self, values: range, width: int = 0, letters: bool = False) -> None:
        self.values = values
        self.width = width
        self.letters = letters

    def __iter__(self) -> Iterator[str]:
        for value in self.values:
            yield _ALPHABET[value] if self.letters else str(value).zfill(self.width)

    def length(self) -> int:
        return 1 if self.letters else max(self.width, len(str(self.values.start)), len(str(self.values.stop)))

    def size(self) -> int:
        span = abs(self.values.stop - self.values.start) - 1
        return span // abs(self.values.step) + 1


class _Choice:
    """`{a,b}`: one of several sequences of parts."""

    def __init__(self, options: tuple[tuple[_Part, ...], ...]) -> None:
        self.options = options

    def __iter__(self) -> Iterator[str]:
        for option in self.options:
            yield from _expand(option)

    def length(self) -> int:
        return max(map(_length, self.options))

    def size(self) -> int:
        return sum(_size(option) for option in self.options)


_Part = str | _Range | _Choice


class _Parser:
    """Reads a pattern once, left to right."""

    def __init__(self, pattern: str, escape: bool) -> None:
        self.pattern = pattern
        self.escape = escape
        self.position = 0

    def parse(self) -> tuple[_Part, ...]:
        parts = self.sequence(stop="}", depth=0)
        if self.position < len(self.pattern):
            raise self.unbalanced("}")
        return parts

    def sequence(self, stop: str, depth: int) -> tuple[_Part, ...]:
        """Parts up to one of the characters in `stop`, which is left unread."""
        if depth > MAX_DEPTH:
            raise ValueError(f"the braces in {_short(self.pattern)} are nested more than {MAX_DEPTH} deep")
        parts: list[_Part] = []
        literal: list[str] = []
        while self.position < len(self.pattern):
            character = self.pattern[self.position]
            if character in stop:
                break
            self.position += 1
            if character == "\\" and self.escape and self.position < len(self.pattern):
                literal.append(self.pattern[self.position])
                self.position += 1
            elif character == "{":
                parts += ["".join(literal), *self.braces(depth + 1)]
                literal = []
            else:
                literal.append(character)
        return (*parts, "".join(literal))

    def braces(self, depth: int) -> Sequence[_Part]:
        """What follows an opening brace, through its closing brace."""
        start = self.position
        options = [self.sequence(",}", depth)]
        while self.peek() == ",":
            self.position += 1
            options.append(self.sequence(",}", depth))
        if self.peek() != "}":
            raise self.unbalanced("{")
        inside = self.pattern[start : self.position]
        self.position += 1
        if len(options) > 1:
            return [_Choice(tuple(options))]
        found = _range(inside)
        if found is None:
            return ["{", *options[0], "}"]
        return list(found) if found.size() == 1 else [found]

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def unbalanced(self, brace: str) -> UnbalancedBracesError:
        return UnbalancedBracesError(
            f"Unbalanced braces: {_short(self.pattern)} has a {brace!r} without its partner; "
            f"write \\{brace} where the character itself is meant"
        )


def _range(text: str) -> _Range | None:
    if match := _NUMBERS.fullmatch(text):
        first, last, step = match.groups()
        padded = _PADDED.match(first) or _PADDED.match(last)
        return _Range(_steps(int(first), int(last), step), width=max(len(first), len(last)) if padded else 0)
    if match := _LETTERS.fullmatch(text):
        first, last, step = match.groups()
        return _Range(_steps(_ALPHABET.index(first), _ALPHABET.index(last), step), letters=True)
    return None


def _steps(first: int, last: int, step: str | None) -> range:
    """From first to last inclusive, up or down; a step of 0 counts as 1."""
    stride = int(step or 1) or 1
    return range(first, last + 1, stride) if first <= last else range(first, last - 1, -stride)


def _expand(parts: Sequence[_Part], done: str = "") -> Iterator[str]:
    for index, part in enumerate(parts):
        if isinstance(part, str):
            done += part
        else:
            rest = parts[index + 1 :]
            if all(isinstance(part, str) for part in rest):  # by far the commonest case, and lists are long
                end = "".join(map(str, rest))
                yield from (f"{done}{text}{end}" for text in part)
                return
            for text in part:
                yield from _expand(rest, done + text)
            return
    yield done


def _size(parts: Sequence[_Part]) -> int:
    size = 1
    for part in parts:
        size *= 1 if isinstance(part, str) else part.size()
    return size


def _length(parts: Sequence[_Part]) -> int:
    """Characters of the longest result."""
    return sum(len(part) if isinstance(part, str) else part.length() for part in parts)


def _short(pattern: str) -> str:
    pattern = redacted(pattern)
    return repr(pattern if len(pattern) <= 80 else pattern[:77] + "...")


def _amount(size: int) -> str:
    return str(size) if size < 10**15 else "more than 10^15"
