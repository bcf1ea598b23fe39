"""HTML for notebooks and pages: whatever comes from data is escaped, and there are no scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

TABLE = "border-collapse:collapse;text-align:left;font-size:90%"
CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;white-space:nowrap"


def escaped(text: str) -> str:
    """Escape markup, and make control characters and broken names visible.

    >>> escaped("<b a='x'>\\x00")
    '&lt;b a=&#x27;x&#x27;&gt;\\\\x00'
    """
    from html import escape  # takes longer to import than all of this room

    visible = text if text.isprintable() else "".join(_visible(char) for char in text)
    return escape(visible, quote=True)


def table(rows: Iterable[Sequence[str]], *, head: Sequence[str] = (), title: str = "") -> str:
    """A table of texts, all of them escaped.

    >>> table([["a", "<b>"]]).count("<b>")
    0
    """
    parts = [f"<div><b>{escaped(title)}</b></div>"] if title else []
    parts.append(f'<table style="{TABLE}">')
    if head:
        parts.append(
            "<thead><tr>" + "".join(f'<th style="{CELL}">{escaped(cell)}</th>' for cell in head) + "</tr></thead>"
        )
    parts.append("<tbody>")
    parts += ["<tr>" + "".join(f'<td style="{CELL}">{escaped(cell)}</td>' for cell in row) + "</tr>" for row in rows]
    return "".join([*parts, "</tbody></table>"])


def columns(rows: Sequence[Sequence[str]], *, head: Sequence[str] = (), indent: str = "") -> str:
    """The same as text in aligned columns.

    >>> print(columns([["a", "1"], ["long", "22"]]))
    a     1
    long  22
    """
    lines = [list(head), *map(list, rows)] if head else [*map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)] if lines else []
    shown = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join(indent + line for line in shown)


def number_text(number: float) -> str:
    """A number with thousands separators.

    >>> number_text(1234567), number_text(0.123456)
    ('1,234,567', '0.1235')
    """
    return f"{int(number):,}" if number == int(number) else f"{number:.4g}"


def size_text(size: float) -> str:
    """A number of bytes with its unit.

    >>> size_text(1), size_text(999), size_text(1_500_000)
    ('1 byte', '999 bytes', '1.5 MB')
    """
    if size < 1000:
        return "1 byte" if size == 1 else f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 1000 or unit == "TB":
            return f"{size:.1f} {unit}"
    raise AssertionError


def count_text(number: int, word: str) -> str:
    """A number of things.

    >>> count_text(1, "shard"), count_text(2000, "sample")
    ('1 shard', '2,000 samples')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _visible(char: str) -> str:
    if char.isprintable() or char in "\n\t":
        return char
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
