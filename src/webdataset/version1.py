"""The constructor arguments of WebDataset's first versions, as stages.

    WebDataset(urls, extensions="jpg cls", decoder="pil", transforms=[augment, None], shuffle=100)

reads tuples instead of dicts and decodes images to "rgb" unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from . import autodecode, filters
from .base.printing import did_you_mean
from .base.stages import PipelineStage
from .handlers import Handler, ignore_and_continue, reraise_exception, warn_and_continue
from .tariterators import url_opener

if TYPE_CHECKING:
    from .pipeline import DataPipeline

_UNSET: object = object()

VERSION1 = {"extensions", "decoder", "transforms", "pipeline", "epochs", "opener", "errors", "shuffle", "associate"}
VERSION1 |= {"prepare_for_worker", "container"}
VERSION01 = {"length", "shard_selection", "splitter", "cache_name", "cache_verbose"}


class Version1:
    """What the old arguments ask for; nothing, if none was given.

    >>> Version1.from_arguments({"extensions": "jpg cls"}).stages()[-1]
    <_to_tuple ('jpg', 'cls') {'missing_is_error': False}>
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.in_use = not VERSION1.isdisjoint(arguments)

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any], known: Iterable[str] = ()) -> Self:
        """Take the arguments, and refuse those that no version ever had; `known` are the other arguments."""
        unknown = sorted(set(arguments) - VERSION1 - VERSION01)
        if unknown:
            raise TypeError(
                f"WebDataset() got an unexpected keyword argument {unknown[0]!r}{did_you_mean(unknown[0], known)}"
            )
        return cls(arguments)

    def handler(self, handler: Handler) -> Handler:
        """`errors=True` raises, "warn" warns and goes on, False goes on."""
        errors = self.arguments.get("errors", _UNSET)
        if errors is _UNSET or callable(errors):
            return handler if errors is _UNSET else errors
        return {True: reraise_exception, False: ignore_and_continue, "warn": warn_and_continue}[errors]

    def worker_splitter(self, splitter: Any) -> Any:
        """0.1's `shard_selection=` and `splitter=` choose a worker's urls; `prepare_for_worker=False` takes all."""
        chosen = self.arguments.get("shard_selection", self.arguments.get("splitter", _UNSET))
        if chosen is not _UNSET:
            return None if not chosen or chosen is True else _UrlSelection(chosen)
        return splitter if self.arguments.get("prepare_for_worker", True) else None

    def shard_shuffle(self, shardshuffle: int | bool | None) -> int | bool | None:
        """`shuffle=n` shuffles the shards too."""
        return 1 << 30 if self.arguments.get("shuffle") and shardshuffle is None else shardshuffle

    def opener(self, opener: Any) -> Any:
        """`opener=` is a function of the url, or a command with `{}` in the place of the url."""
        chosen = self.arguments.get("opener")
        return opener if chosen is None else _UrlOpener(chosen)

    def stages(self) -> list[Any]:
        """The stages after the samples are read."""
        if not self.in_use:
            return []
        given = self.arguments
        stages: list[Any] = []
        if given.get("container"):
            stages.append(_Records(given["container"]))
        if given.get("shuffle"):
            stages.append(filters.shuffle(given["shuffle"], given["shuffle"]))
        stages += _decoding(given.get("decoder", "rgb"))
        if given.get("associate") is not None:
            stages.append(filters.associate(given["associate"]))
        if given.get("pipeline") is not None:
            stages.append(given["pipeline"])
        if given.get("extensions") is not None:
            stages += _tuples(given["extensions"], given.get("transforms"))
        return stages

    def apply_lengths(self, dataset: DataPipeline, repeat: bool) -> None:
        """`length=`, `epochs=` and `repeat=`, which change the finished dataset."""
        length = self.arguments.get("length")
        if length is not None:
            dataset.with_length(int(length), silent=True)
        epochs = self.arguments.get("epochs", 1)
        if repeat or epochs != 1:
            dataset.repeat(-1 if repeat else epochs)


def _decoding(decoder: Any) -> list[Any]:
    if decoder is None or decoder is False:
        return []
    if decoder is True:
        decoder = "rgb"
    if isinstance(decoder, str):
        return [filters.decode(decoder)]
    if isinstance(decoder, dict):
        return [filters.decode(*(autodecode.handle_extension(ext, f) for ext, f in decoder.items()))]
    return [filters.map(decoder)]


def _tuples(extensions: str | Iterable[Any], transforms: list[Any] | None) -> list[Any]:
    wanted = extensions.split() if isinstance(extensions, str) else list(extensions)
    stages: list[Any] = [filters.to_tuple(*wanted, missing_is_error=False)]
    if transforms:
        # fewer transforms than fields are used again from the start
        stages.append(filters.map_tuple(*(transforms[i % len(transforms)] for i in range(len(wanted)))))
    return stages


class _UrlSelection(PipelineStage):
    """A function from a list of urls to this worker's urls."""

    def __init__(self, select: Callable[[list[str]], Iterable[str]]) -> None:
        self.select = select

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        return ({"url": url} for url in self.select([item["url"] for item in src]))


class _UrlOpener:
    """Opens shards with a function or a command of the user's."""

    def __init__(self, opener: Callable[[str], Any] | str) -> None:
        self.opener = opener

    def __call__(self, src: Iterable[Any], handler: Handler) -> Iterator[Any]:
        if isinstance(self.opener, str):
            commands = ({**item, "url": f"pipe:{self.opener.format(item['url'])}"} for item in src)
            return url_opener(commands, handler=handler)
        opened: Iterator[Any] = filters.map.function(src, partial(self._open, self.opener), handler=handler)
        return opened

    @staticmethod
    def _open(opener: Callable[[str], Any], item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "stream": opener(item["url"])}


class _Records(PipelineStage):
    """Every file with this extension holds a whole sample."""

    def __init__(self, extension: str) -> None:
        self.extension = extension

    def run(self, src: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        decode = autodecode.decoders[self.extension]
        for sample in src:
            if self.extension in sample:
                record = decode(sample[self.extension])
                own = {name: value for name, value in sample.items() if name.startswith("__")}
                yield {**record, **own} if isinstance(record, dict) else {**own, self.extension: record}
