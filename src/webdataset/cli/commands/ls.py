"""List the members or samples of shards, from their headers alone, or the objects of a store.

A bucket or folder of a store lists the objects there: s3://bucket, s3://bucket/prefix, and the same of gs://, az://,
hf:// and ais://. An object of that name goes first; a slash at the end says that the folder is meant.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.cli.tables import Table

EXAMPLES = (
    ("wl ls train.tar", "names, as `tar tf` prints them"),
    ("wl ls --samples -c 5 http://server/train-000000.tar", "keys and fields of five samples"),
    ("wl ls -l s3://bucket/photos", "the objects of a folder, with their sizes"),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_inputs(parser)
    parser.switch("-l", "--long", help="mode, size and time too, as `tar tv`")
    parser.switch("--samples", help="list samples instead of members: key, size, fields")
    parser.number("-s", "--skip", default=0, help="skip the first N")
    parser.number("-c", "--count", help="stop after N")
    parser.switch("--url", help="the shard's URL at the start of each line")
    parser.switch("--json", help="one line of JSON each, with offsets")
    grammar.add_errors(parser)
    grammar.add_progress(parser, json=False)


def run(options: Namespace) -> int:
    from itertools import islice

    from webdataset.cli.flow import urls_of
    from webdataset.handlers import close
    from webdataset.storage.stores.lookup import object_or_folder

    options.inputs = [object_or_folder(url) for url in options.inputs]
    if not options.samples and (stored := [url for url in options.inputs if _is_folder_of_store(url)]):
        if len(stored) < len(options.inputs):
            raise grammar.UsageError("folders of stores and shards are listed apart: name one kind of them")
        return _list_store(stored, options)
    found = _items(urls_of(options.inputs), options)
    stop = None if options.count is None else options.skip + options.count
    try:
        with _table(options) as table:
            for url_and_item in islice(found, options.skip, stop):
                table.add(url_and_item)
    finally:
        close(found)
    return 0


def _is_folder_of_store(url: str) -> bool:
    from webdataset.storage.stores.lookup import is_stored
    from webdataset.storage.urls import rewritten_url

    address = rewritten_url(url)
    return address.endswith("/") and is_stored(address)


def _list_store(folders: list[str], options: Namespace) -> int:
    """List the objects below some urls of stores."""
    from itertools import islice

    from webdataset.base.units import size_text
    from webdataset.cli.tables import Table
    from webdataset.storage.stores.lookup import listed
    from webdataset.tools.inspect.listing import shown

    def line(found: tuple[str, int]) -> str:
        url, size = found
        if options.json:
            return json.dumps({"url": url, "size": size})
        return (f"{size_text(size):>10}  " if options.long else "") + shown(url)

    objects = (each for folder in folders for each in listed(folder))
    stop = None if options.count is None else options.skip + options.count
    columns = ("size>", "url") if options.long and not options.json else ()
    with Table(columns, line=line, cells=lambda found: (size_text(found[1]), shown(found[0]))) as table:
        for each in islice(objects, options.skip, stop):
            table.add(each)
    return 0


def _items(urls: list[str], options: Namespace) -> Iterator[tuple[str, Any]]:
    from webdataset.base.reports import current_report
    from webdataset.cli.flow import handler_of
    from webdataset.handlers import ask
    from webdataset.tools.inspect.listing import members, samples

    report = current_report()
    for url in urls:
        try:
            for item in (samples if options.samples else members)(url, concatenated=options.concatenated):
                yield url, item
        except Exception as error:
            if not ask(handler_of(options), error, report, "shards_skipped"):
                return
            terminal.err(f"wl ls: {error}\n")


def _table(options: Namespace) -> Table[tuple[str, Any]]:
    """The table of members or samples, each with the url of its shard; bare names and JSON are lines anywhere."""
    from webdataset.cli.tables import Table
    from webdataset.tools.inspect.listing import long_facts, shown

    line_of = _formatter(options)

    def line(row: tuple[str, Any]) -> str:
        text = line_of(*row)
        return f"{shown(row[0])}\t{text}" if options.url else text

    def cells(row: tuple[str, Any]) -> list[str]:
        url, item = row
        if options.samples:
            facts = [shown(item.key), f"{item.size:,}", " ".join(map(shown, item.fields))]
        else:
            mode, when, name = long_facts(item)
            facts = [mode, f"{item.size:,}", when, name]
        return [shown(url), *facts] if options.url else facts

    columns = ["key", "bytes>", "fields"] if options.samples else ["mode", "bytes>", "modified", "name"]
    drawn = (options.samples or options.long) and not options.json
    return Table(["shard"] * options.url + columns if drawn else (), line=line, cells=cells)


def _formatter(options: Namespace) -> Callable[[str, Any], str]:
    from webdataset.tools.inspect.listing import long_line, shown
    from webdataset.tools.inspect.tables import plain_value

    def facts(url: str, item: Any) -> str:
        size = {"size": item.size} if options.samples else {}
        return json.dumps(plain_value({"url": url, **item._asdict(), **size}), ensure_ascii=False)

    def sample(_: str, item: Any) -> str:
        return f"{shown(item.key)}\t{item.size}\t{' '.join(shown(name) for name in item.fields)}"

    def name(_: str, item: Any) -> str:
        text = shown(item.name)
        return f"{text}/" if item.type == "5" and text[-1:] != "/" else text

    if options.json:
        return facts
    if options.samples:
        return sample
    return (lambda _, item: long_line(item)) if options.long else name
