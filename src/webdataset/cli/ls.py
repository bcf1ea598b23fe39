"""List the members or samples of shards, from their headers alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from . import grammar

EXAMPLES = (
    ("wl ls train.tar", "names, as `tar tf` prints them"),
    ("wl ls --samples -c 5 http://server/train-000000.tar", "keys and fields of five samples"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("-l", "--long", action="store_true", help="mode, size and time too, as `tar tv`")
    parser.add_argument("--samples", action="store_true", help="samples instead of members: key, size, fields")
    parser.add_argument("-s", "--skip", metavar="N", type=grammar.count, default=0, help="leave out the first N")
    parser.add_argument("-c", "--count", metavar="N", type=grammar.count, help="stop after N")
    parser.add_argument("--url", action="store_true", help="the shard's url before each line")
    parser.add_argument("--json", action="store_true", help="a line of JSON each, with offsets")
    grammar.add_errors(parser)
    grammar.add_progress(parser, json=False)


def run(options: argparse.Namespace) -> int:
    from itertools import islice

    from webdataset.handlers import close

    from .flow import urls_of

    found = _found(urls_of(options.inputs), options)
    stop = None if options.count is None else options.skip + options.count
    try:
        for url, item in islice(found, options.skip, stop):
            text = _line(url, item, options)
            sys.stdout.write(text + "\n")
    finally:
        close(found)
    return 0


def _found(urls: list[str], options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    from webdataset.handlers import ask
    from webdataset.reports import current_report
    from webdataset.tools.listing import grouped, members

    from .flow import handler_of

    report = current_report()
    for url in urls:
        try:
            entries = members(url)
            for item in grouped(entries) if options.samples else entries:
                yield url, item
        except Exception as error:
            if not ask(handler_of(options), error, report, "shards_skipped"):
                return
            sys.stderr.write(f"wl ls: {error}\n")


def _line(url: str, item: Any, options: argparse.Namespace) -> str:
    from webdataset.tools.listing import long_line, shown
    from webdataset.tools.tables import plain_value

    if options.json:
        facts = item._asdict() | ({"size": item.size} if options.samples else {})
        return json.dumps(plain_value({"url": url, **facts}), ensure_ascii=False)
    if options.samples:
        text = f"{shown(item.key)}\t{item.size}\t{' '.join(shown(name) for name in item.fields)}"
    else:
        text = long_line(item) if options.long else _name(item)
    return f"{url}\t{text}" if options.url else text


def _name(entry: Any) -> str:
    from webdataset.tools.listing import shown

    return shown(entry.name + "/" if entry.type == "5" and not entry.name.endswith("/") else entry.name)
