"""Inspect a cache folder: list its shards, verify them, or remove unused ones."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from webdataset.base.units import counted, size_text
from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.cli.tables import Table
    from webdataset.storage.cache.contents import Entry

EXAMPLES = (
    ("wl cache ls", "list the shards in the folder WDS_CACHE"),
    ("wl cache clear --unused 7 ~/.cache/shards", "remove what has not been used for a week"),
)
SECONDS_PER_DAY = 86400


def configure(parser: grammar.Parser) -> None:
    parser.add_argument(
        "action", choices=("ls", "verify", "clear"), help="list the shards, verify their contents, or remove them"
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", help="the cache folder (default: WDS_CACHE)")
    parser.add_argument(
        "--unused", metavar="DAYS", type=float, default=0, help="clear: only shards not used for DAYS days"
    )
    parser.switch("--foreign", help="clear: also files that were not downloaded by the cache")
    parser.switch("--json", help="one line of JSON per shard")
    grammar.add_progress(parser, json=False)


def run(options: Namespace) -> int:
    from webdataset.base.settings import settings
    from webdataset.errors import MissingShardError

    folder = options.folder or settings.cache_dir
    if not folder:
        raise grammar.UsageError("name the cache folder, or set WDS_CACHE")
    if not os.path.isdir(folder):
        raise MissingShardError("there is no such folder", url=folder)
    return {"ls": _list, "verify": _verify, "clear": _clear}[options.action](folder, options)


def _list(folder: str, options: Namespace) -> int:
    from webdataset.cache import entries

    total = count = 0
    with _table(options) as table:
        for entry in sorted(entries(folder), key=lambda entry: (entry.url or "", entry.path)):
            total, count = total + entry.size, count + 1
            table.add((entry, "" if entry.complete else "incomplete"))
    _summarize(f"{counted(count, 'shard')}, {size_text(total)}", options)
    return 0


def _verify(folder: str, options: Namespace) -> int:
    from webdataset.cache import entries, verify
    from webdataset.cli.progress import ProgressDisplay

    progress = ProgressDisplay.of(options, urls=(), noun="shard", as_json=False)
    progress.expect(lambda: sum(entry.size for entry in entries(folder)))
    bad = 0
    with _table(options, before=progress.clear) as table:
        for entry, problem in verify(folder):
            bad += problem is not None
            table.add((entry, problem or "ok"))
            progress.add(1, entry.size)
    progress.clear()
    return 1 if bad else 0


def _clear(folder: str, options: Namespace) -> int:
    from webdataset.cache import clear
    from webdataset.tools.inspect.listing import shown

    removed = clear(folder, unused_for=options.unused * SECONDS_PER_DAY, foreign=options.foreign)
    for path in removed:
        terminal.out((json.dumps({"removed": path}) if options.json else shown(path)) + "\n")
    _summarize(f"{counted(len(removed), 'file')} removed", options)
    return 0


def _table(options: Namespace, before: Callable[[], object] = lambda: None) -> Table[tuple[Entry, str]]:
    """The table of shards, each with what there is to say about it."""
    from webdataset.base.redact import redacted
    from webdataset.cli.tables import Table
    from webdataset.tools.inspect.listing import shown

    def cells(row: tuple[Entry, str]) -> list[str]:
        entry, state = row
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        return [size_text(entry.size), used, shown(entry.path), shown(redacted(entry.url or "")), state]

    def line(row: tuple[Entry, str]) -> str:
        size, *texts, state = cells(row)
        return "  ".join([f"{size:>10}", *texts, *([state] if state else [])])

    def facts(row: tuple[Entry, str]) -> str:
        entry, state = row
        named = {"path": entry.path, "url": redacted(entry.url or ""), "size": entry.size, "used": entry.used}
        return json.dumps(named | {"complete": entry.complete, "state": state})

    if options.json:
        return Table((), line=facts, cells=cells, before=before)
    return Table(("size>", "used", "file", "url", "state"), line=line, cells=cells, before=before)


def _summarize(text: str, options: Namespace) -> None:
    if not options.quiet:
        terminal.err(text + "\n")
