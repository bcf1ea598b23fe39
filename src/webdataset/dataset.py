"""WebDataset: a list of shards becomes a dataset of samples.

    urls -> this node's -> this worker's -> in this epoch's order -> opened -> samples -> at least one

Programs written for older versions construct it their way: version 1's arguments (`extensions=`, `decoder=`,
`transforms=`, `shuffle=`) and 0.1's (`length=`, `shard_selection=`) become stages in version1.py.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, SupportsIndex, TypedDict, Unpack, overload

from . import shardlists, tariterators
from .base.behaviour import Behaviour, behaves
from .base.settings import settings
from .base.stages import PipelineStage, Stage, argument_names, suggesting
from .base.workers import pytorch_worker_info
from .cache import FileCache
from .errors import EmptyDatasetError
from .filters import reraise_exception
from .fluid import FluidInterface, FluidWrapper, Processor
from .handlers import Handler, checked_handler, ignore_and_continue, ignore_and_stop, warn_and_continue, warn_and_stop
from .loader import WebLoader
from .pipeline import DataPipeline, add_length_method
from .storage.options import StorageOptions
from .storage.urls import with_home
from .tar.large import LargeMembers
from .tariterators import SplitName, base_plus_ext, group_by_keys, tar_file_expander, tarfile_samples
from .version1 import Version1

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker brings it; typing's own has defaults since Python 3.13

    from webdataset.exact.program import ExactShards

    from .exact.plans import Plan
    from .filters import Collation, Names
    from .indices.catalogue import Catalogue

    Item = TypeVar("Item", default=Any)
    Items = TypeVar("Items")
    New = TypeVar("New")
    First = TypeVar("First")
    Second = TypeVar("Second")

    class _TupleOptions(TypedDict, total=False):
        """The options of `to_tuple`."""

        handler: Handler
        missing_is_error: bool
        none_is_error: bool | None

    class _Itself(Protocol[Items]):
        """A WebDataset, but not one of a subclass: there, methods give the subclass, whatever the items become."""

        def _same(self) -> Callable[[WebDataset[Items]], None]: ...

else:
    from typing import TypeVar

    Item = TypeVar("Item")

__all__ = [
    "Composable",
    "Dataset",
    "FluidInterface",
    "FluidWrapper",
    "Processor",
    "Shorthands",
    "WebDataset",
    "WebLoader",
    "check_empty",
    "group_by_keys",
    "ignore_and_continue",
    "ignore_and_stop",
    "reraise_exception",
    "tar_file_expander",
    "warn_and_continue",
    "warn_and_stop",
]

Composable = DataPipeline
Shorthands = FluidInterface

DEFAULT_SHARD_BUFFER = 100
Splitter = Callable[..., Iterable[Any]]


class WebDataset(DataPipeline, FluidInterface, Generic[Item]):
    """The samples of a list of shards, read one after the other.

    `urls` is a path or url with braces (`train-{000000..000146}.tar`), a folder ending in `/`, or an iterable of
    those. Each sample is a dict of `__key__`, `__url__` and one bytes value per file; `decode()` makes values of them.

    - `shardshuffle=n`: a new shard order every epoch, a function of the seed and the epoch alone
    - `resampled=True`: an endless stream of shards drawn with replacement; `repeat=True`: passes without end
    - `detshuffle=True`: the shard order has seed 0 if no `seed` is given, so that every run has the same
    - `nodesplitter`, `workersplitter`: functions that pick this node's and this worker's shards, or None for all of
      them; `empty_check=False`: a worker without samples is no error
    - `select_files`: a function of a member's name that says whether to read it; `rename_files`: one that returns
      another name; `keys`: one that splits the name into key and field, instead of `wds.base_plus_ext`
    - `mode`: of a local folder, what becomes of its shards after use, as `wds.DirectoryShardList` says: "resample",
      "unlink" or "keep"
    - `handler`: what to do with a shard that fails; `strict=True`: no skips, and warnings are errors
    - `exact=True`: every sample once per epoch on any number of ranks and workers, a known length, samples by number;
      with `seed`, `shuffle_bytes`, `block_bytes`, `lanes`, `remainder` ("pad", "drop", "uneven"), `rank`, `world_size`
    - `large`: a `webdataset.tar.large.LargeMembers`; members that are too large for memory then come in pieces
    - `concatenated=True`: shards may be several archives, put together with `cat`; else reading ends at an end marker
    - `cache_dir`: keep shards on this machine, `cache_size` bytes at most, under the names that `url_to_name(url)`
      returns; `verbose=True` logs it; `proxy`: the web proxy to go through, if not the environment's
    - `storage_options`: how the servers and stores of this dataset are reached, if not as the environment says: a dict
      with some of `endpoint`, `profile`, `region`, `anonymous`, `token`, `headers`, `patience`, `retries`, `timeout`,
      `cafile`, `proxy`, `connections`
    - `older`: arguments of the first versions (`extensions`, `decoder`, `transforms`, `shuffle`, `length` and so on)

    >>> with_labels = WebDataset("tests/data/digits.tar").decode("l8").to_tuple("png", "cls")
    """

    def __init__(  # noqa: PLR0917 - the order of the arguments is given by the programs that use it
        self,
        urls: Any,
        handler: Handler = reraise_exception,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: int | bool | None = None,
        cache_size: int = -1,
        cache_dir: str | None = None,
        url_to_name: Callable[[str], str] | None = None,
        detshuffle: bool = False,
        nodesplitter: Splitter | None = shardlists.single_node_only,
        workersplitter: Splitter | None = shardlists.split_by_worker,
        select_files: Callable[[str], Any] | None = None,
        rename_files: Callable[[str], str] | None = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
        *,
        strict: bool | None = None,
        keys: SplitName = base_plus_ext,
        proxy: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        large: LargeMembers | None = None,
        concatenated: bool = False,
        exact: bool = False,
        shuffle_bytes: int | str = "256MiB",
        block_bytes: int | str = "1MiB",
        lanes: int = 64,
        remainder: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **older: Any,
    ) -> None:
        another_url = isinstance(handler, (str, os.PathLike))
        checked_handler(handler, cure=f"pass a list: {type(self).__name__}([{urls!r}, {handler!r}])" * another_url)
        super().__init__()
        if not isinstance(exact, bool):
            raise ValueError(f"exact is True or False, got {exact!r}")
        version1 = Version1.from_arguments(older, argument_names(WebDataset.__init__)[1:])
        handler = version1.handler(handler)
        self.strict = strict
        given = StorageOptions.of(storage_options)
        options = given.for_list(urls) if _is_list(urls) else given
        reached = options.changed(proxy=proxy)
        copies = _cache(cache_dir, cache_size, url_to_name, verbose, handler, reached)
        if exact:
            self.seed = _exact_seed(seed, large=large, resampled=resampled)
            plan = (self.seed, shuffle_bytes, block_bytes, lanes)
            reading: dict[str, Any] = {"select_files": select_files, "rename_files": rename_files}
            reading |= {"keys": keys, "storage_options": reached, "concatenated": concatenated}
            share = {"remainder": remainder, "rank": rank, "world_size": world_size}
            self.pipeline = [_exact_source(urls, plan, copies, handler=handler, **reading, **share)]
        else:
            self.seed = _seed(seed, detshuffle)
            splitters = [nodesplitter, version1.worker_splitter(workersplitter)]
            buffer = _shard_buffer(version1.shard_shuffle(shardshuffle))
            if resampled and shardshuffle:
                warnings.warn("resampled=True draws shards at random: shardshuffle has no effect with it", stacklevel=2)
            source = _source(urls, resampled=resampled, mode=mode, seed=seed, options=given)
            opener = version1.opener(_already_open if copies else None)
            via: dict[str, Any] = {"proxy": None, "options": None} if copies else {"proxy": proxy, "options": options}
            via |= {"large": large, "concatenated": concatenated}
            reader = _Reader(handler, select_files, rename_files, keys, opener, **via)
            chosen = [*splitters, *self._shard_order(buffer, detshuffle, seed)]
            endless = resampled or isinstance(source, shardlists.DirectoryShardList)
            shards = [source] if endless else [source, *filter(None, chosen)]
            self.pipeline = [*shards, *copies, reader, *([_checked] if empty_check else [])]
        self._add_version1(version1, repeat)

    def _shard_order(self, buffer: int, detshuffle: bool, seed: int | None) -> list[Any]:
        drawn = seed is None and settings.seed is None and not detshuffle
        return [shardlists.ShardShuffle(self.seed, bufsize=buffer, drawn=drawn)] if buffer > 0 else []

    def _add_version1(self, version1: Version1, repeat: bool) -> None:
        """Add the stages and lengths that the first versions' arguments ask for."""
        self.pipeline.extend(version1.stages())
        version1.apply_lengths(self, repeat)
        if self.exact:
            add_length_method(self)

    @property
    def catalogue(self) -> Catalogue:
        """The shards of an exact dataset, with the number of samples in each and their indices."""
        return self._exact().catalogue

    def _exact(self) -> ExactShards:
        if self.exact:
            source: ExactShards = self.pipeline[0]
            return source
        raise TypeError(f"a streamed {type(self).__name__!r} object has no catalogue: WebDataset(..., exact=True) has")

    @suggesting(method=True)
    def plan(self, *, ranks: int | None = None, workers: int = 1, epoch: int = 0) -> Plan:
        """What an epoch of this exact dataset will be, without reading data: see `webdataset.plan`.

        Args:
            ranks: how many ranks there are; those of this program, if not given
            workers: worker processes of each rank
            epoch: the number of the epoch
        """
        from .exact.plans import plan_of

        return plan_of(self, ranks=ranks, workers=workers, epoch=epoch)

    def to_ray(self, **options: Any) -> Any:
        """Return a Ray Dataset with what this dataset gives; each read task has some of the shards.

        Samples become rows with a column for each field; tuples have columns with the names that `to_tuple` was given,
        or `item_0`, `item_1`, ... The `options` go to `ray.data.read_datasource`.
        """
        from .raydata import dataset_to_ray

        return dataset_to_ray(self, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    if TYPE_CHECKING:  # what the items are, as far as the methods tell: `WebDataset[tuple[Any, Any]]`

        def _same(self) -> Callable[[Self], None]: ...

        def __iter__(self) -> Iterator[Item]: ...

        @overload
        def __getitem__(self, which: slice) -> list[Item]: ...
        @overload
        def __getitem__(self, which: SupportsIndex | str) -> Item: ...
        def __getitem__(self, which: Any) -> Any: ...

        @overload
        def to_tuple(
            self: _Itself[Any], a: Names, b: Names, /, **options: Unpack[_TupleOptions]
        ) -> WebDataset[tuple[Any, Any]]: ...
        @overload
        def to_tuple(
            self: _Itself[Any], a: Names, b: Names, c: Names, /, **options: Unpack[_TupleOptions]
        ) -> WebDataset[tuple[Any, Any, Any]]: ...
        @overload
        def to_tuple(
            self: _Itself[Any], a: Names, b: Names, c: Names, d: Names, /, **options: Unpack[_TupleOptions]
        ) -> WebDataset[tuple[Any, Any, Any, Any]]: ...
        @overload
        def to_tuple(
            self: _Itself[Any], a: Names, b: Names, c: Names, d: Names, e: Names, /, **options: Unpack[_TupleOptions]
        ) -> WebDataset[tuple[Any, Any, Any, Any, Any]]: ...
        @overload
        def to_tuple(
            self: _Itself[Any], *args: Names, **options: Unpack[_TupleOptions]
        ) -> WebDataset[tuple[Any, ...]]: ...
        @overload
        def to_tuple(self, *args: Names, **options: Unpack[_TupleOptions]) -> Self: ...
        def to_tuple(self, *args: object, **kw: object) -> Any: ...

        @overload
        def map(self: _Itself[Items], f: Callable[[Items], New | None], handler: Handler = ...) -> WebDataset[New]: ...
        @overload
        def map(self, f: Callable[[Any], Any], handler: Handler = ...) -> Self: ...
        def map(self, *args: object, **kw: object) -> Any: ...

        @overload
        def map_tuple(
            self: _Itself[tuple[Any, Any]],
            f: Callable[[Any], First],
            g: Callable[[Any], Second],
            /,
            *,
            handler: Handler = ...,
        ) -> WebDataset[tuple[First, Second]]: ...
        @overload
        def map_tuple(
            self: _Itself[tuple[Any, Second]], f: Callable[[Any], First], g: None = ..., /, *, handler: Handler = ...
        ) -> WebDataset[tuple[First, Second]]: ...
        @overload
        def map_tuple(
            self: _Itself[tuple[First, Any]], f: None, g: Callable[[Any], Second], /, *, handler: Handler = ...
        ) -> WebDataset[tuple[First, Second]]: ...
        @overload
        def map_tuple(self, *args: Callable[[Any], Any] | None, handler: Handler = ...) -> Self: ...
        def map_tuple(self, *args: object, **kw: object) -> Any: ...

        @overload
        def batched(
            self: _Itself[Items],
            batchsize: int = ...,
            *,
            collation_fn: None,
            partial: bool = ...,
            handler: Handler = ...,
        ) -> WebDataset[list[Items]]: ...
        @overload
        def batched(
            self: _Itself[Items],
            batchsize: int = ...,
            *,
            collation_fn: Callable[[list[Items]], New],
            partial: bool = ...,
            handler: Handler = ...,
        ) -> WebDataset[New]: ...
        @overload
        def batched(
            self,
            batchsize: int = ...,
            collation_fn: Collation | None = ...,
            partial: bool = ...,
            *,
            handler: Handler = ...,
        ) -> Self: ...
        def batched(self, *args: object, **kw: object) -> Any: ...

        @overload
        def listed(self: _Itself[Items], batchsize: int, partial: bool = ...) -> WebDataset[list[Items]]: ...
        @overload
        def listed(self, batchsize: int, partial: bool = ...) -> Self: ...
        def listed(self, *args: object, **kw: object) -> Any: ...

        @overload
        def unlisted(self: _Itself[list[New]]) -> WebDataset[New]: ...
        @overload
        def unlisted(self) -> Self: ...
        def unlisted(self) -> Any: ...

        @overload
        def then(
            self: _Itself[Any], f: Callable[..., Iterable[New]], *args: object, **kw: object
        ) -> WebDataset[New]: ...
        @overload
        def then(self, f: Callable[..., Iterable[Any]], *args: object, **kw: object) -> Self: ...
        def then(self, *args: object, **kw: object) -> Any: ...

        @overload
        def pipe(
            self: _Itself[Any], f: Callable[..., Iterable[New]], *args: object, **kw: object
        ) -> WebDataset[New]: ...
        @overload
        def pipe(self, f: Callable[..., Iterable[Any]], *args: object, **kw: object) -> Self: ...
        def pipe(self, *args: object, **kw: object) -> Any: ...

        @overload
        def compose(self: _Itself[Any], *args: object) -> WebDataset[Any]: ...
        @overload
        def compose(self, *args: object) -> Self: ...
        def compose(self, *args: object) -> Any: ...


class Dataset(WebDataset):
    """WebDataset, with the same arguments, under its name in the first 0.1 versions."""


def check_empty(source: Iterable[Any]) -> Iterator[Any]:
    """Pass everything on; if there is nothing, say why that may be."""
    samples = iter(source)
    for first in samples:
        yield first
        yield from samples
        return
    _, _, worker, workers = pytorch_worker_info()
    cause = f"worker {worker} of {workers} got no shard" if workers > 1 else "the shards hold no sample"
    raise EmptyDatasetError(
        f"the dataset is empty: {cause}, or all were skipped",
        hint="use no more workers than shards, or empty_check=False if an empty part is right",
    )


def __getattr__(name: str) -> Any:
    if name == "IterableDataset":  # programs for version 0.1 import torch's class from here
        from torch.utils.data import IterableDataset

        return IterableDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@behaves("observes", skip_on_resume=True)  # a pass that goes on may have no samples left
def _checked(source: Iterator[Any]) -> Iterator[Any]:
    """check_empty as it is now: programs replace it in this module."""
    return check_empty(source)


class _Reader(PipelineStage):
    """Shards to samples."""

    def __init__(
        self,
        handler: Handler,
        select_files: Callable[[str], Any] | None,
        rename_files: Callable[[str], str] | None,
        keys: SplitName,
        opener: Callable[..., Iterator[Any]] | None,
        *,
        proxy: str | None,
        options: StorageOptions | None,
        large: LargeMembers | None,
        concatenated: bool,
    ) -> None:
        self.options = options
        self.large = large
        self.concatenated = concatenated
        self.handler = handler
        self.select_files = select_files
        self.rename_files = rename_files
        self.keys = keys
        self.opener = opener
        self.proxy = proxy

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        if self.opener is None and tariterators.tarfile_to_samples is not _our_tarfile_to_samples:
            return iter(self._replaced()(src))
        return tarfile_samples(
            src,
            self.handler,
            self.select_files,
            self.rename_files,
            keys=self.keys,
            opener=self.opener,
            proxy=self.proxy,
            storage_options=self.options,
            large=self.large,
            concatenated=self.concatenated,
        )

    @property
    def behaviour(self) -> Behaviour:
        """It reads shards, as long as it is our own reader that does."""
        if self.opener is not None or tariterators.tarfile_to_samples is _our_tarfile_to_samples:
            return Behaviour("reads")
        return Behaviour("holds", "a program has replaced tarfile_to_samples")

    def by_number(self) -> dict[str, Any] | None:
        """The options with which reading a shard's samples by their numbers gives the same; None if it may not."""
        if self.opener is not None or self.large is not None or self.behaviour.kind != "reads":
            return None
        chosen = {"select_files": self.select_files, "rename_files": self.rename_files}
        options = StorageOptions.of(self.options).changed(proxy=self.proxy)
        return {"keys": self.keys, "storage_options": options, "concatenated": self.concatenated, **chosen}

    def _replaced(self) -> Stage:
        """The stage that a program has put in the place of ours, with the options that were given."""
        chosen: dict[str, Any] = {"select_files": self.select_files, "rename_files": self.rename_files}
        chosen["concatenated"] = self.concatenated or None
        options = {name: given for name, given in chosen.items() if given is not None}
        return tariterators.tarfile_to_samples(handler=self.handler, **options)


_our_tarfile_to_samples = tariterators.tarfile_to_samples


def _already_open(src: Iterable[Any], handler: Handler) -> Iterator[Any]:  # noqa: ARG001 - stands in for url_opener
    """The shards as the stage before has opened them."""
    return iter(src)


def _cache(  # noqa: PLR0917 - all of them are the dataset's own
    cache_dir: str | os.PathLike[str] | None,
    cache_size: int,
    url_to_name: Callable[[str], str] | None,
    verbose: bool,
    handler: Handler,
    options: StorageOptions,
) -> list[FileCache]:
    """The stage that opens shards through files on this machine, if wanted; programs find it there and replace it."""
    folder = cache_dir or settings.cache_dir
    if not folder:
        return []
    folder = with_home(os.fspath(folder))
    size = cache_size if cache_size > 0 else settings.cache_size
    naming: dict[str, Any] = {} if url_to_name is None else {"url_to_name": url_to_name}
    naming["storage_options"] = options
    opening: dict[str, Any] = {"handler": handler, "streaming": True}
    return [FileCache(folder, cache_size=int(size), verbose=verbose, **opening, **naming)]


def _seed(seed: int | None, detshuffle: bool) -> int:
    """The given seed, WDS_SEED, or one drawn now, so that all workers of this dataset have the same."""
    if seed is not None:
        return seed
    if settings.seed is not None:
        return settings.seed
    return 0 if detshuffle else random.SystemRandom().getrandbits(31)


def _shard_buffer(shardshuffle: int | bool | None) -> int:
    if shardshuffle is True:
        warnings.warn(f"shardshuffle=True means shardshuffle={DEFAULT_SHARD_BUFFER}; say how many", stacklevel=3)
        return DEFAULT_SHARD_BUFFER
    return int(shardshuffle or 0)


def _is_list(urls: object) -> bool:
    """Whether this names a file with urls in it, rather than shards."""
    return isinstance(urls, str) and urls.partition("?")[0].endswith((".yaml", ".yml", ".json"))


def _source(urls: Any, *, resampled: bool, mode: str | None, seed: int | None, options: StorageOptions) -> Any:
    """The stage that lists the shards."""
    if isinstance(urls, os.PathLike):
        urls = os.fspath(urls) + ("/" if os.path.isdir(urls) else "")
    if isinstance(urls, str):
        urls = with_home(urls)
    if isinstance(urls, dict) or (isinstance(urls, str) and urls.endswith((".yaml", ".yml"))):
        return shardlists.MultiShardSample(urls, storage_options=options)
    if isinstance(urls, str) and urls.endswith(".json"):
        raise ValueError(f"{urls!r} is no shard: give the shards' urls, with braces or as a list")
    if isinstance(urls, str) and urls.endswith("/") and os.path.isdir(urls):
        if mode is not None:
            return shardlists.DirectoryShardList(urls, mode=mode)
        urls = shards_in(urls)
    if _lists_shards_itself(urls):
        return urls
    if not isinstance(urls, str):
        urls = [os.fspath(url) for url in urls]
    if resampled:
        drawn: dict[str, Any] = {"seed": seed or 0, "deterministic": seed is not None}
        return shardlists.ResampledShards(urls, storage_options=options, **drawn)
    return shardlists.SimpleShardList(urls, storage_options=options)


def _exact_seed(seed: int | None, *, large: object, resampled: bool) -> int:
    """The seed of exact epochs, after a look at what does not go with them."""
    if large is not None:
        raise ValueError("large= is for streamed datasets: it does not go with exact=True")
    if resampled:
        raise ValueError("resampled=True draws shards with replacement: it does not go with exact=True")
    # all ranks must agree on it, so it is not drawn at random
    return seed if seed is not None else settings.seed or 0


def _exact_source(
    urls: object, order: tuple[Any, int | str, int | str, int], copies: list[FileCache], **options: Any
) -> ExactShards:
    """The source of exact epochs, which only datasets that have them import."""
    from .exact.program import exact_shards

    return exact_shards(_listed(urls), order=order, local_copy=copies[0].get_file if copies else None, **options)


def _listed(urls: object) -> Any:
    """The shards of an exact dataset as a string, a list or a catalogue."""
    if isinstance(urls, os.PathLike):
        urls = os.fspath(urls)
    if isinstance(urls, str):
        urls = with_home(urls)
        return shards_in(urls) if os.path.isdir(urls) else urls
    if isinstance(urls, shardlists.SimpleShardList):
        return list(urls.urls)
    if isinstance(urls, dict) or (_lists_shards_itself(urls) and not hasattr(urls, "counts")):
        raise TypeError(f"exact epochs need a list of shards, not a {type(urls).__name__}")
    return urls


def shards_in(folder: str) -> list[str]:
    """The shards of a folder, sorted by name."""
    endings = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4")
    names = sorted(name for name in os.listdir(folder) if name.endswith(endings) and not name.startswith("."))
    if not names:
        raise EmptyDatasetError(f"the folder {folder!r} has no shards", hint="shards are files named *.tar or *.tar.gz")
    return [os.path.join(folder, name) for name in names]


def _lists_shards_itself(urls: object) -> bool:
    """A dataset of `{"url": ...}`, rather than a list of urls or a generator of them."""
    return (hasattr(urls, "__iter__") and not isinstance(urls, (str, list, tuple, set, frozenset, range))) and (
        isinstance(urls, PipelineStage) or not hasattr(urls, "__next__")
    )
