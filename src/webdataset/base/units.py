"""Sizes as people write them: 256MiB, 1e9, 500M."""

from __future__ import annotations

import math

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def number_of_bytes(size: object) -> int:
    """A number of bytes, given as a number or with a unit.

    >>> number_of_bytes("256MiB"), number_of_bytes("2k"), number_of_bytes(1e9), number_of_bytes(0)
    (268435456, 2000, 1000000000, 0)
    """
    text = str(size).strip().lower().removesuffix("b")
    unit = text.lstrip("0123456789.e+-").strip()
    try:
        value = float(text[: len(text) - len(unit)]) * UNITS[unit]
    except (KeyError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"a size such as 1e9, 500M or 1GiB is needed, got {size!r}")
    return int(value)


def size_text(size: float) -> str:
    """A number of bytes for people.

    >>> size_text(1), size_text(999), size_text(1_500_000)
    ('1 byte', '999 bytes', '1.5 MB')
    """
    if size < 1000:
        return counted(round(size), "byte")
    units = ["kB", "MB", "GB", "TB"]
    power = min(len(str(int(size))) - 1, 3 * len(units)) // 3
    return f"{size / 1000**power:,.1f} {units[power - 1]}"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "shard"), counted(12345, "sample")
    ('1 shard', '12,345 samples')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
