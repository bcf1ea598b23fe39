"""Single samples of an exact dataset, by number, key or slice: as they are stored, and as its stages make them."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

from webdataset.base.reports import Report
from webdataset.errors import SampleError
from webdataset.indices.reading import Samples
from webdataset.tariterators import Sample

from .stages import described, is_per_sample, shuffles

if TYPE_CHECKING:
    from .program import ExactShards

Which: TypeAlias = SupportsIndex | str | slice


class StagedPart(NamedTuple):
    """One dataset of an exact pipeline, and the stages that its samples pass."""

    shards: ExactShards
    stages: list[Any]


class ExactSamples(Sequence[Sample]):
    """The samples of exact datasets as their shards hold them, in the order of the shards, whatever an epoch does.

    Each is read by a range, neighbours together. Threads may share it; a process that gets a copy opens its own files.

    >>> import tempfile, webdataset as wds
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with wds.TarWriter(f"{folder}/a.tar") as sink:
    ...         sizes = [sink.write({"__key__": f"s{i}", "cls": i}) for i in range(10)]
    ...     samples = wds.WebDataset(f"{folder}/a.tar", exact=True).batched(4).samples
    ...     len(samples), samples[-1]["cls"], samples["s3"]["cls"], [sample["__key__"] for sample in samples[4:6]]
    (10, b'9', b'3', ['s4', 's5'])
    """

    def __init__(self, sources: Sequence[ExactShards], *, strict: bool | None = None) -> None:
        self._sources = sources
        self.strict = strict
        self._ends = [int(end) for end in accumulate(source.catalogue.total for source in sources)]
        self._readers: dict[int, Samples] = {}

    def __len__(self) -> int:
        return self._ends[-1]

    def __repr__(self) -> str:
        return f"<{len(self)} samples in {sum(len(source.catalogue) for source in self._sources)} shards>"

    def __getitem__(self, which: Which) -> Any:
        """A sample by number, also from the end, or by key; a list of samples for a slice."""
        samples = [sample for _, sample in self.chosen(which)]
        return samples if isinstance(which, slice) else samples[0]

    def __iter__(self) -> Iterator[Sample]:
        start = 0
        while start < len(self):
            together = self._reader(self._source_of(start)).together
            yield from self[start : start + together]
            start += together

    def __contains__(self, sample: object) -> bool:
        """Whether there is a sample with this key, or this very sample."""
        if not isinstance(sample, str):
            return super().__contains__(sample)
        try:
            self._found(sample)
        except KeyError:
            return False
        return True

    def chosen(self, which: Which) -> list[tuple[int, Sample]]:
        """The samples that are asked for, each with the number of the dataset that it is of."""
        wanted: dict[tuple[int, int], list[int]] = {}
        numbers = self._numbers(which)
        for number in sorted(numbers):
            source = self._source_of(number)
            shard, place = self._sources[source].catalogue.locate(number - self._start(source))
            wanted.setdefault((source, shard), []).append(place)
        found = [
            (source, self._complete(sample, source, shard, place))
            for (source, shard), places in wanted.items()
            for sample, place in zip(self._reader(source).read(shard, places), places, strict=True)
        ]
        return found[::-1] if isinstance(numbers, range) and numbers.step < 0 else found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def _numbers(self, which: Which) -> Sequence[int]:
        if isinstance(which, slice):
            return range(*which.indices(len(self)))
        if isinstance(which, str):
            return [self._found(which)]
        number = operator.index(which)
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of a dataset with {len(self)}")
        return [number % len(self)]

    def _found(self, key: str) -> int:
        for number, source in enumerate(self._sources):
            try:
                return self._start(number) + int(source.catalogue.find(key))
            except KeyError:
                pass
        raise KeyError(key)

    def _source_of(self, number: int) -> int:
        return bisect_right(self._ends, number)

    def _start(self, source: int) -> int:
        return self._ends[source - 1] if source else 0

    def _reader(self, source: int) -> Samples:
        reader = self._readers.get(source)
        return reader or self._readers.setdefault(source, self._sources[source].samples(Report(strict=self.strict)))

    def _complete(self, sample: Sample | None, source: int, shard: int, place: int) -> Sample:
        if sample is None:
            catalogue = self._sources[source].catalogue
            key = catalogue.index(shard).key(place)
            raise SampleError("select_files leaves nothing of this sample", url=catalogue.urls[shard], key=key)
        return sample


def parts_of(stages: Sequence[Any]) -> list[StagedPart]:
    """The datasets of an exact pipeline, one after the other, each with all stages that its samples pass."""
    source, rest = stages[0], list(stages[1:])
    inner = [dataset.pipeline for dataset in getattr(source, "datasets", ())] or [getattr(source, "pipeline", None)]
    if inner[0] is None:
        return [StagedPart(source, rest)]
    return [part._replace(stages=[*part.stages, *rest]) for pipeline in inner for part in parts_of(pipeline)]


def items(stages: Sequence[Any], samples: ExactSamples, which: Which, invoke: Callable[..., Any]) -> Any:
    """What a pipeline makes of a sample, or of each sample of a slice; what is random is as in the first epoch."""
    parts = [part._replace(stages=[stage for stage in part.stages if not shuffles(stage)]) for part in parts_of(stages)]
    for stage in (stage for part in parts for stage in part.stages):
        if not is_per_sample(stage):
            name = described(stage).partition("(")[0]
            raise TypeError(
                f"this dataset has no items by number: its stage {name!r} does not make one of each sample; "
                "dataset.samples has the samples as they are stored"
            )
    made = [_item(parts[number], sample, samples.strict, invoke) for number, sample in samples.chosen(which)]
    return made if isinstance(which, slice) else made[0]


def _item(part: StagedPart, sample: Sample, strict: bool | None, invoke: Callable[..., Any]) -> Any:
    url, key = sample["__url__"], sample["__key__"]
    if part.shards.remainder == "uneven":
        sample = {**sample, "__real__": True}
    with Report(strict=strict).in_force():
        made: Iterable[Any] = iter([sample])
        for stage in part.stages:
            made = iter(invoke(stage, made))
        found = list(made)
    if len(found) != 1:
        what = "leave nothing" if not found else f"make {len(found)} items"
        hint = "dataset.samples has it as it is stored"
        raise SampleError(f"the stages {what} of this sample", url=url, key=key, hint=hint)
    return found[0]
