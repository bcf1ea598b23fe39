"""Look at a cache folder: list its shards, verify them, or remove those that nobody uses."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    ("wl cache ls", "the shards in the folder that WDS_CACHE names"),
    ("wl cache clear --unused 7 ~/.cache/shards", "remove what was not used for a week"),
)
SECONDS_PER_DAY = 86400


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("ls", "verify", "clear"), help="list, compare with what was fetched, remove")
    parser.add_argument("folder", metavar="DIR", nargs="?", help="the cache folder (WDS_CACHE)")
    parser.add_argument("--unused", metavar="DAYS", type=float, default=0, help="clear: spare what was used since")
    parser.add_argument("--foreign", action="store_true", help="clear: also files that were not fetched but put there")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each shard")
    grammar.add_progress(parser, json=False)


def run(options: argparse.Namespace) -> int:
    import os

    from webdataset.base.settings import settings
    from webdataset.errors import MissingShardError

    folder = options.folder or settings.cache_dir
    if not folder:
        raise grammar.UsageError("name the cache folder, or set WDS_CACHE")
    if not os.path.isdir(folder):
        raise MissingShardError("there is no such folder", url=folder)
    return {"ls": _list, "verify": _verify, "clear": _clear}[options.action](folder, options)


def _list(folder: str, options: argparse.Namespace) -> int:
    from webdataset.cache import entries

    total = count = 0
    for entry in entries(folder):
        total, count = total + entry.size, count + 1
        _tell(entry, "" if entry.complete else "incomplete", options)
    _sum_up(f"{count} shards, {total} bytes", options)
    return 0


def _verify(folder: str, options: argparse.Namespace) -> int:
    from webdataset.cache import verify

    bad = 0
    for entry, problem in verify(folder):
        bad += problem is not None
        _tell(entry, problem or "ok", options)
    return 1 if bad else 0


def _clear(folder: str, options: argparse.Namespace) -> int:
    from webdataset.cache import clear
    from webdataset.tools.inspect.listing import shown

    removed = clear(folder, unused_for=options.unused * SECONDS_PER_DAY, foreign=options.foreign)
    for path in removed:
        sys.stdout.write((json.dumps({"removed": path}) if options.json else shown(path)) + "\n")
    _sum_up(f"{len(removed)} files removed", options)
    return 0


def _tell(entry: Any, state: str, options: argparse.Namespace) -> None:
    from webdataset.base.redact import redacted
    from webdataset.tools.inspect.listing import shown

    url = redacted(entry.url or "")
    if options.json:
        facts = {"path": entry.path, "url": url, "size": entry.size, "used": entry.used, "complete": entry.complete}
        sys.stdout.write(json.dumps(facts | {"state": state}) + "\n")
        return
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
    sys.stdout.write(f"{entry.size:>14}  {used}  {shown(entry.path)}  {shown(url)}{'  ' + state if state else ''}\n")


def _sum_up(text: str, options: argparse.Namespace) -> None:
    if not options.quiet:
        sys.stderr.write(text + "\n")
