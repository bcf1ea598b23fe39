"""Tables on stdout: drawn by the package rich, where it is installed, for a terminal; else one plain line per row.

>>> with Table(("name", "size>"), line="{0[0]}: {0[1]}".format, cells=list) as table:
...     table.add(("a.tar", "5 bytes"))
a.tar: 5 bytes
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from webdataset.base.printing import harmless

from . import terminal

MOST_ROWS = 200
WAIT_SECONDS = 0.5
"""Rows are drawn when this many are there, or when the first has waited this long: a list may be endless, or slow."""

Row = TypeVar("Row")


class Table(Generic[Row]):
    """Prints rows as they come. What goes into a pipe or a file is `line(row)`, whatever is installed.

    A column whose name ends in `>` is aligned to the right; without columns nothing is ever drawn. `before` is called
    before anything is printed.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        line: Callable[[Row], str],
        cells: Callable[[Row], Sequence[str]],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self._columns = columns
        self._line, self._cells, self._before = line, cells, before
        self._drawn = bool(columns) and can_draw()
        self._rows: list[Sequence[str]] = []
        self._widths = [len(name.removesuffix(">")) for name in columns]
        self._since = 0.0
        self._began = False

    def add(self, row: Row) -> None:
        """Print a row, now or soon."""
        if not self._drawn:
            self._before()
            terminal.out(self._line(row) + "\n")
            return
        self._since = self._since if self._rows else time.monotonic()
        self._rows.append(self._cells(row))
        if len(self._rows) >= MOST_ROWS or time.monotonic() - self._since > WAIT_SECONDS:
            self._draw()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rows:
            self._draw()

    def _draw(self) -> None:
        """Draw the rows that wait; columns stay at least as wide as they were, and have their names once."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        self._before()
        console = Console(file=sys.stdout, highlight=False)
        table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=not self._began)
        fair = console.width // len(self._columns)
        for number, name in enumerate(self._columns):
            justify: Any = "right" if name.endswith(">") else "left"
            self._widths[number] = max(self._widths[number], *(len(row[number]) for row in self._rows))
            table.add_column(
                name.removesuffix(">"), justify=justify, overflow="fold", min_width=min(self._widths[number], fair)
            )
        for row in self._rows:
            table.add_row(*(Text(harmless(cell)) for cell in row))  # not as markup: names may have brackets
        console.print(table)
        self._rows, self._began = [], True


def can_draw() -> bool:
    """Whether stdout is a terminal that moves its cursor, and rich is installed."""
    if not sys.stdout.isatty():
        return False
    from webdataset.base.packages import is_installed
    from webdataset.base.settings import settings

    return settings.terminal[0] not in ("", "dumb") and is_installed("rich")
