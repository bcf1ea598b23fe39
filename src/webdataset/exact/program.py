"""Exact epochs: a pipeline over indexed shards, run step by step by a plan.

A step is what one rank takes for one batch (or, in a pipeline without batches, for one sample). Every stage is
applied to the samples of each step by itself: so the number of steps is known, a step can be made by any worker, and
a number says where a run stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.mixing import Mixture
from webdataset.base.pool import ordered_map
from webdataset.base.positions import Position
from webdataset.base.reports import Report
from webdataset.base.stages import PipelineStage, start
from webdataset.base.states import about_shards
from webdataset.base.units import number_of_bytes
from webdataset.base.workers import pytorch_worker_info
from webdataset.epochs.buckets import BucketShare
from webdataset.epochs.mixed import Mixed, Mixing, MixturePart
from webdataset.epochs.order import Order, OrderSettings
from webdataset.epochs.share import Cut, Share
from webdataset.errors import EmptyDatasetError
from webdataset.handlers import Handler, checked_handler, close, reraise_exception
from webdataset.indices.making import catalogue_of
from webdataset.indices.reading import Samples
from webdataset.indices.wholeshards import WholeShards
from webdataset.storage.options import StorageOptions
from webdataset.storage.urls import is_local
from webdataset.tariterators import SplitName, base_plus_ext

from .lengths import Lengths
from .positions import InEpoch, StepItems, at_step
from .run import EpochRun
from .stages import Batching, batches_of, bucketing_of, described, kept_stages

if TYPE_CHECKING:
    from webdataset.indices.catalogue import Catalogue

GROUP = 16
"""Samples that are one step in a pipeline without batches."""
MOST_REPEATS = 1 << 20
"""How often a mixture reads a dataset in an epoch, at most."""


class ExactShards(PipelineStage):
    """The source of an exact pipeline: indexed shards, and how an epoch orders their samples."""

    exact = True

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        settings: OrderSettings,
        remainder: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        handler: Handler = reraise_exception,
        keys: SplitName = base_plus_ext,
        select_files: Callable[[str], Any] | None = None,
        rename_files: Callable[[str], str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        local_copy: Callable[[str], str] | None = None,
        whole: WholeShards | None = None,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("give rank= and world_size=, or neither")
        self.catalogue = catalogue
        self.settings = settings.checked()
        self.remainder = remainder and Cut(remainder=remainder).checked().remainder
        self.handler = checked_handler(handler)
        self._given = None if rank is None or world_size is None else (rank, world_size)
        self._reading: dict[str, Any] = {
            "keys": keys,
            "select_files": select_files,
            "rename_files": rename_files,
            "storage_options": StorageOptions.of(storage_options),
            "local_copy": local_copy,
            "whole": whole or WholeShards(storage_options),
        }
        if not catalogue.total:
            raise EmptyDatasetError(
                "the shards hold no sample" if len(catalogue) else "no shards were given", hint="wl ls SHARD lists them"
            )

    def rank_and_world(self) -> tuple[int, int]:
        """Which rank this is, of how many: as given, or as the process says."""
        return self._given or pytorch_worker_info()[:2]

    def part(self, repeats: int = 1) -> MixturePart:
        """These shards as part of an epoch."""
        lanes = self.settings.lanes if self.settings.shuffle_bytes else 1
        return MixturePart(self.catalogue.total, lanes, self._order, repeats)

    def samples(self, report: Report) -> Samples:
        """A reader of these shards' samples by number."""
        return Samples(self.catalogue, report=report, **self._reading)

    @property
    def has_local_shards(self) -> bool:
        """Whether the shards are files of this machine."""
        return self._reading["local_copy"] is not None or all(is_local(url) for url in self.catalogue.urls[:1])

    @property
    def connections(self) -> int | None:
        """How many parts of its shards may be requested at a time, if an option limits that."""
        found: int | None = self._reading["storage_options"].get("connections")
        return found

    def scaled(self, factor: int, lanes: int) -> ExactShards:
        """The same with `lanes` lanes, shuffled in `factor` times the bytes."""
        result, settings = copy.copy(self), self.settings
        if settings.shuffle_bytes:
            result.settings = settings._replace(lanes=lanes, shuffle_bytes=settings.shuffle_bytes * factor)
        return result

    def fits(self, factor: int) -> bool:
        """Whether all samples fit into memory at the same time, with `factor` times the bytes to shuffle in."""
        return int(self.catalogue.planned_sizes.sum()) <= self.settings.shuffle_bytes * factor

    def described(self) -> dict[str, Any]:
        """What must be the same for a saved position to mean the same sample."""
        catalogue = self.catalogue
        about = about_shards(catalogue.urls, int(catalogue.total))
        return {"data": catalogue.fingerprint(), **self.settings._asdict(), "about": about}

    def _order(self, epoch: object, lane_lengths: list[int] | None) -> Order:
        catalogue, settings = self.catalogue, self.settings
        sizes = catalogue.planned_sizes
        return Order(catalogue.counts, sizes, epoch=epoch, settings=settings, lane_lengths=lane_lengths)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with the rank of this one, which a process that is spawned could not tell."""
        return {**self.__dict__, "_given": self.rank_and_world()}


def remainder_of(sources: Iterable[ExactShards]) -> str | None:
    """What the datasets of a pipeline say about samples that do not divide evenly, if any of them does."""
    given = sorted({shards.remainder for shards in sources if shards.remainder is not None})
    if len(given) > 1:
        raise ValueError(f"one epoch has one remainder=, and its datasets have {' and '.join(map(repr, given))}")
    return given[0] if given else None


def exact_shards(
    urls: object,
    *,
    order: tuple[Any, int | str, int | str, int],
    keys: SplitName = base_plus_ext,
    local_copy: Callable[[str], str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    concatenated: bool = False,
    **options: Any,
) -> ExactShards:
    """The source for these urls, with the index of each shard; `order` is seed, shuffle_bytes, block_bytes, lanes."""
    seed, shuffle_bytes, block_bytes, lanes = order
    settings = OrderSettings(seed, number_of_bytes(shuffle_bytes), number_of_bytes(block_bytes), lanes).checked()
    whole = WholeShards(storage_options)
    reading: dict[str, Any] = {"storage_options": storage_options, "concatenated": concatenated}
    catalogue = catalogue_of(urls, keys=keys, local_copy=local_copy or whole.copy_if_whole, **reading)
    whole.options = catalogue.storage_options
    options |= {"keys": keys, "local_copy": local_copy, "storage_options": catalogue.storage_options, "whole": whole}
    return ExactShards(catalogue, settings=settings, **options)


class ExactSource(NamedTuple):
    """One dataset of an exact pipeline: its shards, and its own stages."""

    shards: ExactShards
    stages: list[Any]
    repeats: int = 1


class Program:
    """What an exact pipeline does: the datasets it draws from, and the stages that all samples pass."""

    def __init__(
        self, sources: Sequence[ExactSource], stages: Sequence[Any], mixing: Mixing | None = None, *, group: int = GROUP
    ) -> None:
        first = sources[0].shards
        shuffled = first.settings.shuffle_bytes > 0
        self.mixing = mixing
        self._share: tuple[Any, Share] | None = None  # steps by length take a while to find, and states ask for them
        self.sources = [one._replace(stages=kept_stages(one.stages, shuffled=shuffled)) for one in sources]
        if any(batches_of(source.stages).size > 1 for source in self.sources):
            raise ValueError("datasets are mixed sample by sample: put batched() after the mixture, not before")
        self.stages = kept_stages(stages, shuffled=shuffled)
        self.bucketing, measure, self.stages = bucketing_of(self.stages)
        self.batches = batches_of(self.stages)
        if self.bucketing is not None:
            self._lengths = Lengths(self.sources, self.bucketing.field, measure)
            size = self.bucketing.batchsize
            self.batches = Batching(size, size, False, True)
        whole, remainder = self.batches.whole, remainder_of(source.shards for source in self.sources)
        if whole and remainder == "uneven":
            raise ValueError('remainder="uneven" gives smaller batches at the end: it does not go with partial=False')
        if not self.batches.batches and self.batches.size == 1:
            self.batches = Batching(group, 1, False, False)
        self.cut = Cut(self.batches.size, whole, remainder, self.batches.batches).checked()

    # -- how much --------------------------------------------------------------------------------

    @property
    def has_local_shards(self) -> bool:
        """Whether all shards are files of this machine."""
        return all(source.shards.has_local_shards for source in self.sources)

    @property
    def connections(self) -> int | None:
        """How many parts of shards may be requested at a time, if an option limits that."""
        limits = [source.shards.connections for source in self.sources]
        return min((number for number in limits if number is not None), default=None)

    def epoch(self, number: int) -> Mixed:
        """The order of an epoch."""
        parts = [source.shards.part(source.repeats) for source in self.sources]
        return Mixed(parts, self.mixing, epoch=number) if self.mixing else Mixed.only(parts[0], epoch=number)

    def rest(self, epoch: Mixed, where: InEpoch) -> Share:
        """This rank's part of what is left of an epoch."""
        return self.share(epoch, where.start)

    def share(self, epoch: Mixed, start: int = 0, ranks: tuple[int, int] | None = None) -> Share:
        """This rank's part of an epoch, or that of another: `ranks` is a rank, and of how many."""
        rank, world = ranks or self.sources[0].shards.rank_and_world()
        if self.bucketing is not None:
            key = epoch.epoch, start, rank, world
            if self._share is not None and self._share[0] == key:
                return self._share[1]
            share = BucketShare(
                epoch.total,
                epoch.places,
                bucketing=self.bucketing,
                lengths=partial(self._lengths.at, epoch),
                seed=(self.sources[0].shards.settings.seed, epoch.epoch),
                rank=rank,
                world=world,
                start=start,
                remainder=self.cut.remainder,
            )
            self._share = key, share
            return share
        return Share(epoch.total, epoch.places, rank=rank, world=world, start=start, cut=self.cut)

    def part(self, place: Position) -> tuple[Mixed, Share]:
        """The epoch of a place, and this rank's part of it from there on."""
        epoch = self.epoch(place.epoch)
        return epoch, self.share(epoch, place.where.start)

    @property
    def varies(self) -> bool:
        """Whether epochs have different numbers of items."""
        return self.bucketing is not None

    def length(self, epoch: int = 0) -> int:
        """How many items an epoch has on this rank."""
        return self.items_in(self.share(self.epoch(epoch)))

    def items_in(self, share: Share) -> int:
        """How many items the steps of a share give."""
        each = self.batches
        if each.per_step == 1:
            return share.steps
        if not share.steps:
            return 0
        last = share.span(share.steps - 1)
        return (share.steps - 1) * each.per_step + -(-(last[1] - last[0]) // each.item)

    @property
    def samples_of_an_item(self) -> int:
        """Samples of an item, over all ranks."""
        return self.batches.item * self.sources[0].shards.rank_and_world()[1]

    # -- the items -------------------------------------------------------------------------------

    def steps(
        self,
        place: Position,
        report: Report,
        invoke: Callable[..., Any] = start,
        *,
        worker: int = 0,
        workers: int = 1,
        threads: int = 0,
    ) -> Iterator[tuple[Position, list[Any]]]:
        """The steps of a worker from a place on, each with the items it gives, all of them."""
        run = EpochRun(
            self, place, report, worker=worker, workers=workers, ahead=bool(threads) or not self.has_local_shards
        )
        work, steps = run.work(invoke), run.steps()
        done: Iterator[Any] = (
            ordered_map(steps, work, threads=threads, ahead=2 * threads) if threads else map(work, steps)
        )
        try:
            for step, items, counts in done:
                if counts:
                    report.add(counts)
                yield at_step(place, step), items
        finally:
            close(done)
            close(steps)
            run.close()

    def items(self, place: Position, report: Report, *args: Any, **kw: Any) -> StepItems:
        """What a worker gives from a place on, item by item."""
        return StepItems(self.steps(place, report, *args, **kw), place, self.batches.per_step)

    def position(self, place: Position) -> int:
        """The position of the epoch up to which every rank has taken its samples."""
        epoch = self.epoch(place.epoch)
        where: InEpoch = place.where
        share = self.share(epoch, where.start)
        turns = share.span(where.step)[0] if where.step < share.steps else share.count
        if where.even:
            turns += where.skip * self.batches.item
        return min(where.start + turns * share.world, epoch.total)

    def scaled(self, factor: int) -> Program:
        """The same for `factor` feeds: with `factor` times the lanes, shuffled in `factor` times the bytes.

        Where all is in memory, more lanes would only mean smaller blocks, and more to read between them.
        """
        result, shards = copy.copy(self), [source.shards for source in self.sources]
        lanes = shards[0].settings.lanes
        lanes = -(-lanes // factor) * factor if all(one.fits(factor) for one in shards) else lanes * factor
        result.sources = [source._replace(shards=source.shards.scaled(factor, lanes)) for source in self.sources]
        result._share = None
        return result

    def described(self) -> dict[str, Any]:
        """What must be the same for a saved state to fit."""
        return {
            "sources": [source.shards.described() | {"repeats": source.repeats} for source in self.sources],
            "bucketing": None if self.bucketing is None else dict(self.bucketing._replace(batchsize=0)._asdict()),
            "mixing": None if self.mixing is None else dict(self.mixing._asdict()),
            "stages": [described(stage) for source in self.sources for stage in source.stages]
            + [described(stage) for stage in self.stages],
        }


def program_of(stages: Sequence[Any], *, group: int = GROUP) -> Program | None:
    """What a pipeline of these stages does, if all of its data come from exact datasets.

    `group` is how many samples are a step where there are no batches.
    """
    if not stages:
        return None
    source = stages[0]
    if isinstance(source, ExactShards):
        return Program([ExactSource(source, [])], stages[1:], group=group)
    inner = getattr(source, "pipeline", None)
    if inner is not None:
        if source.nsamples > 0 or source.repetitions != 1:
            raise ValueError("with_epoch() and repeat() of an exact dataset come after its last stage, not before")
        return program_of([*inner, *stages[1:]], group=group)
    if isinstance(source, Mixture):
        return _mixture(source, stages[1:], group)
    return None


def _mixture(mix: Mixture, stages: Sequence[Any], group: int) -> Program:
    sources = []
    datasets: Sequence[Any] = mix.datasets
    for dataset in datasets:
        inner = getattr(dataset, "pipeline", None) or [None]
        if not isinstance(inner[0], ExactShards):
            raise ValueError("exact epochs mix datasets, not mixtures: give all of them to one RandomMix")
        if dataset.nsamples > 0 or dataset.repetitions > MOST_REPEATS:
            raise ValueError(
                "a mixture reads its datasets once or repeat(n) times: give it samples= for another length"
            )
        sources.append(ExactSource(inner[0], list(inner[1:]), dataset.repetitions))
    mixing = Mixing(mix.weights, mix.longest, mix.samples, mix.seed or 0)
    return Program(sources, stages, mixing, group=group)
