"""Ray Data: shards as a datasource and a datasink, read and written by this package.

    dataset = wds.read_ray("s3://bucket/train-{000000..000146}.tar", decode="rgb")
    wds.write_ray(dataset, "s3://bucket/out-{}.tar")

A read task has some shards, or, where shards have an index and are fewer than the tasks that Ray wants, a part of one.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice, pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from .base.packages import package
from .base.stages import Stage
from .errors import WebDatasetError
from .filters import decode as decoded
from .filters import map_tuple, rename, select, to_tuple
from .filters.fields import tuple_fields
from .indices.access import SampleReader
from .indices.catalogue import Catalogue
from .indices.files import find_index
from .pipeline import DataPipeline
from .shardlists import SimpleShardList, expand_urls
from .storage.urls import local_path
from .tariterators import tarfile_samples
from .writer import TarWriter
from .writing.overwriting import Overwriting
from .writing.shardsets import EarlierShards

if TYPE_CHECKING:
    import numpy as np

    from .indices.catalogue import Shard

BLOCK_BYTES = 32 << 20
"""How much a block has, about; Ray asks for 1 to 128 MB."""
BLOCK_ROWS = 10_000
AT_ONCE = 256
"""Samples of a part of a shard that are read together."""


class ShardPart(NamedTuple):
    """What is read of one shard: all of it, or the samples from `start` to before `stop`."""

    url: str
    start: int = 0
    stop: int | None = None
    rows: int | None = None
    size: int | None = None
    shard: Shard | None = None


def read_ray(
    urls: object,
    *,
    decode: object = None,
    fields: Mapping[str, str] | None = None,
    override_num_blocks: int | None = None,
    **options: object,
) -> Any:
    """Return a Ray Dataset with a row for each sample: `__key__`, `__url__`, and a column for each field, of bytes.

    `urls` are the shards, as for a WebDataset. `decode` are arguments of `decode()`, such as "rgb", or a list of them;
    what is neither bytes, text, a number nor an array, such as JSON, is kept as the Python object that it is. `fields`
    renames: {"image": "jpg;png"} keeps only such columns. `override_num_blocks` is the number of read tasks;
    it and other `options` go to `ray.data.read_datasource`.
    """
    ray_data = _ray_data("to read with Ray Data")
    stages: list[Any] = []
    if decode is not None:
        stages.append(decoded(*(decode if isinstance(decode, (list, tuple)) else [decode])))
    if fields is not None:
        names: dict[str, Any] = {"__key__": "__key__", "__url__": "__url__", **fields}
        stages.append(rename(**names, keep=False))
    source = _classes()[0](expand_urls(urls), partial(_through, stages))
    return ray_data.read_datasource(source, override_num_blocks=override_num_blocks, **options)


def dataset_to_ray(dataset: DataPipeline, *, override_num_blocks: int | None = None, **options: object) -> Any:
    """Return a Ray Dataset with what a pipeline gives; each read task runs it over some of the shards.

    Samples become rows with a column for each field; so do tuples, whose columns have the names that `to_tuple` was
    given, or `item_0`, `item_1`, ... after stages that make other tuples of them.
    """
    ray_data = _ray_data("for to_ray()")
    first = dataset.pipeline[0] if dataset.pipeline else None
    if not isinstance(first, SimpleShardList):
        hint = "an exact or resampled dataset is read with webdataset.read_ray(urls)"
        raise TypeError(f"to_ray() needs a dataset over a list of shards that ends; {hint}")
    urls = [shard["url"] for shard in first]
    source = _classes()[0](urls, partial(_over_shards, dataset, _tuple_names(dataset.pipeline)), split=False)
    return ray_data.read_datasource(source, override_num_blocks=override_num_blocks, **options)


def write_ray(
    dataset: Any,
    output: str,
    *,
    min_rows_per_shard: int | None = None,
    overwrite: bool | str = "warn",
    **options: Any,
) -> None:
    """Write `dataset`, a Ray Dataset, as shards; `{}` in the `output` is the number of the shard.

    Each row is a sample; without a column `__key__` it is named after the shard and its number. Columns are named as
    fields are, by extension, and encoded accordingly: bytes as they are, `cls` as text, `npy` as an array. A shard
    appears when it is complete; an empty one is not written, so numbers have gaps. `min_rows_per_shard` joins small
    blocks. `overwrite` says what to do about shards of an earlier set that the new one has not replaced: "warn" warns
    in the end, True removes them then, False raises an ExistingShardsError at once if there is any shard. Other
    `options` go to Ray's `write_datasink`.
    """
    if "{}" not in output:
        raise ValueError(f"write {{}} where the number of each shard goes, got {output!r}")
    _ray_data("to write with Ray Data")
    shards = Overwriting(output.replace("{}", "{shard:06d}"), 0, overwrite, sole=True)
    sink = _classes()[1](output, min_rows_per_shard, overwrite is True)
    dataset.write_datasink(sink, **options)
    for number in sink.written:
        shards.completed(number)
    shards.ended()


def shard_parts(urls: list[str], wanted: int, *, split: bool = True) -> list[list[ShardPart]]:
    """Deal shards to about as many tasks as wanted, parts of shards if there are fewer and they have indices.

    >>> [len(parts) for parts in shard_parts(["a.tar", "b.tar", "c.tar"], 2)]
    [2, 1]
    """
    if len(urls) >= wanted or not split:
        size = -(-len(urls) // max(min(wanted, len(urls)), 1))
        return [[ShardPart(url) for url in urls[i : i + size]] for i in range(0, len(urls), size)]
    each = -(-wanted // len(urls))
    return [[part] for url in urls for part in _split(url, each)]


def _split(url: str, parts: int) -> list[ShardPart]:
    from .indices.catalogue import Shard

    index = find_index(url)
    if index is None or index.samples < 2 or not index.self_contained:
        return [ShardPart(url)]
    count, bounds = index.samples, index.starts
    row = Shard(url, count, int(index.size or bounds[-1]), index.version)
    edges = sorted({count * i // parts for i in range(parts + 1)})
    return [
        ShardPart(url, start, stop, stop - start, int(bounds[stop] - bounds[start]), row)
        for start, stop in pairwise(edges)
    ]


def _through(stages: list[Any], parts: Iterable[ShardPart]) -> Iterator[Any]:
    """Yield the samples of these parts, after these stages."""
    return iter(DataPipeline(partial(_samples, list(parts)), *stages))


def _samples(parts: list[ShardPart]) -> Iterator[Any]:
    for part in parts:
        if part.stop is None:
            yield from tarfile_samples([{"url": part.url}])
            continue
        assert part.shard is not None
        with SampleReader(Catalogue([part.shard])) as samples:
            for first in range(part.start, part.stop, AT_ONCE):
                yield from samples[first : min(first + AT_ONCE, part.stop)]


def _over_shards(dataset: DataPipeline, names: Sequence[str], parts: Iterable[ShardPart]) -> Iterator[Any]:
    """Run a whole pipeline over some of its shards; its tuples get these names."""
    part = copy.copy(dataset)
    part.pipeline = [SimpleShardList([part.url for part in parts]), *dataset.pipeline[1:]]
    for item in part:
        yield dict(zip(names, item, strict=True)) if names and isinstance(item, tuple) else item


def _tuple_names(stages: Iterable[object]) -> list[str]:
    """Return the names of the parts of the tuples that a pipeline gives; none if they are unknown, or one is twice."""
    names: list[str] = []
    for stage in stages:
        known = stage if isinstance(stage, Stage) else None
        if known is not None and known.filter is to_tuple:
            names = [";".join(alternatives) for alternatives in tuple_fields(known.args)]
        elif known is None or not (known.filter in (map_tuple, select) or known.behaviour.kind in _ARRANGING):
            names = []
    return names if len(set(names)) == len(names) else []


_ARRANGING = ("shuffles", "counts", "observes")
"""Kinds of stages that leave items as they are."""


# -- Ray's classes, made when Ray is there -----------------------------------------------------------------


def _ray_data(purpose: str) -> ModuleType:
    package("ray", extra="ray", purpose=purpose)
    return package("ray.data", extra="ray", purpose=purpose)


@cache
def _classes() -> tuple[Any, Any]:
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasink

    # older releases want a schema, too
    more = {field.name: None for field in dataclasses.fields(BlockMetadata) if field.name == "schema"}

    class ShardDatasource(Datasource):  # type: ignore[misc]
        """Shards that Ray Data reads with our reader."""

        def __init__(
            self, urls: list[str], read: Callable[[list[ShardPart]], Iterator[Any]], *, split: bool = True
        ) -> None:
            super().__init__()
            self.urls, self.read, self.split = urls, read, split

        def get_name(self) -> str:
            return "WebDataset"

        def estimate_inmemory_data_size(self) -> int | None:
            sizes = [_local_size(url) for url in self.urls]
            return sum(sizes) or None

        def get_read_tasks(
            self,
            parallelism: int,
            per_task_row_limit: int | None = None,
            data_context: object = None,  # noqa: ARG002 - Ray's
        ) -> list[Any]:
            # a release that does not know limits gives none, and its tasks take none
            limit = {} if per_task_row_limit is None else {"per_task_row_limit": per_task_row_limit}
            tasks = []
            for parts in shard_parts(self.urls, parallelism, split=self.split):
                rows = [part.rows for part in parts]
                known = sum(filter(None, rows)) if None not in rows else None
                size = sum(part.size or _local_size(part.url) for part in parts) or None
                files = tuple({part.url: 0 for part in parts})
                about = BlockMetadata(known, size, input_files=files, exec_stats=None, **more)
                blocks = partial(_blocks, self.read, parts, BlockAccessor.batch_to_arrow_block)
                tasks.append(ReadTask(blocks, about, **limit))
            return tasks

    class ShardDatasink(Datasink):  # type: ignore[misc]
        """Shards that Ray Data writes with our writer."""

        def __init__(self, output: str, rows: int | None = None, overwrite: bool = False) -> None:
            self.output, self.rows, self.overwrite = output, rows, overwrite
            self.written: list[int] = []
            """The numbers of the shards, when all are complete."""

        @property
        def min_rows_per_write(self) -> int | None:
            return self.rows

        num_rows_per_write = min_rows_per_write  # the name in older releases

        def write(self, blocks: Iterable[Any], ctx: Any) -> int | None:
            rows = (row for block in blocks for row in BlockAccessor.for_block(block).iter_rows(False))
            count = _write_rows(rows, self.output, ctx.task_idx, self.overwrite)
            return ctx.task_idx if count else None

        def on_write_complete(self, write_result: Any) -> None:
            self.written = sorted(number for number in write_result.write_returns if number is not None)

    return ShardDatasource, ShardDatasink


def _write_rows(rows: Iterator[Any], output: str, number: int, overwrite: bool) -> int:
    """Write rows as one shard and return how many there were."""
    first = list(islice(rows, 1))
    if not first:
        return 0
    count = 0
    name = f"{number:06d}"
    url = output.replace("{}", name)
    if overwrite:
        EarlierShards(url).remove_indices(0)
    with TarWriter(url) as sink:
        for part in (first, rows):
            for row in part:
                fields = {key: _plain(value) for key, value in dict(row).items() if value is not None}
                sink.write({"__key__": f"{name}-{count:06d}", **fields})
                count += 1
    return count


def _plain(value: object) -> Any:
    """Return a value as fields have it."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def _local_size(url: str) -> int:
    import os

    path = local_path(url)
    return os.path.getsize(path) if path is not None and os.path.isfile(path) else 0


def _blocks(
    read: Callable[[list[ShardPart]], Iterator[Any]], parts: list[ShardPart], make: Callable[[dict[str, Any]], Any]
) -> Iterator[Any]:
    """Yield tables of about the size that Ray wants."""
    rows: list[dict[str, Any]] = []
    size = 0
    for item in read(parts):
        row = _row(item)
        rows.append(row)
        size += sum(map(_size, row.values()))
        if size >= BLOCK_BYTES or len(rows) >= BLOCK_ROWS:
            yield _table(rows, make)
            rows, size = [], 0
    if rows:
        yield _table(rows, make)


def _row(item: object) -> dict[str, Any]:
    """Return what a pipeline gives as a row: a sample's fields, or the parts of a tuple by name or number."""
    if isinstance(item, dict):
        return {name: value for name, value in item.items() if name not in ("__local_path__", "__offset__")}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return dict(zip(item._fields, item, strict=True))
    if isinstance(item, (list, tuple)):
        return {f"item_{number}": value for number, value in enumerate(item)}
    return {"item": item}


def _size(value: object) -> int:
    size = getattr(value, "nbytes", None)
    return size if isinstance(size, int) else len(value) if isinstance(value, (bytes, str)) else 8


def _table(rows: list[dict[str, Any]], make: Callable[[dict[str, Any]], Any]) -> Any:
    """Return rows as a block; fields that only some samples have are null in the others."""
    pyarrow = package("pyarrow", extra="ray", purpose="for blocks of rows")
    names = dict.fromkeys(name for row in rows for name in row)
    return pyarrow.table({name: _column(name, [row.get(name) for row in rows], make) for name in names})


def _column(name: str, values: list[object], make: Callable[[dict[str, object]], Any]) -> object:
    """Return values as a column: of one kind if they are, else as Python objects, which no kind changes."""
    pyarrow = package("pyarrow", extra="ray", purpose="for blocks of rows")
    kinds = {type(value) for value in values if value is not None}
    try:
        if kinds <= _NUMBERS or (len(kinds) == 1 and kinds <= _SIMPLE):
            return pyarrow.array(values)
        if all(hasattr(value, "dtype") for value in values):
            return make({name: _stacked(values)}).column(name)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        pass  # such as numbers that are too large
    try:
        from ray.data.extensions import ArrowPythonObjectArray

        return ArrowPythonObjectArray.from_objects(values)
    except Exception as error:
        hint = "let stages give what can be pickled, such as bytes, numbers, strings, arrays, lists and dicts"
        raise WebDatasetError(
            f"Ray Data cannot hold the field {name!r} of these samples: {error}", hint=hint
        ) from error


_NUMBERS = {int, float}
_SIMPLE = {bytes, str, bool}


def _stacked(values: list[Any]) -> np.ndarray[Any, Any] | list[Any]:
    """Return equal arrays as one; tensors as arrays."""
    import numpy as np

    arrays = [value.numpy() if hasattr(value, "detach") else value for value in values]
    if all(isinstance(value, np.ndarray) for value in arrays) and len({(v.shape, v.dtype.str) for v in arrays}) == 1:
        return np.stack(arrays)
    return arrays
