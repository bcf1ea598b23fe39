"""Text and values that came out of data, fit to be shown: on one line, within a length, and harmless to a terminal.

>>> printable("a\\x1b[2J")
'a\\\\x1b[2J'
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_NODES = 2_000_000
"""Values that a nested value may have, each counted as often as it is reached, where all of it is written out."""


def printable(text: str, limit: int | None = None) -> str:
    """The text with control characters and broken characters escaped, cut to a length if one is given."""
    cut = text if limit is None or len(text) <= limit else text[:limit]
    if not cut.isprintable():
        cut = "".join(char if char.isprintable() else _escaped(char) for char in cut)
    return cut if limit is None or len(text) <= limit else f"{cut[:limit]}..."


def harmless(text: str) -> str:
    """The text with what a terminal takes for orders escaped, as it may stand on several lines.

    >>> harmless("a\\tb\\r\\n\\x1b[2J\\u202e")
    'a\\tb\\n\\\\x1b[2J\\\\u202e'
    """
    return _ORDERS.sub(lambda found: _escaped(found[0]), text.replace("\r\n", "\n"))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about a word that nobody knows: the known one that looks most like it, if one does.

    >>> did_you_mean("initail", ["initial", "seed"]), did_you_mean("x", ["seed"])
    ("; did you mean 'initial'?", '')
    """
    import difflib

    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def short_repr(value: object, width: int) -> str:
    """The beginning of a value's repr, which takes no longer than that: data can make the whole of it endless.

    >>> short_repr(b"abcdef", 6), short_repr({"a": [1, 2]}, 20)
    ("b'abcd", "{'a': [1, 2]}")
    """
    if isinstance(value, (bytes, str)):
        return repr(value[:width])[:width]
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        import reprlib

        bounded = reprlib.Repr()
        bounded.maxlevel, bounded.maxstring, bounded.maxother = 4, max(width, 30), max(width, 30)
        return bounded.repr(value)[:width]
    return repr(value)[:width]


# control characters, broken ones, which become bytes again, and those that turn the direction of the text
_ORDERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


_STREAM = re.compile(r"<_io\.\w+ object at 0x[0-9a-f]+>")


def reason_of(error: BaseException) -> str:
    """What went wrong, for a message: the class of an exception and its text, which may name a stream of ours.

    >>> import io
    >>> reason_of(ValueError(f"cannot read {io.BytesIO()}"))
    'ValueError: cannot read the data'
    """
    return _STREAM.sub("the data", f"{type(error).__name__}: {error}")
