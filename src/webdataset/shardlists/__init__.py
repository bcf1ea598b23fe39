"""Lists of shards and their order: sources and stages of {"url": url} items.

>>> [shard["url"] for shard in SimpleShardList("train-{000..002}.tar")]
['train-000.tar', 'train-001.tar', 'train-002.tar']
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from webdataset.base.behaviour import Behaviour
from webdataset.base.context import current_pass, pass_in_force
from webdataset.base.iterables import TorchIterable
from webdataset.base.logs import Log
from webdataset.base.settings import settings
from webdataset.base.stages import pipelinefilter
from webdataset.base.workers import make_seed, pytorch_worker_info, pytorch_worker_seed
from webdataset.errors import EmptyDatasetError
from webdataset.filters.order import shuffle
from webdataset.storage.options import StorageOptions
from webdataset.storage.patterns import expanded, expanded_element
from webdataset.storage.urls import as_url
from webdataset.storage.urls import shell_expanded as expand
from webdataset.storage.urls import substituted as envsubst
from webdataset.storage.urls import variable as envlookup

from .claims import check_pid_is_running
from .directory import DirectoryShardList, get_pid_from_filename, without_last_extension
from .mixture import MSSource, MultiShardSample

__all__ = [
    "DirectoryShardList",
    "MSSource",
    "MultiShardSample",
    "PytorchShardList",
    "ResampledShardList",
    "ResampledShards",
    "ShardList",
    "ShardShuffle",
    "SimpleShardList",
    "all_urls",
    "check_pid_is_running",
    "envlookup",
    "envsubst",
    "expand",
    "expand_source",
    "expand_urls",
    "get_pid_from_filename",
    "non_empty",
    "resampled",
    "resampled_",
    "shard_shuffle",
    "shardspec",
    "single_node_only",
    "split_by_node",
    "split_by_worker",
    "without_last_extension",
    "worker_urls",
]

log = Log("webdataset.shardlists")
MAX_URLS = 1_000_000_000

Shard = dict[str, Any]


class EmptyShardListError(EmptyDatasetError, IndexError):
    """A shard list without shards."""


def expand_urls(urls: Any, *, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """All urls of a specification: `::`, `${NAME}`, `@000123`, braces and globs in a string or in those of a list.

    In a list, commands (`pipe:`), existing files and items such as {"url": url} stay as they are.

    >>> expand_urls("a-{0..1}.tar::b.tar")
    ['a-0.tar', 'a-1.tar', 'b.tar']
    >>> expand_urls(["a-{0..1}.tar", "pipe:cat {b,c}.tar"])
    ['a-0.tar', 'a-1.tar', 'pipe:cat {b,c}.tar']
    """
    options = StorageOptions.of(storage_options)
    if isinstance(urls, (str, os.PathLike)):
        return expanded(urls, options)
    return [url for item in urls for url in _urls_of(item, options)]


def expand_source(source: object, max_urls: int = MAX_URLS) -> list[Any]:
    """The urls of a string, a path or any iterable, at most `max_urls` of an iterable."""
    if isinstance(source, (str, os.PathLike)):
        return expanded(source)
    if isinstance(source, Iterable):
        return [_plain(item) for item in islice(source, int(max_urls))]
    raise ValueError(f"cannot handle {type(source)} as a list of shards; give a string, a path or a list")


class SimpleShardList(TorchIterable):
    """Shards in the order given, or shuffled the same way every time when there is a seed.

    Args:
        urls: the shards, as for a WebDataset
        seed: shuffle with this seed; True draws one
        storage_options: how servers and stores are reached, as for a WebDataset

    >>> list(SimpleShardList(["a.tar", "b.tar"]))
    [{'url': 'a.tar'}, {'url': 'b.tar'}]
    """

    def __init__(
        self, urls: object, seed: int | bool | None = None, *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self.urls = expand_urls(urls, storage_options=storage_options)
        if not self.urls:
            raise EmptyShardListError("the list of shards is empty", hint="check the pattern or the list of urls")
        self.seed = time.time_ns() if seed is True else seed

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Iterator[Shard]:
        urls = self.urls.copy()
        if self.seed is not None and self.seed is not False:
            random.Random(self.seed).shuffle(urls)
        for url in urls:
            yield {"url": url}


class ResampledShards(TorchIterable):
    """Shards drawn at random with replacement, endlessly; every pass draws again.

    With `deterministic=True` a pass is a function of the worker, the pass and the seed alone.

    Args:
        urls: the shards, as for a WebDataset
        nshards: how many to draw in a pass
        seed: the seed of the choice
        worker_seed: a function that gives each worker a seed of its own
        deterministic: draw the same in the same pass of every run
        max_urls: the most urls that are taken of an iterable
        empty_check: whether a list without shards is an error
        storage_options: how servers and stores are reached, as for a WebDataset
    """

    def __init__(  # noqa: PLR0917 - the order is the API's
        self,
        urls: object,
        nshards: int = sys.maxsize,
        seed: int = 0,
        worker_seed: Callable[[], int] | None = None,
        deterministic: bool = False,
        max_urls: int = 1_000_000,
        empty_check: bool = True,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        spec = urls if isinstance(urls, (str, os.PathLike)) else expand_source(urls, max_urls)
        self.urls = expand_urls(spec, storage_options=storage_options)
        if empty_check and not self.urls:
            raise EmptyShardListError("the list of shards is empty (empty_check=True)", hint="check the urls")
        self.nshards = nshards
        self.worker_seed = pytorch_worker_seed if worker_seed is None else worker_seed
        self.deterministic = deterministic
        self.seed = seed
        self.epoch = -1

    def __iter__(self) -> Iterator[Shard]:
        self.epoch = _pass_in_pipeline(self.epoch + 1)
        return self._draw(random.Random(self._pass_seed()))

    def _draw(self, rng: random.Random) -> Iterator[Shard]:
        for _ in range(self.nshards if self.urls else 0):
            yield {"url": self.urls[rng.randrange(len(self.urls))]}

    def _pass_seed(self) -> int:
        chance = () if self.deterministic else (current_pass().seed(),)
        seed = make_seed(self.worker_seed(), self.epoch, self.seed, *chance)
        if settings.show_seed:
            log.warning("ResampledShards seed %s (pass %s)", seed, self.epoch)
        return seed


ResampledShardList = ResampledShards


def resampled_(src: Iterable[Any], n: int = sys.maxsize) -> Iterator[Any]:
    """Read the whole source, then draw from it `n` times at random, with replacement."""
    return _resampled(src, n, random.Random(current_pass().seed()))


def _resampled(src: Iterable[Any], n: int, rng: random.Random) -> Iterator[Any]:
    items = list(src)
    if not items and n > 0:
        raise EmptyShardListError("resampled got nothing to draw from")
    for _ in range(n):
        yield items[rng.randrange(len(items))]


@pipelinefilter
def resampled(data: Iterable[Any], n: int = sys.maxsize) -> Iterator[Any]:
    """Read the whole source, then draw from it `n` times at random, with replacement."""
    return resampled_(data, n)


class ShardShuffle:
    """A stage that puts shards into an order which is a function of seed and pass alone.

    With `bufsize` they are shuffled in a buffer of that size, so that the list may be endless.

    >>> stage = ShardShuffle(seed=1)
    >>> [*stage("abcd")], [*stage("abcd")]
    (['a', 'c', 'b', 'd'], ['c', 'b', 'd', 'a'])
    """

    def __init__(self, seed: object = 0, epoch: int = -1, *, bufsize: int | None = None, drawn: bool = False) -> None:
        self.seed = seed
        self.epoch = epoch
        self.bufsize = bufsize
        self.drawn = drawn
        """Whether the seed was drawn at random: then a state that is loaded brings its own."""

    @property
    def behaviour(self) -> Behaviour:
        """A seed that nobody gave belongs to a position."""
        return Behaviour(keeps=("seed",) if self.drawn else ())

    def set_epoch(self, epoch: int) -> None:
        """The next pass is pass number `epoch`."""
        self.epoch = epoch - 1

    def __call__(self, src: Iterable[Any]) -> Iterator[Any]:
        self.epoch = _pass_in_pipeline(self.epoch + 1)
        rng = random.Random(make_seed("shards", self.seed, self.epoch))
        if self.bufsize is not None:
            return shuffle.function(src, self.bufsize, self.bufsize, rng=rng)  # type: ignore[no-any-return]
        items = list(src)
        rng.shuffle(items)
        return iter(items)


def shard_shuffle(seed: object = 0, epoch: int = -1) -> ShardShuffle:
    """A stage that shuffles the shards, differently in every pass: `epoch + 1`, `epoch + 2`, ..."""
    return ShardShuffle(seed, epoch)


def non_empty(src: Iterable[Any]) -> Iterator[Any]:
    """Pass everything on; an error if there was nothing."""
    empty = True
    for item in src:
        empty = False
        yield item
    if empty:
        raise EmptyDatasetError("pipeline stage received no data at all and this was declared as an error")


def dealt(src: Iterable[Any], number: int, count: int) -> Iterator[Any]:
    """What number `number` of `count` nodes or workers gets, as cards are dealt.

    >>> list(dealt("abcde", 1, 2))
    ['b', 'd']
    """
    return islice(iter(src), number, None, count)


def split_by_node(src: Iterable[Any], group: object = None) -> Iterator[Any]:
    """This node's share of the shards.

    Args:
        group: the group of torch.distributed, if not the default one
    """
    rank, world_size, _, _ = pytorch_worker_info(group=group)
    return dealt(src, rank, world_size)


def split_by_worker(src: Iterable[Any]) -> Iterator[Any]:
    """This worker's share of the shards."""
    _, _, worker, num_workers = pytorch_worker_info()
    return dealt(src, worker, num_workers)


def single_node_only(src: Iterable[Any], group: object = None) -> Iterator[Any]:
    """All shards; an error in a job of several nodes, which needs a nodesplitter.

    Args:
        group: the group of torch.distributed, if not the default one
    """
    _, world_size, _, _ = pytorch_worker_info(group=group)
    if world_size > 1:
        raise ValueError(
            "you need to add an explicit nodesplitter to your input pipeline for multi-node training, "
            "for example WebDataset(..., nodesplitter=wds.split_by_node)"
        )
    return iter(src)


def shardspec(spec: object) -> SimpleShardList | MultiShardSample:
    """The shard list that `spec` names: a YAML specification, or urls."""
    if isinstance(spec, str) and spec.endswith((".yaml", ".yml")):
        return MultiShardSample(spec)
    return SimpleShardList(spec)


def all_urls(urls: object) -> list[str]:
    """All urls, for every worker (a `shard_selection` of version 0.1)."""
    return expand_urls(urls)


def worker_urls(urls: object) -> list[str]:
    """This worker's share of the `urls` (a `shard_selection` of version 0.1)."""
    return list(split_by_worker(expand_urls(urls)))


class ShardList(TorchIterable):
    """The shard list of version 0.1: split by node and worker, then shuffled again in every pass.

    Args:
        urls: the shards, as for a WebDataset
        shuffle: shuffle them
        nodesplitter: gives each node its share
        splitter: gives each worker its share
        length: what `len()` says
        seed: the seed of the order
    """

    def __init__(  # noqa: PLR0917 - the order is the API's
        self,
        urls: object,
        shuffle: bool = False,
        nodesplitter: Callable[..., Iterable[Any]] | bool | None = None,
        splitter: Callable[..., Iterable[Any]] | bool | None = True,
        length: int | None = None,
        seed: object = 0,
    ) -> None:
        self.urls = SimpleShardList(urls).urls
        self.shuffle = shuffle
        self.nodesplitter = split_by_node if nodesplitter is True else nodesplitter or None
        self.splitter = split_by_worker if splitter is True else splitter or None
        self.length = length
        self.order = ShardShuffle(seed)

    def __len__(self) -> int:
        return len(self.urls) if self.length is None else self.length

    def set_epoch(self, epoch: int) -> None:
        """The next pass is pass number `epoch`."""
        self.order.set_epoch(epoch)

    def __iter__(self) -> Iterator[Shard]:
        urls: Iterable[Any] = self.urls
        if callable(self.nodesplitter):
            urls = self.nodesplitter(urls)
        if callable(self.splitter):
            urls = self.splitter(urls)
        if self.shuffle:
            urls = self.order(urls)
        return ({"url": url} for url in urls)


class PytorchShardList(ShardList):
    """The shard list of late versions 0.1; with `epoch_shuffle` all nodes shuffle alike before they split.

    Args:
        urls: the shards, as for a WebDataset
        epoch_shuffle: shuffle them, in another order in every epoch
        shuffle: shuffle them
        split_by_worker: give each worker its share
        split_by_node: give each node its share
        verbose: say which shards they are
        seed: the seed of the order
    """

    def __init__(  # noqa: PLR0917 - the order is the API's
        self,
        urls: object,
        epoch_shuffle: bool = False,
        shuffle: bool = True,
        split_by_worker: bool = True,
        split_by_node: bool = True,
        verbose: bool = False,
        seed: object = 0,
    ) -> None:
        super().__init__(urls, shuffle, split_by_node, split_by_worker, seed=seed)
        self.epoch_shuffle = epoch_shuffle
        self.verbose = verbose

    def __iter__(self) -> Iterator[Shard]:
        if not self.epoch_shuffle:
            return super().__iter__()
        urls: Iterable[Any] = self.order(self.urls)
        for splitter in (self.nodesplitter, self.splitter):
            urls = splitter(urls) if callable(splitter) else urls
        return ({"url": url} for url in urls)


def _pass_in_pipeline(own: int) -> int:
    """The pipeline's number of this pass, which also counts what earlier worker processes read; else our own."""
    context = pass_in_force()
    return own if context is None else context.epoch


def _urls_of(item: object, options: StorageOptions) -> list[str]:
    """The urls of an item of a list: a string, a path or a {"url": url}."""
    return [as_url(item["url"])] if isinstance(item, dict) else expanded_element(as_url(item), options)


def _plain(item: object) -> object:
    return os.fspath(item) if isinstance(item, os.PathLike) else item
