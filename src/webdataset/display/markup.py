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


def _visible(char: str) -> str:
    if char.isprintable() or char in "\n\t":
        return char
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
