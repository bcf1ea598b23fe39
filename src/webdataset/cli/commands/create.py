"""Make shards out of folders, recipes, tables and lines of text.

A folder gives its files: those that share a basename are one sample. A recipe has lines "NAME SOURCE", where the
source is a file or url, text:CONTENT or pipe:COMMAND. A table (CSV or TSV) has a row a sample and names its fields
in the first row: @jpg holds file names, __key__ keys, others the content. Lines are one sample each.

--classes numbers the folders in a folder in alphabetical order, prints the numbers, and writes the names beside the
shards, one a line, as classes.txt. --classes FILE takes the numbers from such a list instead, so that another part of
the dataset, in which a class may be missing, gets the same ones; a class that is not in the list is an error. (The word
behind --classes is the list, unless it is a folder: that is read.) So make the training part with --classes, then the
validation part with --classes classes.txt. A list that is there already and differs is replaced with --force only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    ("wl create photos/ --classes -o train-%06d.tar --maxcount 10000", "class folders into shards, with a cls each"),
    ("wl create more/ --classes classes.txt -o val-%06d.tar", "another part of the dataset, with the same numbers"),
    ("printf 'a.jpg photo.jpg\\na.cls text:7\\n' | wl create - -o a.tar", "a recipe from stdin"),
)
KINDS = ("folder", "recipe", "plan", "lines")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="SOURCE", help="folder, recipe, table or text; - is stdin")
    grammar.add_output(parser)
    parser.add_argument(
        "--from", dest="kind", choices=KINDS, help="what the sources are (by the name: folder, .csv and .tsv, recipe)"
    )
    parser.add_argument("--sort", action="store_true", help="order by key")
    grammar.add_flag_with_file(
        parser, "--classes", help="folders in the folder are classes: add a cls to each, by the list FILE or in order"
    )
    parser.add_argument("-f", "--fields", metavar="NAMES", default="txt", help='fields of a line, "txt cls" (txt)')
    parser.add_argument("--separator", metavar="TEXT", help="between the fields of a line or table (tab; , for .csv)")
    parser.add_argument("-k", "--key", metavar="FORMAT", help="keys of rows and lines without one ({record:09d})")
    parser.add_argument("-C", "--directory", metavar="DIR", default="", help="where relative names of files begin")
    parser.add_argument("-c", "--count", metavar="N", type=grammar.count, default=None, help="stop after N samples")
    grammar.add_errors(parser)
    grammar.add_progress(parser)


def run(options: argparse.Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, refuse_terminal
    from webdataset.cli.progress import Progress
    from webdataset.tools.make.creating import write_items
    from webdataset.writing.shardsets import is_numbered

    sources = options.inputs or ["-"]
    if sources == ["-"] and sys.stdin.isatty():
        raise grammar.UsageError("there is nothing to read: name a folder, a recipe or a table")
    refuse_terminal(options.output)
    sizes = {"maxcount": options.maxcount, "maxsize": options.maxsize} if is_numbered(options.output) else {}
    report = Report()
    progress = Progress(options, (), options.count)
    classes = _ClassList(options, sources, progress) if options.classes else None
    options.classes = classes.names if classes is not None else False
    with ExitStack() as opened, report.in_force():
        items = (item for source in sources for item in _items(source, options, opened) if options.count != 0)
        handler = handler_of(options)
        total = write_items(
            progress(items),
            options.output,
            sort=options.sort,
            overwrite=options.overwrite,
            post=classes,
            count=options.count or 0,
            handler=handler,
            **sizes,
        )
    progress.count = total
    return finished(options, progress, report.as_dict())


class _ClassList:
    """The classes of --classes; called with a complete shard, the first time it writes their names beside it."""

    def __init__(self, options: argparse.Namespace, sources: list[str], progress: Any) -> None:
        from webdataset.tools.make.classes import class_numbers, classes_text, classes_url

        folders = [source for source in sources if (options.kind or _kind_of(source)) == "folder"]
        if not folders:
            raise grammar.UsageError("--classes is for folders of class folders: name one to read")
        self.options, self.progress = options, progress
        self.names = self._names(folders)
        for folder in folders:
            class_numbers(folder, self.names, options.classes)
        self.text = classes_text(self.names)
        self.url = classes_url(options.output)
        self.todo = True
        self.is_there = self.url is not None and options.overwrite is not True and self._is_there(self.url)

    def __call__(self, _: str) -> None:
        from webdataset.cli.outputs import writing

        todo, self.todo = self.todo, False
        if todo and self.url is not None and not self.is_there:
            with writing(self.url) as file:
                file.write(self.text)
        if todo and not self.options.quiet:
            self.progress.clear()
            self._tell()

    def _names(self, folders: list[str]) -> list[str]:
        from webdataset.errors import MissingShardError
        from webdataset.tools.make.classes import class_names, read_classes

        given = self.options.classes
        if given is True:
            return class_names(folders)
        try:
            return read_classes(given)
        except MissingShardError:
            raise grammar.UsageError(f"there is no list of classes {given!r}; write one name a line into it") from None

    def _is_there(self, url: str) -> bool:
        """Whether the list is there already; another one is an error, as the shards beside it have its numbers."""
        from webdataset.base.redact import redacted
        from webdataset.tools.make.classes import known_classes

        there = known_classes(url)
        if there is not None and there != self.names:
            given = self.options.classes
            which = "the folders have" if given is True else f"{redacted(given)} has"
            cure = f"--classes {redacted(url)} takes the numbers of that list, --force replaces it"
            raise grammar.UsageError(f"{which} other classes than {redacted(url)}, which is there already; {cure}")
        return there is not None

    def _tell(self) -> None:
        if self.options.json:
            import json

            sys.stderr.write(json.dumps({"classes": self.names}) + "\n")
            return
        for number, name in enumerate(self.names):
            sys.stderr.write(f"class {number}: {name}\n")


def _items(source: str, options: argparse.Namespace, opened: ExitStack) -> Iterator[Any]:
    from webdataset.tools.make import creating

    kind = options.kind or _kind_of(source)
    if kind == "folder":
        return creating.from_folder(source, classes=options.classes)
    lines = _lines(source, opened, newline="" if kind == "plan" else "\n")
    if kind == "recipe":
        return creating.from_recipe(lines, folder=options.directory, origin=source)
    if kind == "plan":
        delimiter = options.separator or ("," if source.lower().endswith(".csv") else "\t")
        key = options.key or creating.DEFAULT_PLAN_KEY
        return creating.from_plan(lines, delimiter=delimiter, key=key, folder=options.directory, origin=source)
    return creating.from_lines(
        lines, fields=options.fields, separator=options.separator or "\t", key=options.key or creating.DEFAULT_LINE_KEY
    )


def _kind_of(source: str) -> str:
    import os

    if os.path.isdir(source):
        return "folder"
    return "plan" if source.lower().endswith((".csv", ".tsv")) else "recipe"


def _lines(source: str, opened: ExitStack, newline: str) -> Iterator[str]:
    import io

    from webdataset.gopen import gopen

    stream = gopen(source)
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline=newline)
    opened.callback(text.detach if source == "-" else text.close)
    return text


def _tarp_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="RECIPE", help='lines "NAME SOURCE"; - is stdin')
    parser.add_argument("-o", "--output", metavar="URL", default="-", help="where to write")
    parser.add_argument("-c", "--count", metavar="N", type=grammar.count, default=None, help="stop after N samples")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.set_defaults(kind="recipe")


def _tarcreate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="PLAN", help="a CSV or TSV table; - is stdin")
    parser.add_argument("-f", "--delim", dest="separator", metavar="TEXT", help="between columns (by .csv, else tab)")
    parser.add_argument("-k", "--key", metavar="FORMAT", help="keys of rows without __key__ ({record:09d})")
    parser.add_argument(
        "-C", "--dir", "--directory", dest="directory", metavar="DIR", default="", help="where names of files begin"
    )
    parser.add_argument("-o", "--output", metavar="URL", default="-", help="where to write")
    parser.set_defaults(kind="plan")


def _lines2tar(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="TEXT", help="lines of text; - is stdin")
    parser.add_argument("-k", "--keys", dest="fields", metavar="FIELDS", default="txt", help='fields, "txt cls"')
    parser.add_argument("-s", "--separator", metavar="TEXT", help="between fields (tab)")
    parser.add_argument("--keyformat", dest="key", metavar="FORMAT", help="keys ({:09d})")
    parser.add_argument("-o", "--output", metavar="URL", default="-", help="where to write")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.set_defaults(kind="lines")


OLD = {"tarp create": _tarp_create, "tarcreate": _tarcreate, "lines2tar": _lines2tar}
