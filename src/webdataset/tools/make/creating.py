"""Make archives from recipes, tables, lines of text and folders.

Every source becomes a stream of `MemberSource`s: a member's name and where its bytes come from. Bytes are fetched when
they are written, so that members can be sorted, and an archive can be larger than memory.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TextIO

from webdataset.base.reports import current_report
from webdataset.base.settings import settings
from webdataset.errors import LimitError, MissingShardError, SampleError, SecurityError
from webdataset.gopen import gopen
from webdataset.handlers import Handler, handled, reraise_exception
from webdataset.storage.options import StorageOptions
from webdataset.storage.streams import read_up_to
from webdataset.storage.urls import check_url_from_data, is_local, local_path, scheme_of
from webdataset.tariterators import base_plus_ext
from webdataset.writer import TarWriter
from webdataset.writing.shardsets import is_numbered

from .classes import class_names, class_numbers
from .grouping import member_names, reason_to_leave, row_key
from .splitting import set_writer

DEFAULT_PLAN_KEY = "{record:09d}"
DEFAULT_LINE_KEY = "{:09d}"
MOST_LINE = 64 << 20
"""Characters of a line, or of the lines of a table's row."""
OUTSIDE_HINT = "--allow-outside takes files from anywhere; -C DIR says where those of a table are"
KIND_HINT = "--from tells the kind of source: folder, recipe, plan, lines, jsonl, parquet, zip or tar"


class MemberSource(NamedTuple):
    """A member to write: its name, and a function that returns its bytes."""

    name: str
    content: Callable[[], bytes]


def planned(
    items: Iterable[MemberSource], key_end: str | None = None, *, origin: str | None = None
) -> list[MemberSource]:
    """Read all names of a source and check that they make samples, before anything is written (see `grouping`).

    >>> [item.name for item in planned([MemberSource("IMG.0030.jpg", bytes)], "last-dot")]
    ['IMG_0030.jpg']
    """
    found = list(items)
    names = member_names([item.name for item in found], key_end, origin=origin)
    return [item._replace(name=name) for item, name in zip(found, names, strict=True)]


def from_recipe(
    lines: Iterable[str], *, folder: str = "", origin: str = "", key_end: str | None = None
) -> list[MemberSource]:
    """Read lines `NAME SOURCE`, separated by a tab or else by the first space.

    A source is a file or url, `text:` with the content itself, or `pipe:` with a command. `origin` is where the
    recipe comes from: one that was fetched from elsewhere may name neither commands nor local files. `key_end` is
    where the key of a name ends, "first-dot" or "last-dot".

    >>> [(item.name, item.content()) for item in from_recipe(["a.txt text:hello world", "a.cls text:7"])]
    [('a.txt', b'hello world'), ('a.cls', b'7')]
    """
    return planned(_recipe(lines, folder, origin), key_end, origin=origin or None)


def _recipe(lines: Iterable[str], folder: str, origin: str) -> Iterator[MemberSource]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        if "\0" in text:
            raise SampleError(f"line {number} of the recipe is not text", url=origin or None, hint=KIND_HINT)
        name, separator, source = text.partition("\t") if "\t" in text else text.lstrip(" ").partition(" ")
        if not separator or not source.strip():
            raise SampleError(f"line {number} of the recipe is not 'NAME SOURCE': {text[:100]!r}", url=origin or None)
        source = source.lstrip(" ") if "\t" not in text else source
        if source.startswith("text:"):
            yield MemberSource(name, partial(_encoded, source[len("text:") :]))
        else:
            yield MemberSource(name, partial(_fetched, _checked(source, origin), folder, origin))


def from_plan(
    lines: Iterable[str],
    *,
    delimiter: str = "\t",
    key: str = DEFAULT_PLAN_KEY,
    folder: str = "",
    origin: str = "",
    inside: str | None = None,
    key_end: str | None = None,
) -> Iterator[MemberSource]:
    """Read a table whose first row names the fields: `@field` holds file names, `__key__` keys, others the content.

    Files that are not `inside` this folder are refused.

    >>> plan = ["__key__,cls,txt", "a,7,hello"]
    >>> [(item.name, item.content()) for item in from_plan(plan, delimiter=",")]
    [('a.cls', b'7'), ('a.txt', b'hello')]
    """
    rows = table_rows(lines, origin, delimiter=delimiter)
    key_of = numbered_key(key)
    header = next(rows, None)
    if not header or not any(header):
        hint = "its first row names the fields: __key__, @jpg, cls"
        raise SampleError("the plan has no header", url=origin or None, hint=hint)
    for record, row in enumerate(rows):
        if not row:
            continue
        if len(row) != len(header):
            message = f"row {record + 2} of the plan has {len(row)} columns, its header {len(header)}"
            raise SampleError(message, url=origin or None, hint=f"columns are separated by {delimiter!r}")
        values = dict(zip(header, row, strict=True))
        name = row_key(values.pop("__key__", "") or key_of(record), key_end)
        for field, value in values.items():
            if field.startswith("@"):
                yield MemberSource(f"{name}.{field[1:]}", file_source(value, folder, origin, inside))
            elif not field.startswith("_"):
                yield MemberSource(f"{name}.{field}", partial(_encoded, value))


def from_lines(
    lines: Iterable[str],
    *,
    fields: str | Sequence[str] = "txt",
    separator: str = "\t",
    key: str = DEFAULT_LINE_KEY,
    key_end: str | None = None,
) -> Iterator[MemberSource]:
    """Make a sample of each line; the separator divides it into fields, the last of which takes the rest.

    >>> [(item.name, item.content()) for item in from_lines(["hello\\t7"], fields="txt cls")]
    [('000000000.txt', b'hello'), ('000000000.cls', b'7')]
    """
    names = fields.split() if isinstance(fields, str) else list(fields)
    if not names:
        raise ValueError("name at least one field, for example txt")
    key_of = numbered_key(key)
    for number, line in enumerate(lines):
        values = line.rstrip("\r\n").split(separator, len(names) - 1)
        if len(values) < len(names):
            hint = f"fields are separated by {separator!r}"
            raise SampleError(f"line {number + 1} has {len(values)} of {len(names)} fields", hint=hint)
        stem = row_key(values[names.index("__key__")] if "__key__" in names else key_of(number), key_end)
        for name, value in zip(names, values, strict=True):
            if name != "__key__":
                yield MemberSource(f"{stem}.{name}", partial(_encoded, value))


def numbered_key(pattern: str) -> Callable[[int], str]:
    """Return a function that makes keys of numbers: `{record:09d}` or `{:09d}` is the number.

    >>> numbered_key("line{record:03d}")(7), numbered_key("{:03d}")(7)
    ('line007', '007')
    """
    try:
        if pattern.format(0, record=0) == pattern.format(1, record=1):
            raise ValueError("it has no number")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the pattern {pattern!r} makes no keys: {error}; use for example {{record:09d}}") from None
    return lambda number: pattern.format(number, record=number)


def lines_of(text: TextIO, origin: str = "") -> Iterator[str]:
    """The lines of a text; one that would fill memory is an error.

    >>> import io
    >>> list(lines_of(io.StringIO("a\\nb")))
    ['a\\n', 'b']
    """
    while line := text.readline(MOST_LINE + 1):
        _check_length(len(line), "a line", origin)
        yield line


def table_rows(
    lines: Iterable[str], origin: str = "", reader: Callable[..., Iterator[Any]] = csv.reader, **options: str
) -> Iterator[Any]:
    """The rows of a table; one that would fill memory is an error.

    >>> list(table_rows(["a,b", "1,2"], reader=csv.DictReader))
    [{'a': '1', 'b': '2'}]
    """
    taken = 0

    def counted() -> Iterator[str]:
        nonlocal taken
        for line in lines:
            taken += len(line)
            _check_length(taken, "a row", origin)
            yield line

    try:
        for row in reader(counted(), **options):
            taken = 0
            yield row
    except csv.Error as error:
        raise SampleError(f"this is not a table: {error}", url=origin or None, hint=KIND_HINT) from None


def _check_length(length: int, what: str, origin: str) -> None:
    if length > MOST_LINE:
        raise LimitError(f"{what} has more than {MOST_LINE} characters", url=origin or None, hint=KIND_HINT)


def from_folder(
    folder: str, *, classes: bool | Sequence[str] = False, key_end: str | None = None, outside: bool = False
) -> Iterable[MemberSource]:
    """Read the names of the files under a folder, sorted, so that those that share a key are neighbours.

    With `classes`, subfolders are class labels: every sample also gets a `cls`, the position of its subfolder's name in
    the list of classes; True means all subfolders, in alphabetical order. Hidden files, those of the desktop and names
    without an extension are left out. `key_end` is where the key of a name ends, "first-dot" or "last-dot". Links that
    lead out of the folder are refused, or followed if files may be `outside`.
    """
    root = None if outside else os.path.realpath(folder)
    if not os.path.isdir(folder):
        raise MissingShardError("there is no such folder", url=folder)
    if classes is False:
        return _in_folder(folder, _files(folder, "", root), key_end)
    numbers = class_numbers(folder, class_names([folder]) if classes is True else classes)
    return _with_classes(_in_folder(folder, _files_of_classes(folder, numbers, root), key_end), numbers)


def folder_size(folder: str) -> int:
    """The bytes of the files that `from_folder` reads."""
    total, folders, seen = 0, [folder], set()
    while folders:
        folder = folders.pop()
        if (here := os.path.realpath(folder)) in seen:  # a link that leads back up
            continue
        seen.add(here)
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir()
                if reason_to_leave(entry.name, folder=is_folder):
                    continue
                if is_folder:
                    folders.append(entry.path)
                elif entry.is_file():
                    total += entry.stat().st_size
    return total


def chained(sources: Iterable[Iterable[MemberSource]]) -> Iterator[MemberSource]:
    """The members of all sources; it is an error if one begins with the key with which the one before it ends.

    >>> list(chained([[MemberSource("a.jpg", bytes)], [MemberSource("a.txt", bytes)]]))
    Traceback (most recent call last):
    webdataset.errors.SampleError: 'a.jpg' and 'a.txt' of two sources would become one sample [key a]; ...
    """
    last: MemberSource | None = None
    for members in sources:
        before = last
        for last in members:
            if before is not None and _key(before) == _key(last):
                message = f"{before.name!r} and {last.name!r} of two sources would become one sample"
                raise SampleError(message, key=_key(last), hint="--sort says that they belong together; or rename one")
            before = None
            yield last


def write_items(
    items: Iterable[MemberSource],
    output: Any,
    *,
    sort: bool = False,
    overwrite: bool | str = "warn",
    post: Callable[[str], object] | None = None,
    maxcount: int = 0,
    maxsize: float = 0,
    count: int = 0,
    handler: Handler = reraise_exception,
    wrote: Callable[[int, int], object] = lambda samples, size: None,  # noqa: ARG005 - nobody listens
    **options: object,
) -> int:
    """Write members to one archive, or to shards if `maxcount` or `maxsize` is given or the name has a number.

    Neighbours with the same key are one sample: it stays in one shard, and an error leaves out all of it. `overwrite`
    is as in ShardWriter; `post` is called with the name of each complete shard, `wrote` with the number and size of
    samples. Returns the number of samples.
    """
    sharded = bool(maxcount or maxsize or (isinstance(output, str) and is_numbered(output)))
    if sharded:
        options |= {"overwrite": overwrite, "post": post}
    total = 0
    with _writer(output, sharded, maxcount, maxsize, options) as sink:
        ordered: Iterable[MemberSource] = sorted(items, key=lambda item: _order(item.name)) if sort else items
        for members in handled((list(group) for _, group in groupby(ordered, key=_key)), _members, handler):
            if sharded:
                sink.write(_as_sample(members))
            else:
                sink.write_members(members)
            total += 1
            wrote(1, sum(len(data) for _, data in members))
            if total == count:
                break
    if post is not None and total and not sharded:
        post(output)
    return total


def _writer(output: Any, sharded: bool, maxcount: int, maxsize: float, options: dict[str, Any]) -> Any:
    if not sharded:
        return TarWriter(output, encoder=False, **options)
    sizes: dict[str, Any] = {"maxcount": maxcount or 1 << 60, "maxsize": maxsize or 1e30} if maxcount or maxsize else {}
    return set_writer(output, encoder=False, verbose=0, **sizes, **options)


def _members(items: list[MemberSource]) -> list[tuple[bytes, bytes]]:
    seen: dict[str, str] = {}
    for item in items:
        if item.name.startswith("/") or ".." in item.name.split("/"):
            hint = "name members without .. and without a / at the beginning"
            raise SecurityError("the name leads out of the folder that it is extracted to", member=item.name, hint=hint)
        key, field = base_plus_ext(item.name)
        name = item.name if key is None else f"{key}.{(field or '').lower()}"
        if name in seen:
            hint = "rename one of them; of extensions, readers see small letters alone"
            raise SampleError(
                f"this and {seen[name]!r} are the same field of a sample", member=item.name, key=key, hint=hint
            )
        seen[name] = item.name
    return [(item.name.encode("utf-8", "surrogateescape"), _content(item)) for item in items]


def _content(item: MemberSource) -> bytes:
    try:
        return item.content()
    except Exception as error:
        at = getattr(error, "at", None)
        raise (at(member=item.name) if at is not None else error) from error.__cause__


def _as_sample(members: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    sample: dict[str, Any] = {}
    for name, data in members:
        text = name.decode("utf-8", "surrogateescape")
        key, field = base_plus_ext(text)
        if key is None or field is None:
            hint = "add an extension, or write a single archive"
            raise SampleError("the name has no extension, so it is not part of a sample", member=text, hint=hint)
        sample |= {"__key__": key, field: data}
    return sample


def _key(item: MemberSource) -> str:
    key, _ = base_plus_ext(item.name)
    return f"\0{item.name}" if key is None else key


def _order(name: str) -> tuple[str, str]:
    key, field = base_plus_ext(name)
    return (name, "") if key is None else (key, field or "")


def _in_folder(folder: str, names: Iterable[str], key_end: str | None) -> Iterator[MemberSource]:
    """Files as members: all names are read and checked now, and held; each file is opened when it is its turn."""
    files, root = list(names), os.path.abspath(folder)
    members = zip(member_names(files, key_end, origin=folder), files, strict=True)
    return (MemberSource(name, partial(_fetched, os.path.join(root, file), "")) for name, file in members)


def _files(folder: str, prefix: str, root: str | None, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Walk depth first, in the order of the members' names; what links to a place outside the root is refused."""
    here = _real_path(folder, root)
    if here in seen:  # a link that leads back up
        return
    entries = sorted(os.scandir(folder), key=lambda entry: _order(entry.name))
    for entry in entries:
        is_folder = entry.is_dir()
        if reason := reason_to_leave(entry.name, folder=is_folder):
            current_report().dropped("members_dropped", reason)
        elif is_folder:
            yield from _files(entry.path, f"{prefix}{entry.name}/", root, seen | {here})
        elif entry.is_file():
            if entry.is_symlink():
                _real_path(entry.path, root)
            yield f"{prefix}{entry.name}"


def _files_of_classes(folder: str, names: Iterable[str], root: str | None) -> Iterator[str]:
    for entry in os.scandir(folder):
        reason = reason_to_leave(entry.name, folder=True)
        if reason or entry.is_file():
            current_report().dropped("members_dropped", reason or "the file is in none of the class folders")
    for name in names:
        yield from _files(os.path.join(folder, name), f"{name}/", root)


def _with_classes(files: Iterable[MemberSource], numbers: dict[str, int]) -> Iterator[MemberSource]:
    for key, group in groupby(files, key=_key):
        members = list(group)
        if any(item.name.lower() == f"{key}.cls".lower() for item in members):
            raise SampleError("the sample has a cls already", key=key, hint="leave out --classes")
        yield MemberSource(f"{key}.cls", partial(_encoded, str(numbers[key.partition("/")[0]])))
        yield from members


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _fetched(source: str, folder: str, origin: str = "") -> bytes:
    if folder and is_local(source) and not source.startswith("file:"):
        source = os.path.join(folder, source)
    limit = settings.max_member_bytes
    with gopen(source, storage_options=StorageOptions.of(None).for_list(_list_origin(origin))) as stream:
        return read_up_to(limit, stream, source, "raise WDS_MAX_MEMBER_BYTES")


def file_source(source: str, folder: str, origin: str, inside: str | None = None) -> Callable[[], bytes]:
    """What fetches the bytes of a file or url that a table names; commands are not allowed.

    Without a folder that it has to be `inside`, it may be anywhere.
    """
    if scheme_of(source) == "pipe":
        hint = "a recipe may name commands"
        raise SecurityError("a table names files, not commands", url=source, hint=hint)
    source = "./-" if source == "-" else _checked(source, origin)
    if inside is None or not is_local(_list_origin(origin)):
        return partial(_fetched, source, folder, origin)
    if scheme_of(source):
        raise SecurityError("the url leads to another place", url=source, hint=OUTSIDE_HINT)
    path = _real_path(local_path(os.path.join(folder, source)) or source, os.path.realpath(inside))
    if os.path.lexists(path) and not os.path.isfile(path):
        raise SecurityError("this is no file", url=path)
    return partial(_fetched, path, "")


def key_of_member(name: str) -> tuple[str, str]:
    """What members are sorted by, so that those of a sample are neighbours."""
    return _order(name)


def _real_path(path: str, root: str | None) -> str:
    """Where a path leads after all links; a place outside the root is refused."""
    if "\0" in path:
        raise SecurityError("this is no name of a file", url=path)
    real = os.path.realpath(path)
    if root is not None and os.path.commonpath([real, root]) != root:
        raise SecurityError("this leads out of the folder", url=path, hint=OUTSIDE_HINT)
    return real


def _checked(source: str, origin: str) -> str:
    origin = _list_origin(origin)
    return check_url_from_data(source, origin) if origin else source


def _list_origin(origin: str) -> str:
    """Where a list comes from; what is typed, or comes through a pipe, is the user's."""
    return "" if origin == "-" else origin
