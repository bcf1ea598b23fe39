"""Inspect a cache folder: list its shards, verify them, or remove unused ones."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from webdataset.base.units import counted, size_text
from webdataset.cli import grammar

if TYPE_CHECKING:
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
    for entry in sorted(entries(folder), key=lambda entry: (entry.url or "", entry.path)):
        total, count = total + entry.size, count + 1
        _print(entry, "" if entry.complete else "incomplete", options)
    _summarize(f"{counted(count, 'shard')}, {size_text(total)}", options)
    return 0


def _verify(folder: str, options: Namespace) -> int:
    from webdataset.cache import verify

    bad = 0
    for entry, problem in verify(folder):
        bad += problem is not None
        _print(entry, problem or "ok", options)
    return 1 if bad else 0


def _clear(folder: str, options: Namespace) -> int:
    from webdataset.cache import clear
    from webdataset.tools.inspect.listing import shown

    removed = clear(folder, unused_for=options.unused * SECONDS_PER_DAY, foreign=options.foreign)
    for path in removed:
        sys.stdout.write((json.dumps({"removed": path}) if options.json else shown(path)) + "\n")
    _summarize(f"{counted(len(removed), 'file')} removed", options)
    return 0


def _print(entry: Entry, state: str, options: Namespace) -> None:
    from webdataset.base.redact import redacted
    from webdataset.tools.inspect.listing import shown

    url = redacted(entry.url or "")
    if options.json:
        facts = {"path": entry.path, "url": url, "size": entry.size, "used": entry.used, "complete": entry.complete}
        sys.stdout.write(json.dumps(facts | {"state": state}) + "\n")
        return
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
    size, note = size_text(entry.size), f"  {state}" if state else ""
    sys.stdout.write(f"{size:>10}  {used}  {shown(entry.path)}  {shown(url)}{note}\n")


def _summarize(text: str, options: Namespace) -> None:
    if not options.quiet:
        sys.stderr.write(text + "\n")
