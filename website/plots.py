"""The plot of the page on speed, drawn from the table in README that `./run bench --save` writes."""

from __future__ import annotations

import re

from diagrams import COLOURS, GREY, Drawing

TABLE = re.compile(r"<!-- speed -->\n(.*?)<!-- /speed -->", re.DOTALL)
RATE = re.compile(r"([\d,.]+)/s\b")


def rates(text: str) -> tuple[list[str], list[tuple[str, list[float | None]]]]:
    """The titles of a table's columns, and of each row with rates its name and the rates.

    >>> rates("| what | old | new |\\n|---|--:|--:|\\n| read | 1,000/s | 4,000/s |\\n| import | 2 s | 1 s |\\n")
    (['old', 'new'], [('read', [1000.0, 4000.0])])
    """
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()]
    found = []
    for name, *cells in rows:
        matches = [RATE.search(cell) for cell in cells]
        if sum(match is not None for match in matches) > 1:
            found.append((name, [float(match[1].replace(",", "")) if match else None for match in matches]))
    columns = [n for n in range(len(header) - 1) if any(values[n] is not None for _, values in found)]
    return [header[n + 1] for n in columns], [(name, [values[n] for n in columns]) for name, values in found]


def speed(readme: str) -> Drawing | None:
    """Bars for each row of the table of speeds, the fastest of a row as long as can be; None without a table."""
    table = TABLE.search(readme)
    titles, rows = rates(table[1]) if table else ([], [])
    if not rows:
        return None
    step = 20 * len(titles) + 16
    picture = Drawing(760, 50 + step * len(rows), f"Samples per second: {', '.join(titles)}")
    x = 200.0
    for title, colour in zip(titles, COLOURS, strict=False):
        picture.box(x, 14, 12, 12, colour)
        picture.text(x + 18, 25, title, size=12)
        x += 40 + 7 * len(title)
    for number, (name, values) in enumerate(rows):
        y = 42.0 + number * step
        picture.text(190, y + 10 * len(titles) + 4, name, size=12, anchor="end")
        most = max(value for value in values if value is not None)
        for place, (value, colour) in enumerate(zip(values, COLOURS, strict=False)):
            if value is not None:
                picture.box(200, y + place * 20, max(3.0, 440 * value / most), 16, colour)
                at = 206 + max(3.0, 440 * value / most)
                picture.text(at, y + place * 20 + 12, f"{value:,.0f}/s", size=11, fill=GREY)
    return picture
