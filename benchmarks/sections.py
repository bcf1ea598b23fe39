"""Sections of docs/benchmarks.md that belong to one benchmark each, kept by the others.

<!-- network -->
## Web servers
...
<!-- /network -->
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "docs", "benchmarks.md")
_SECTION = re.compile(r"\n<!-- (\w+) -->\n.*?<!-- /\1 -->\n", re.DOTALL)

Row = tuple[str, str, str, bool]
"""What was measured, what came out, what should have (if anything in particular), and whether it did."""


def options(words: str | None, *, rounds: int, needs: str | None = None) -> argparse.Namespace:
    """What the command line says; the words are a benchmark's own. Without a program that it `needs` nothing goes."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, two rounds")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--save", action="store_true", help="write the figures into docs/benchmarks.md")
    given = parser.parse_args()
    given.part = 0.1 if given.quick else 1.0
    given.rounds = 2 if given.quick else given.rounds
    if needs is not None and shutil.which(needs) is None:
        parser.exit(2, f"{parser.prog}: {needs} is needed; cure: ./run servers\n")
    return given


def shown(rows: list[Row]) -> str:
    """A Markdown table with aligned columns, readable in a terminal as well."""
    lines = [("what", "measured", "target", "reached")]
    lines += [(what, figure, target, target and ("yes" if reached else "NO")) for what, figure, target, reached in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    lines.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2], "-" * widths[3]))
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def kept() -> str:
    """The sections of all benchmarks, as they stand in the page."""
    try:
        with open(PAGE) as file:
            return "".join(found[0] for found in _SECTION.finditer(file.read()))
    except FileNotFoundError:
        return ""


def save(name: str, title: str, words: str, rows: list[Row]) -> None:
    """Write the section of one benchmark into the page, in the place of what it wrote before."""
    written = f"Measured on {datetime.datetime.now(datetime.UTC).date()} by `benchmarks/{name}.py`."
    section = f"\n<!-- {name} -->\n## {title}\n\n{words} {written}\n\n{shown(rows)}\n<!-- /{name} -->\n"
    with open(PAGE) as file:
        page = file.read()
    old = next((found[0] for found in _SECTION.finditer(page) if found[1] == name), None)
    page = page.rstrip("\n") + "\n" + section if old is None else page.replace(old, section)
    with open(PAGE, "w") as file:
        file.write(page)
