"""Read the samples that the options ask for, and write samples to the output.

A command is mostly

    samples = reading(options)                      # inputs, --on-error, -S, -s, -c
    return drain(options, samples.compose(stage))   # -o, progress, summary, exit code
"""

from __future__ import annotations

import io
import os
import random
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from operator import eq
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.redact import redacted
from webdataset.base.reports import Report
from webdataset.dataset import WebDataset, shards_in
from webdataset.errors import EmptyDatasetError, SampleError
from webdataset.filters import select, shuffle
from webdataset.filters import slice as sliced
from webdataset.handlers import Handler, close, ignore_and_continue, ignore_and_stop, reraise_exception
from webdataset.pipeline import DataPipeline
from webdataset.shardlists import SimpleShardList, expand_urls
from webdataset.tar.reader import read_members
from webdataset.tar.writer import END, MemberHeaders, packed
from webdataset.tariterators import base_plus_ext
from webdataset.tools.make.spacing import kept_apart
from webdataset.tools.make.splitting import names_of_set, set_writer
from webdataset.tools.transform.choosing import rekey
from webdataset.tools.transform.mixtures import in_turn
from webdataset.writer import ShardWriter, TarWriter
from webdataset.writing.encoding import SampleEncoder
from webdataset.writing.shardsets import is_numbered

from .expressions import predicate
from .grammar import UsageError
from .inputs import is_channel, is_special, say_bound, special_samples, split_range
from .progress import ProgressDisplay

if TYPE_CHECKING:
    from webdataset.tools.channels import Sender

HANDLERS: dict[str, Handler] = {"raise": reraise_exception, "skip": ignore_and_continue, "stop": ignore_and_stop}

NEW_KEYS = "--rekey '{key}-{index}' makes keys unique"

MAX_REMEMBERED = 1000
"""How many sets of field names to remember."""

Sample = dict[str, Any]


def urls_of(inputs: Sequence[str]) -> list[str]:
    """Return the shards that the arguments name: braces, globs, folders ending in a slash; none means stdin."""
    if not inputs or list(inputs) == ["-"]:
        if sys.stdin is not None and sys.stdin.isatty():
            raise UsageError("there is nothing to read: name shards, or pipe in a tar archive")
        return ["-"]
    urls: list[str] = []
    for text in inputs:
        spec, cut = split_range(text)
        for url in expand_urls(spec):
            urls += shards_in(url) if url.endswith("/") and os.path.isdir(url) else [url + cut]
    return urls


def handler_of(options: Namespace) -> Handler:
    """Return the handler for --on-error."""
    own: Handler | None = getattr(options, "handler", None)
    return own or HANDLERS[getattr(options, "on_error", "raise")]


def reading(
    options: Namespace,
    urls: Sequence[str] | None = None,
    *,
    mix: int = 0,
    shuffled: bool = False,
    seed: int | None = None,
    watched: bool = True,
    **more: Any,
) -> DataPipeline:
    """Return the samples of the inputs, undecoded, that -S, -s and -c select.

    `mix=N` reads N shards in turn, `shuffled` shuffles the shards; other options go to WebDataset. What is read is
    `watched` by the progress line.
    """
    options.urls = urls_of(options.inputs) if urls is None else list(urls)
    if shuffled:
        random.Random(seed).shuffle(options.urls)
    given: dict[str, Any] = {"handler": handler_of(options), "concatenated": getattr(options, "concatenated", False)}
    dataset: DataPipeline
    if any(map(is_special, options.urls)):
        dataset = DataPipeline(partial(special_samples, options.urls, **given))
    elif mix > 1:
        dataset = DataPipeline(SimpleShardList(options.urls), partial(in_turn, streams=mix, **given))
    else:
        dataset = WebDataset(options.urls, nodesplitter=None, workersplitter=None, empty_check=False, **given, **more)
    if watched and (display := ProgressDisplay.of(options)).shown:
        dataset = dataset.compose(display.watch)
    return chosen(dataset, options)


def chosen(dataset: DataPipeline, options: Namespace) -> DataPipeline:
    """Apply -S, -s and -c."""
    if buffer := getattr(options, "shuffle_first", 0):
        dataset = dataset.compose(shuffle(buffer, initial=buffer))
    if getattr(options, "select", None):
        condition = predicate(options.select, decode=getattr(options, "decode", None) or "rgb")
        dataset = dataset.compose(select(condition, handler=handler_of(options)))
    skip, count = getattr(options, "skip", 0) or 0, getattr(options, "count", None)
    if skip or count is not None:
        dataset = dataset.compose(sliced(skip, None if count is None else skip + count))
    return dataset


def rekeyed(dataset: DataPipeline, options: Namespace) -> DataPipeline:
    """Apply --rekey."""
    pattern = getattr(options, "rekey", None)
    return dataset.compose(rekey(pattern)) if pattern else dataset


def drain(options: Namespace, dataset: DataPipeline, *, apart: bool = False) -> int:
    """Write all samples to the output, with progress and a summary, and return the exit code.

    `apart` keeps samples with equal keys apart, where the order does not matter.
    """
    progress = ProgressDisplay.of(options)
    dataset = rekeyed(dataset, options)
    dataset = dataset.compose(kept_apart()) if apart and not is_channel(options.output) else dataset
    with Sink(options) as sink:
        progress.stats = dataset.stats
        samples = iter(dataset)
        try:
            for sample in progress(samples):
                sink.write(sample)
            check_selection(options, progress.count)
        finally:
            progress.clear()
            close(samples)
    return finished(options, progress, dataset.stats(), sink.written())


def finished(options: Namespace, progress: ProgressDisplay, stats: dict[str, Any], written: str = "") -> int:
    """Print the summary, and return the exit code: 1 if --on-error stop ended the stream early."""
    options.stats, options.samples_written = stats, progress.count
    progress.summary(stats, written)
    check_selection(options, progress.count)
    stopped = getattr(options, "on_error", "raise") == "stop"
    return 1 if stopped and (stats["samples_dropped"] or stats["shards_skipped"]) else 0


def check_selection(options: Namespace, count: int) -> None:
    """Raise if no sample was selected, unless --allow-empty says that it may be so."""
    asked = [name for name in ("select", "skip", "slice") if getattr(options, name, None)]
    allowed = getattr(options, "allow_empty", True) or not hasattr(options, "summarized")  # old programs say nothing
    if not count and asked and not allowed:
        condition = f"the condition {options.select!r}" if "select" in asked else f"--{asked[0]}"
        raise EmptyDatasetError(f"no sample is selected by {condition}", hint="--allow-empty makes that no error")


@contextmanager
def signals_held() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM while something is opened that must be closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Sink:
    """The output: one archive, numbered shards or a channel; samples are bytes, nothing is encoded.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Sink(Namespace(output=f"{folder}/a.tar")) as sink:
    ...         sink.write({"__key__": "a", "__url__": "in.tar", "txt": b"hello"})
    ...     os.listdir(folder)
    ['a.tar']
    """

    def __init__(self, options: Namespace, post: Callable[[str], object] | None = None) -> None:
        output = options.output
        self._clean: set[tuple[str, ...]] = set()
        kw: dict[str, Any] = {"encoder": False, "keep_meta": True, "compress": getattr(options, "compress", None)}
        self.writer: Any
        with ExitStack() as held:
            held.enter_context(signals_held())
            if is_channel(output):
                self.writer = _sender(options)
            elif is_numbered(output):
                sizes = {name: getattr(options, name) for name in ("maxcount", "maxsize") if hasattr(options, name)}
                start = getattr(options, "start", 0) or 0
                inputs = [split_range(url)[0] for url in getattr(options, "urls", ())]
                kw |= {"post": post, "start_shard": start, "overwrite": getattr(options, "overwrite", "warn"), **sizes}
                self.writer = set_writer(output, inputs=inputs, **kw)
                self._first = start
            else:
                refuse_terminal(output)
                self.writer = TarWriter(output, **kw)
            self._held = held.pop_all()
        self._post = None if isinstance(self.writer, ShardWriter) else post
        self._output = output

    def write(self, sample: Sample | PackedSamples) -> None:
        """Write the fields of a sample, without what the library has added to it."""
        try:
            if isinstance(sample, PackedSamples):
                self.writer.write_packed(sample.data, sample.sizes)
            else:
                self.writer.write(self._fields(sample))
        except SampleError as error:
            error.hint = NEW_KEYS
            raise

    def written(self) -> str:
        """Where the samples went, for the summary."""
        if not isinstance(self.writer, ShardWriter):
            return "stdout" if self._output == "-" else redacted(self._output)
        return redacted(names_of_set(self.writer.pattern, self._first, self.writer.shard))

    def _fields(self, sample: Sample) -> Sample:
        sample.pop("__url__", None)
        sample.pop("__local_path__", None)
        names = tuple(sample)
        if names not in self._clean:
            if not all(map(_is_written, names)):
                sample = {name: sample[name] for name in names if _is_written(name)}
            elif len(self._clean) < MAX_REMEMBERED:
                self._clean.add(names)
        return sample

    def __enter__(self) -> Sink:
        try:
            self._held.close()
        except BaseException:  # a signal that waited until here
            self.writer.abort()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.__exit__(kind, error, trace)
        if kind is None and self._post is not None:
            self._post(self._output)


class PackedSamples(NamedTuple):
    """Samples as bytes of an archive."""

    first: str
    last: str
    """The keys of the first and the last sample."""
    sizes: list[tuple[int, int]]
    """For each sample, its size in the archive and the size of its fields."""
    data: bytes

    def unpacked(self) -> list[Sample]:
        """Return the samples."""
        starts = accumulate((size for size, _ in self.sizes), initial=0)
        return [_unpacked(self.data[start : start + size]) for start, (size, _) in zip(starts, self.sizes) if size]  # noqa: B905 - one more start


class Packer:
    """Packs samples as the output would write them, in another process.

    >>> [packed] = Packer()([{"__key__": "a", "__url__": "in.tar", "txt": b"hello"}, {"__key__": "b", "txt": b""}])
    >>> packed.first, packed.last, packed.sizes, len(packed.data)
    ('a', 'b', [(1024, 5), (512, 0)], 1536)
    >>> packed.unpacked()
    [{'__key__': 'a', 'txt': b'hello'}, {'__key__': 'b', 'txt': b''}]
    """

    def __init__(self) -> None:
        self._members = SampleEncoder(False, keep_meta=True)
        self._headers = MemberHeaders()

    def __call__(self, samples: list[Sample]) -> list[Sample | PackedSamples]:
        """Return the packed samples, or the samples themselves if the output would reject or change one of them."""
        keys = [sample.get("__key__") for sample in samples]
        if not samples or any(type(key) is not str or "." in key for key in keys) or any(map(eq, keys, keys[1:])):
            return [*samples]
        try:
            parts, sizes = [], []
            for sample in samples:
                members = self._members({name: sample[name] for name in sample if _is_written(name)})
                parts.append(packed(members, self._headers))
                sizes.append((len(parts[-1]), sum(len(data) for _, data in members)))
            return [PackedSamples(str(keys[0]), str(keys[-1]), sizes, b"".join(parts))]
        except Exception:
            return [*samples]


def _unpacked(data: bytes) -> Sample:
    """Read one sample, whose key has no dot."""
    windows = read_members(io.BytesIO(data + END), report=Report(strict=False))
    members = [(*base_plus_ext(name), content) for window in windows for name, _, content in window]
    return {"__key__": members[0][0]} | {str(field): content for _, field, content in members}


def _is_written(name: str) -> bool:
    return name[:2] != "__" or name == "__key__"


def packer(options: Namespace) -> Callable[[], Packer] | None:
    """Return what packs samples for the output, if it is an archive and no option concerns single samples."""
    single = getattr(options, "every", None) or getattr(options, "rekey", None)
    return None if is_channel(options.output) or single else Packer


def _sender(options: Namespace) -> Sender:
    from webdataset.tools.channels import Sender

    end, seed = getattr(options, "eof", True), getattr(options, "seed", None)
    return Sender(expand_urls(options.output), end=end, seed=seed, bound=say_bound)


def refuse_terminal(output: str) -> None:
    """Fail if the output is a terminal."""
    if output == "-" and sys.stdout.isatty():
        raise UsageError("not writing bytes to a terminal: use -o FILE or a pipe")
