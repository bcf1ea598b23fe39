"""Make shards from folders, recipes, tables, lines of text, JSON Lines, Parquet, zip or tar archives.

Files of a folder that share a basename, up to the first dot, become one sample: a.jpg, a.seg.png and a.json. A recipe
has lines "NAME SOURCE", where the source is a file or url, text:CONTENT or pipe:COMMAND. A table (CSV or TSV) has one
sample per row and names the fields in its first row: @jpg holds file names, __key__ keys, other columns the content. Of
text, each line is a sample. JSON Lines and Parquet have one sample per object or row, with the same names; images and
sounds as Hugging Face stores them in Parquet become jpg, png, wav and so on. A folder with metadata.csv, .jsonl or
.parquet, whose column file_name names the files, becomes samples of a file and a json with the rest of its row. Files
of a zip or tar archive that share a basename are a sample.

Files like a.left.png and a.right.png are one sample only if others have the same fields, b.left.png and b.right.png;
IMG.0030.jpg and IMG.0031.jpg are none, nor is the first with IMG.0031.mp4: that is an error before anything is written.
--key last-dot makes the key all before the last dot, with _ for its dots: IMG_0030.jpg; --key first-dot says that such
files belong together. Keys of rows must have no dot; --key last-dot writes _ for it. Hidden files, Thumbs.db,
desktop.ini, __MACOSX and names without an extension are left out and counted.

Files are taken from the folder alone, or from that of a table, or that of -C: links out of it, absolute names, ../ and
urls in metadata and tables are an error, unless --allow-outside says that they are meant. A recipe is a program: it may
name any file, url or command. Names of members never lead out of the folder that they are extracted to.

--shuffle writes the samples of each source in random order, the same for the same --seed. Only names are held in
memory, except for tables and tar archives, whose contents are.

--classes treats subfolders as class labels, numbered in alphabetical order. It prints the numbers and writes the names
next to the shards, one per line, as classes.txt. --classes FILE takes the numbers from such a list instead, so that
another part of the dataset, in which a class may be missing, gets the same ones; a class that is not in the list is an
error. (The word after --classes is the list, unless it is a folder: that is read.) So make the training part with
--classes, then the validation part with --classes classes.txt. An existing list that differs is replaced only with
--force.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.tools.make.creating import MemberSource

EXAMPLES = (
    (
        "wl create photos/ --classes -o train-%06d.tar --maxcount 10000",
        "subfolders are classes: each sample gets a cls",
    ),
    (
        "wl create more/ --classes classes.txt -o val-%06d.tar",
        "another part of the dataset, with the same class numbers",
    ),
    (
        "wl create --shuffle --seed 1 photos.zip captions.parquet -o train-%06d.tar",
        "archives and tables, in random order",
    ),
    ("printf 'a.jpg photo.jpg\\na.cls text:7\\n' | wl create - -o a.tar", "a recipe from stdin"),
)
KINDS = ("folder", "recipe", "plan", "lines", "jsonl", "parquet", "zip", "tar")
BY_ENDING = {
    ".csv": "plan",
    ".tsv": "plan",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".zip": "zip",
}
BY_ENDING |= dict.fromkeys((".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4"), "tar")


def configure(parser: grammar.Parser) -> None:
    add = parser.add_argument
    add("inputs", nargs="*", metavar="SOURCE", help="folder, recipe, table, text or archive; - for stdin")
    grammar.add_shards(parser)
    add("--from", dest="kind", choices=KINDS, help="kind of source (default: by its name, else recipe)")
    parser.switch("--sort", help="sort by key, which joins what several sources have of a sample")
    parser.switch("--shuffle", help="write the samples of each source in random order")
    grammar.add_seed(parser)
    grammar.add_flag_with_file(
        parser, "--classes", help="treat subfolders as class labels, numbered alphabetically or as listed in FILE"
    )
    add("-f", "--fields", metavar="NAMES", default="txt", help='fields of a line: "txt cls" (txt)')
    add("--separator", metavar="TEXT", help="separator of fields in a line or table (tab; comma for .csv)")
    add(
        "-k",
        "--key",
        metavar="KEY",
        help="last-dot or first-dot: where keys end; or a format of the keys of rows and lines without one "
        "({record:09d})",
    )
    add("-C", "--directory", metavar="DIR", default="", help="folder that relative file names refer to")
    parser.switch("--allow-outside", help="take files from outside the folder, too: links, absolute names, ../, urls")
    parser.number("-c", "--count", help="stop after N samples")
    grammar.add_errors(parser)
    grammar.add_progress(parser)


def run(options: Namespace) -> int:
    from itertools import chain

    from webdataset.base.redact import redacted
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, refuse_terminal
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.tools.make.creating import chained, write_items
    from webdataset.writing.shardsets import is_numbered

    sources = options.inputs or ["-"]
    if sources == ["-"] and sys.stdin.isatty():
        raise grammar.UsageError("nothing to read: name a folder, a recipe or a table")
    refuse_terminal(options.output)
    _check_key(options.key)
    sizes = {"maxcount": options.maxcount, "maxsize": options.maxsize} if is_numbered(options.output) else {}
    report = Report()
    progress = ProgressDisplay.of(options)
    classes = _ClassList(options, sources, progress) if options.classes else None
    options.classes = classes.names if classes is not None else False
    progress.expect(lambda: _size_of_all(sources, options))
    with ExitStack() as opened, report.in_force():
        items = [_ordered(source, options, opened) for source in sources if options.count != 0]
        write_items(
            chain.from_iterable(items) if options.sort else chained(items),
            options.output,
            wrote=progress.add,
            sort=options.sort,
            overwrite=options.overwrite,
            post=classes,
            count=options.count or 0,
            handler=handler_of(options),
            **sizes,
        )
    return finished(options, progress, report.as_dict(), redacted(options.output))


class _ClassList:
    """The classes of --classes; when the first shard is complete, it writes their names next to it."""

    def __init__(self, options: Namespace, sources: list[str], progress: ProgressDisplay) -> None:
        from webdataset.tools.make.classes import class_numbers, classes_text, classes_url

        folders = [source for source in sources if (options.kind or _kind_of(source)) == "folder"]
        if not folders:
            raise grammar.UsageError("--classes is for folders whose subfolders are classes: name one to read")
        self.options, self.progress = options, progress
        self.names = self._names(folders)
        for folder in folders:
            class_numbers(folder, self.names, options.classes)
        self.text = classes_text(self.names)
        self.url = classes_url(options.output)
        self.todo = True
        self.exists = self.url is not None and options.overwrite is not True and self._exists(self.url)

    def __call__(self, _: str) -> None:
        from webdataset.cli.outputs import writing

        todo, self.todo = self.todo, False
        if todo and self.url is not None and not self.exists:
            with writing(self.url) as file:
                file.write(self.text)
        if todo and not self.options.quiet:
            self.progress.clear()
            self._print()

    def _names(self, folders: list[str]) -> list[str]:
        from webdataset.errors import MissingShardError
        from webdataset.tools.make.classes import class_names, read_classes

        given = self.options.classes
        if given is True:
            return class_names(folders)
        try:
            return read_classes(given)
        except MissingShardError:
            raise grammar.UsageError(
                f"there is no list of classes {given!r}; write one name per line into it"
            ) from None

    def _exists(self, url: str) -> bool:
        """Whether the list exists; another one is an error, as the shards next to it have its numbers."""
        from webdataset.base.redact import redacted
        from webdataset.tools.make.classes import known_classes

        there = known_classes(url)
        if there is not None and there != self.names:
            given = self.options.classes
            which = "the folders have" if given is True else f"{redacted(given)} has"
            cure = f"--classes {redacted(url)} takes the numbers of that list, --force replaces it"
            raise grammar.UsageError(f"{which} other classes than {redacted(url)}, which is there already; {cure}")
        return there is not None

    def _print(self) -> None:
        if self.options.json:
            import json

            terminal.err(json.dumps({"classes": self.names}) + "\n")
            return
        for number, name in enumerate(self.names):
            terminal.err(f"class {number}: {name}\n")


def _ordered(source: str, options: Namespace, opened: ExitStack) -> Iterable[MemberSource]:
    from webdataset.tools.make.importing import shuffled

    items = _items(source, options, opened)
    if not getattr(options, "shuffle", False):
        return items
    if options.sort:
        raise grammar.UsageError("--shuffle and --sort ask for different orders: use one of them")
    return shuffled(items, 0 if options.seed is None else options.seed)


def _items(source: str, options: Namespace, opened: ExitStack) -> Iterable[MemberSource]:
    """The members of a source: names of files are read and checked now, rows and lines when it is their turn."""
    from webdataset.tools.make import creating, importing
    from webdataset.tools.make.grouping import KEY_ENDS

    kind = options.kind or _kind_of(source)
    outside = options.allow_outside
    key_end = options.key if options.key in KEY_ENDS else None
    if kind == "folder":
        metadata = None if options.classes or not hasattr(options, "shuffle") else importing.metadata_of(source)
        if metadata is not None:
            return importing.from_image_folder(source, metadata, key_end=key_end, outside=outside)
        return creating.from_folder(source, classes=options.classes, key_end=key_end, outside=outside)
    if kind == "zip":
        return importing.from_zip(source, opened, key_end=key_end)
    if kind == "tar":
        return importing.from_tar(source, opened, key_end=key_end)
    if kind == "recipe":
        lines = _lines(source, opened, newline="\n")
        return creating.from_recipe(lines, folder=options.directory, origin=source, key_end=key_end)
    return _rows(kind, source, options, opened, key_end)


def _check_key(key: str | None) -> None:
    """Refuse what neither says where keys end nor makes keys of numbers, also where there are no rows."""
    from webdataset.tools.make.creating import numbered_key
    from webdataset.tools.make.grouping import KEY_ENDS

    if key is not None and key not in KEY_ENDS:
        try:
            numbered_key(key)
        except ValueError:
            ends = " or ".join(KEY_ENDS)
            raise grammar.UsageError(f"--key is {ends}, or a format such as {{record:09d}}, not {key!r}") from None


def _rows(kind: str, source: str, options: Namespace, opened: ExitStack, key_end: str | None) -> Iterator[MemberSource]:
    """The members of a table or text, which is opened when it is its turn."""
    from webdataset.storage.urls import local_path
    from webdataset.tools.make import creating, importing

    key = None if key_end else options.key
    files: dict[str, Any] = {"key": key or creating.DEFAULT_PLAN_KEY, "folder": options.directory, "key_end": key_end}
    if not options.allow_outside:
        files["inside"] = options.directory or os.path.dirname(local_path(source) or "") or "."
    if kind == "parquet":
        yield from importing.from_parquet(source, opened=opened, **files)
        return
    lines = _lines(source, opened, newline="" if kind == "plan" else "\n")
    if kind == "jsonl":
        yield from importing.from_json_lines(lines, origin=source, **files)
    elif kind == "plan":
        delimiter = options.separator or ("," if source.lower().endswith(".csv") else "\t")
        yield from creating.from_plan(lines, delimiter=delimiter, origin=source, **files)
    else:
        yield from creating.from_lines(
            lines,
            fields=options.fields,
            separator=options.separator or "\t",
            key=key or creating.DEFAULT_LINE_KEY,
            key_end=key_end,
        )


def _size_of_all(sources: list[str], options: Namespace) -> int:
    """The bytes of all files, where they can be counted before they are read; else 0."""
    from webdataset.tools.make.creating import folder_size
    from webdataset.tools.make.importing import zip_size

    counted = {"folder": folder_size, "zip": zip_size}
    kinds = [options.kind or _kind_of(source) for source in sources]
    if not counted.keys() >= set(kinds):
        return 0
    return sum(counted[kind](source) for kind, source in zip(kinds, sources, strict=True))


def _kind_of(source: str) -> str:
    if os.path.isdir(source):
        return "folder"
    name = source.partition("?")[0].lower()
    return next((kind for ending, kind in BY_ENDING.items() if name.endswith(ending)), "recipe")


def _lines(source: str, opened: ExitStack, newline: str) -> Iterator[str]:
    import io

    from webdataset.gopen import gopen
    from webdataset.tools.make.creating import lines_of

    stream = gopen(source)
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline=newline)
    opened.callback(text.detach if source == "-" else text.close)
    return lines_of(text, source)
