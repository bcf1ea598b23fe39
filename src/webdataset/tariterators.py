"""From opened shards to samples: members of a tar archive that share a key.

`tarfile_samples` is url_opener, tar_file_expander and group_by_keys in one. Programs replace these three
functions in this module; while they are our own, the last two run fused, which is several times faster.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from .base.behaviour import behaves
from .base.context import PassContext, current_pass
from .base.reports import Report, current_report
from .base.stages import pipelinefilter
from .codecs.compression import decompressed, is_expanded
from .errors import SampleError, WebDatasetError
from .gopen import gopen
from .handlers import Handler, ask, checked_handler, close, reraise_exception
from .storage.opening import OpenedShards
from .storage.options import StorageOptions
from .storage.streams import partial_reads
from .tar.large import LargeMembers, select_limits
from .tar.limits import Limits
from .tar.reader import read_members

Sample = dict[str, Any]
Member = tuple[str, int, bytes]
SplitName = Callable[[str], tuple[str | None, str | None]]
SelectFile = Callable[[str], Any]
RenameFile = Callable[[str], str]

trace = False
meta_prefix = "__"
meta_suffix = "__"

MAX_KEYS_REMEMBERED = 1 << 20
"""Keys of one shard that are remembered to notice members that are not adjacent."""

MAX_FIELDS_REMEMBERED = 4096

_SKIP_META = re.compile(r"__[^/]*__($|/)")
_NO_KEY: Any = object()
"""A key that no name has: names may have an empty one, or none."""


class Reading(NamedTuple):
    """Which members of a shard are read, and how."""

    select: SelectFile | None = None
    rename: RenameFile | None = None
    large: LargeMembers | None = None
    concatenated: bool = False

    def limits(self, file: object) -> Limits | None:
        """The limits for a shard; `file` is where it lies, if that is a plain file."""
        if self.large is not None:
            return self.large.limits(file, self._is_selected)
        return None if self.select is None else select_limits(self._is_selected, file)

    def _is_selected(self, name: str) -> bool:
        if self.select is None:
            return True
        return bool(self.select(name if self.rename is None else self.rename(name)))


def base_plus_ext(path: str) -> tuple[str | None, str | None]:
    """Split the name of a member, `path`, at the first dot of its last component; (None, None) if it is in no sample.

    >>> base_plus_ext("train/dog.seg.png"), base_plus_ext("README")
    (('train/dog', 'seg.png'), (None, None))
    """
    dot = path.find(".", path.rfind("/") + 1)
    return (path[:dot], path[dot + 1 :]) if dot > 0 else (None, None)


def valid_sample(sample: object) -> bool:
    """Is this a sample: a dict with something in it that is not marked as bad?

    >>> valid_sample({"__key__": "a", "cls": b"1"}), valid_sample({"__bad__": True}), valid_sample({})
    (True, False, False)
    """
    return isinstance(sample, dict) and len(sample) > 0 and not sample.get("__bad__", False)


@behaves("holds", "url_opener() as a stage of its own looks ahead")
def url_opener(data: Iterable[Sample], handler: Handler = reraise_exception, **kw: Any) -> Iterator[Sample]:
    """Open each shard: `{"url": ...}` becomes `{"url": ..., "stream": ...}`, with `local_path` for a local file.

    Options go to gopen; `proxy=` and those of `storage_options=` where they mean something for the url.

    Args:
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        **kw: options of `gopen`
    """
    options = StorageOptions.of(kw.pop("storage_options", None)).changed(proxy=kw.pop("proxy", None))
    if options:
        kw["storage_options"] = options
    return OpenedShards(data, partial(_open, kw), checked_handler(handler), current_report())


def tar_file_iterator(
    fileobj: object,
    skip_meta: str | None = _SKIP_META.pattern,
    handler: Handler = reraise_exception,
    select_files: SelectFile | None = None,
    rename_files: RenameFile | None = None,
    *,
    concatenated: bool = False,
) -> Iterator[Sample]:
    """The regular members of one tar stream, compressed or not, as `{"fname": name, "data": bytes}`.

    `concatenated=True` reads on behind an end marker, where another archive may follow.

    Args:
        fileobj: a binary stream
        skip_meta: a regular expression: members with such names are left out
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        select_files: a function of a member's name: whether to read it
        rename_files: a function of a member's name: its new name
        concatenated: read on behind an end marker
    """
    report = current_report()
    reading = Reading(select_files, rename_files, concatenated=concatenated)
    members = _members({"stream": fileobj}, report, reading)
    return _files(members, skip_meta, checked_handler(handler), report)


@behaves("holds", "tar_file_expander() as a stage of its own looks ahead")
def tar_file_expander(
    data: Iterable[Sample],
    handler: Handler = reraise_exception,
    select_files: SelectFile | None = None,
    rename_files: RenameFile | None = None,
    eof_value: object = None,
    *,
    concatenated: bool = False,
) -> Iterator[Sample]:
    """The members of every opened shard, as `{"fname", "data", "__url__"}`.

    Each also has `__offset__`, by which group_by_keys knows where a shard ends. `eof_value` is yielded
    after each shard if it is not None.

    Args:
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        select_files: a function of a member's name: whether to read it
        rename_files: a function of a member's name: its new name
        eof_value: an item to yield after each shard
        concatenated: read on behind an end marker
    """
    items = partial(_file_items, eof_value=eof_value)
    reading = Reading(select_files, rename_files, concatenated=concatenated)
    return _each_shard(data, reading, items, checked_handler(handler), current_pass())


@behaves("holds", "group_by_keys() as a stage of its own looks ahead")
def group_by_keys(
    data: Iterable[Sample],
    keys: SplitName = base_plus_ext,
    lcase: bool = True,
    suffixes: Iterable[str] | None = None,
    handler: Handler = reraise_exception,
) -> Iterator[Sample]:
    """Put members that follow each other and share a key into one sample; a shard's end ends a sample.

    Args:
        keys: a function that splits a member's name into key and field
        lcase: fields in lower case
        suffixes: the fields to keep, if not all
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> files = [{"fname": "a.cls", "data": b"1"}, {"fname": "a.TXT", "data": b"x"}, {"fname": "b.cls", "data": b"2"}]
    >>> [sorted(sample) for sample in group_by_keys(files)]
    [['__key__', 'cls', 'txt'], ['__key__', 'cls']]
    """
    grouping = Grouping(keys, lcase, suffixes, checked_handler(handler), current_report())
    return _group(data, grouping)


def tarfile_samples(
    src: Iterable[Sample],
    handler: Handler = reraise_exception,
    select_files: SelectFile | None = None,
    rename_files: RenameFile | None = None,
    *,
    keys: SplitName = base_plus_ext,
    opener: Callable[..., Iterator[Sample]] | None = None,
    proxy: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    large: LargeMembers | None = None,
    concatenated: bool = False,
) -> Iterator[Sample]:
    """Open shards and yield their samples: dicts of `__key__`, `__url__` and one bytes value per field.

    A member that is too large for memory is an error; with `large`, a LargeMember is its field's value.
    `concatenated=True` reads archives that were put together with `cat` as one shard.

    Args:
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        select_files: a function of a member's name: whether to read it
        rename_files: a function of a member's name: its new name
        keys: a function that splits a member's name into key and field
        opener: opens the shards, instead of `url_opener`
        proxy: the web proxy to go through
        storage_options: how servers and stores are reached, as for a WebDataset
        large: a `LargeMembers`: members too large for memory come in pieces
        concatenated: read on behind an end marker
    """
    checked_handler(handler)
    given = {"proxy": proxy, "storage_options": storage_options or None}
    streams = (opener or url_opener)(src, handler=handler, **{name: one for name, one in given.items() if one})
    if reads_in_one_step():
        grouping = Grouping(keys, True, None, handler, current_report())
        reading = Reading(select_files, rename_files, large, concatenated)
        return _each_shard(streams, reading, grouping.of_shard, handler, current_pass())
    # a replacement need not know the options that nobody uses
    chosen: dict[str, Any] = {
        "select_files": select_files,
        "rename_files": rename_files,
        "concatenated": concatenated or None,
    }
    files = tar_file_expander(streams, handler=handler, **{name: f for name, f in chosen.items() if f is not None})
    splitting: dict[str, Any] = {} if keys is base_plus_ext else {"keys": keys}
    return group_by_keys(files, handler=handler, **splitting)


tarfile_to_samples = pipelinefilter(kind="reads")(tarfile_samples)


def reads_in_one_step() -> bool:
    """Whether the functions that a program may replace are our own, so that the end of a shard is known."""
    return tar_file_expander is _our_expander and group_by_keys is _our_grouping


_our_expander = tar_file_expander
_our_grouping = group_by_keys


class Grouping:
    """How members become samples, and who is asked when they do not."""

    def __init__(
        self, keys: SplitName, lcase: bool, suffixes: Iterable[str] | None, handler: Handler, report: Report
    ) -> None:
        self.split = None if keys is base_plus_ext else keys
        self.lcase = lcase
        self.suffixes = None if suffixes is None else set(suffixes)
        self.handler = handler
        self.report = report
        self._field_of: dict[str, tuple[str, int]] = {}

    def of_shard(self, windows: Iterable[list[Member]], source: Sample) -> Iterator[Sample]:
        """The samples of one opened shard."""
        return self.samples(windows, _places(source))

    def samples(self, windows: Iterable[list[Member]], places: Sample) -> Iterator[Sample]:
        """The samples of one shard; `places` is what every sample says about its origin.

        The sample in progress when the windows fail is dropped: it may be half a sample.
        """
        report, split = self.report, self.split
        field_of = self._field_of
        seen: dict[str, int] = {}
        key, fields, count = _NO_KEY, 0, 0
        prefix: str | None
        sample: Sample = {}
        try:
            for window in windows:
                for name, offset, data in window:
                    # the commonest rule and kind of name are written out: a call a member costs a tenth of the time
                    if split is None and "/" not in name:
                        prefix, dot, extension = name.partition(".")
                        if not dot:
                            prefix = None
                    else:
                        prefix, extension = self._split(name)
                    if prefix != key:
                        if not prefix or (prefix[:2] == meta_prefix and _SKIP_META.match(name)):
                            report.dropped("members_dropped", "the member's name puts it into no sample")
                            continue
                        if fields:
                            if seen.setdefault(key, fields) != fields:
                                self._came_back(seen, key, fields, places, offset)
                            count += 1
                            yield sample
                        key, fields = prefix, 0
                        sample = {"__key__": key, **places}
                    try:
                        field, bit = field_of[extension]
                    except KeyError:
                        field, bit = self._field(extension)
                    if not bit:
                        self._leave_out(name, offset, places, field)
                    elif field in sample:
                        if not self._repeated(name, offset, key, field, places):
                            fields, count = 0, count + 1
                            yield sample
                            raise _Stopped
                    else:
                        sample[field] = data
                        fields |= bit
                report.counts["samples_read"] += count
                count = 0
                if len(seen) > MAX_KEYS_REMEMBERED:
                    seen.clear()
            if fields:
                self._came_back(seen, key, fields, places, None)
                fields, count = 0, count + 1
                yield sample
        except Exception:
            if fields:
                report.dropped("samples_dropped", "the sample was not complete when its shard failed")
            raise
        finally:
            report.counts["samples_read"] += count

    def _split(self, name: str) -> tuple[str | None, str]:
        """The member's key and extension; no key if it belongs to no sample."""
        prefix, extension = base_plus_ext(name) if self.split is None else self.split(name)
        return (None, "") if extension is None else (prefix, extension)

    def _field(self, extension: str) -> tuple[str, int]:
        """The field's name and its bit; 0 for a name that must not or need not become a field."""
        field_of = self._field_of
        if len(field_of) > MAX_FIELDS_REMEMBERED:
            field_of.clear()
        field = extension.lower() if self.lcase else extension
        wanted = self.suffixes is None or field in self.suffixes
        # fields beyond the 62nd share a bit, which only makes the check for adjacency coarser
        bit = 0 if field.startswith(meta_prefix) or not wanted else 1 << min(len(field_of), 62)
        field_of[extension] = field, bit
        return field, bit

    def _leave_out(self, name: str, offset: int, places: Sample, field: str) -> None:
        """A member named like a sample's own entries (`a.__url__`) must not pass for one."""
        if field.startswith(meta_prefix):
            self.report.dropped("members_dropped", "the field's name is reserved for the sample's own entries")
            message = "a member's field begins with '__', which is reserved; it is left out"
            self.report.warn(message, url=places.get("__url__"), offset=offset, member=name)

    def _repeated(self, name: str, offset: int, key: str, field: str, places: Sample) -> bool:
        error = SampleError(
            f"the field {field!r} comes twice in one sample",
            url=places.get("__url__"),
            offset=offset,
            member=name,
            key=key,
            field=field,
            hint="every file of a sample needs an extension of its own, every sample a key of its own",
        )
        return ask(self.handler, error, self.report, "members_dropped")

    def _came_back(self, seen: dict[str, int], key: str, fields: int, places: Sample, offset: int | None) -> None:
        """Warn, once a shard, when a key comes back with other fields: its members are not adjacent."""
        warned = ""  # no key is empty, so this entry remembers the warning
        if warned in seen or not fields & ~seen.get(key, fields):
            return
        seen[warned] = 0
        self.report.warn(
            "members of one sample are not adjacent, so it comes as several samples; sort the shard by name",
            url=places.get("__url__"),
            offset=offset,
            key=key,
        )


class _Stopped(Exception):  # noqa: N818 - control flow, not an error
    """A handler ended the stream."""


def _open(options: dict[str, Any], url: str) -> Any:
    return gopen(url, **options)


def _each_shard(
    streams: Iterable[Sample],
    reading: Reading,
    items: Callable[[Iterator[list[Member]], Sample], Iterator[Sample]],
    handler: Handler,
    context: PassContext,
) -> Iterator[Sample]:
    """What `items` makes of the members of each shard; the handler is asked about a shard that fails."""
    report = context.report
    look_ahead = getattr(streams, "look_ahead", None)
    try:
        for source in streams:
            stream = source["stream"]
            windows = _members(source, report, reading, look_ahead)
            try:
                yield from items(windows, source)
                stream.close()
                report.count("shards_read")
            except _Stopped:
                return
            except Exception as exn:
                if not ask(handler, _at(exn, source), report, "shards_skipped"):
                    return
            finally:
                close(windows)
                _close_quietly(stream)
            if context.on_shard_end is not None:
                context.on_shard_end(source)
    finally:
        close(streams)


def _file_items(windows: Iterator[list[Member]], source: Sample, eof_value: Any) -> Iterator[Sample]:
    places = _places(source)
    item: Sample = {}
    try:
        for window in windows:
            for name, offset, content in window:
                if not _SKIP_META.match(name):
                    item = {"fname": name, "data": content, "__offset__": offset, **places}
                    yield item
    except Exception:
        # the grouping still holds this item: it learns that the sample in progress may be half a sample
        item["__cut__"] = True
        raise
    if eof_value is not None:
        yield eof_value


def _group(data: Iterable[Sample], grouping: Grouping) -> Iterator[Sample]:
    for _, shard in groupby(data, key=_Boundary()):
        first = next(shard)
        if "fname" not in first:
            continue
        places: Sample = {name: first[name] for name in ("__url__", "__local_path__") if name in first}
        try:
            yield from grouping.samples(_windows(first, shard), places)  # noqa: B031 - each shard is read once
        except _CutShort:
            continue
        except _Stopped:
            return


class _CutShort(Exception):  # noqa: N818 - control flow, not an error
    """The shard failed; the handler was asked where it was read."""


class _Boundary:
    """Numbers the shards in a stream of members: a new url, an offset that does not grow, or a marker."""

    def __init__(self) -> None:
        self.number = 0
        self.url: str | None = None
        self.offset = -1

    def __call__(self, item: Sample) -> int:
        offset = item.get("__offset__", self.offset + 1)
        url = item.get("__url__")
        if "fname" not in item or url != self.url or offset <= self.offset:
            self.number += 1
        self.url, self.offset = url, offset
        return self.number


def _windows(first: Sample, rest: Iterable[Sample]) -> Iterator[list[Member]]:
    last = first
    yield [(first["fname"], first.get("__offset__", 0), first["data"])]
    for item in rest:
        last = item
        yield [(item["fname"], item.get("__offset__", 0), item["data"])]
    if last.get("__cut__"):
        raise _CutShort


def _files(
    windows: Iterator[list[Member]], skip_meta: str | None, handler: Handler, report: Report
) -> Iterator[Sample]:
    skipped = re.compile(skip_meta) if skip_meta else None
    try:
        for window in windows:
            for name, offset, data in window:
                if skipped is None or not skipped.match(name):
                    yield {"fname": name, "data": data, "__offset__": offset}
    except Exception as exn:
        ask(handler, exn, report, "shards_skipped")
    finally:
        close(windows)


def _members(
    source: Sample,
    report: Report,
    reading: Reading,
    look_ahead: Callable[[], None] | None = None,
) -> Iterator[list[Member]]:
    stream, url = source["stream"], source.get("url")
    select, rename = reading.select, reading.rename
    plain = decompressed(partial_reads(stream, report), url=url)
    limits = reading.limits(None if is_expanded(plain) else stream)
    windows = read_members(plain, url=url, limits=limits, report=report, concatenated=reading.concatenated)
    try:
        for window in windows:
            kept = window
            if look_ahead is not None:
                look_ahead()
            if rename is not None:
                kept = [(rename(name), offset, data) for name, offset, data in kept]
            if select is not None:
                kept = [member for member in kept if select(member[0])]
            yield kept
    finally:
        close(windows)
        if plain is not stream:
            _close_quietly(plain)


def _places(source: Sample) -> Sample:
    places = {"__url__": source["url"]}
    path = source.get("local_path", source.get("__local_path__"))
    if path is not None:
        places["__local_path__"] = os.fspath(path)
    return places


def _at(exn: Exception, source: Sample) -> Exception:
    places = {"url": str(source["url"]), "shard": source.get("__number__")}
    return exn.at(**places) if isinstance(exn, WebDatasetError) else exn


def _close_quietly(stream: Any) -> None:
    """Release a stream whose data no longer matters, so neither does what it has to say."""
    # the error that counts was raised before, or the consumer has left
    with contextlib.suppress(Exception):
        stream.close()
