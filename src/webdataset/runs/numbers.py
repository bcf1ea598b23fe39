"""Numbers of items as text: `0-49,52`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as text.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def parsed_ranges(text: str, count: int | None = None) -> Iterator[int]:
    """Yield the numbers of a text; with a `count`, they are ascending numbers below it.

    >>> list(parsed_ranges("0-2,5"))
    [0, 1, 2, 5]
    """
    least = 0
    for word in text.split(","):
        first, _, last = word.partition("-")
        if not (first.isdecimal() and (last or "0").isdecimal()):
            raise ValueError(f"numbers of items are written 7 or 0-49,52, got {text!r}")
        start, stop = int(first), int(last or first) + 1
        if count is not None and not least <= start < stop <= count:
            raise ValueError(f"numbers of items are ascending and below {count}, got {word!r}")
        yield from range(start, stop)
        least = stop
