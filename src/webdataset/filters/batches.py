"""Batches: collect samples and take batches apart again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from webdataset.base.packages import loaded
from webdataset.base.reports import Report, current_report
from webdataset.base.stages import Stage, pipelinefilter
from webdataset.errors import SampleError
from webdataset.handlers import Handler, close, handled, reraise_exception

from .stacking import Unfinished, finished_in_batch, stacked_arrays, stacked_tensors, stacked_unfinished

if TYPE_CHECKING:
    import numpy as np

Collation = Callable[[list[Any]], Any]


class BatchError(SampleError, AssertionError):
    """Samples that do not form a batch, or a batch whose columns differ in length.

    It is an AssertionError as well, because that is what programs for older versions catch.
    """


def default_collation_fn(
    samples: Sequence[Any], combine_tensors: bool = True, combine_scalars: bool = True
) -> tuple[Any, ...] | dict[Any, Any]:
    """Turn a list of tuples (or dicts) into a tuple (or dict) of columns.

    Numbers and arrays become arrays, tensors become tensors, everything else a list.

    Args:
        samples: the samples of a batch
        combine_tensors: stack arrays and tensors
        combine_scalars: make arrays of numbers

    >>> default_collation_fn([("a", 1), ("b", 2)])
    (['a', 'b'], array([1, 2]))
    """
    if not samples:
        raise BatchError("a batch needs at least one sample")
    first = samples[0]
    if isinstance(first, Mapping):
        return _collated_dicts(samples, first, combine_tensors, combine_scalars)
    if not isinstance(first, (tuple, list)):
        hint = "collation_fn=None gives batches that are lists, or give a function of your own"
        raise TypeError(f"only tuples, lists and dicts can be batched, got {type(first).__name__}; {hint}")
    if any(len(sample) != len(first) for sample in samples):
        lengths = sorted({len(sample) for sample in samples})
        raise BatchError(f"the samples of a batch have different numbers of values: {lengths}", hint=_OWN)
    columns = zip(*samples, strict=True)
    options = combine_tensors, combine_scalars
    return tuple([_column(n, list(column), samples, options) for n, column in enumerate(columns)])


def _split_batched(stage: Stage) -> list[Stage]:
    """The two halves of `batched`: collecting, and making the batch."""
    size, collation_fn, partial, handler = stage.options().values()
    lists = listed(size, partial)
    return [lists] if collation_fn is None else [lists, _collated(collation_fn, handler=handler)]


@pipelinefilter(kind="collects", split=_split_batched, eager=True)
def batched(
    data: Iterable[Any],
    batchsize: int = 20,
    collation_fn: Collation | None = default_collation_fn,
    partial: bool = True,
    *,
    handler: Handler = reraise_exception,
) -> Iterator[Any]:
    """Collect samples into batches; the last one may be smaller unless `partial=False`.

    Args:
        batchsize: samples in a batch
        collation_fn: a function that makes a batch of a list of samples; None leaves the list
        partial: whether the last batch may be smaller; if not, its samples are left out, of exact epochs unless
            `remainder="pad"` fills it up
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> list(batched(2)([("a", 1), ("b", 2), ("c", 3)]))
    [(['a', 'b'], array([1, 2])), (['c'], array([3]))]
    """
    lists = _lists(iter(data), _checked_size(batchsize), partial)
    return lists if collation_fn is None else _collated.function(lists, collation_fn, handler=handler)


@pipelinefilter(kind="each")
def _collated(
    data: Iterable[list[Any]], collation_fn: Collation = default_collation_fn, *, handler: Handler = reraise_exception
) -> Iterator[Any]:
    """Make batches of lists of samples: the second half of `batched`, after `listed`.

    >>> list(_collated()([[("a", 1), ("b", 2)]]))
    [(['a', 'b'], array([1, 2]))]
    """
    return handled(data, _counting(collation_fn, current_report()), handler, stage="batch")


@pipelinefilter(kind="expands")
def unbatched(data: Iterable[Any], *, handler: Handler = reraise_exception) -> Iterator[Any]:
    """Turn batches back into samples.

    Args:
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> list(unbatched()([([1, 2], ["a", "b"])]))
    [(1, 'a'), (2, 'b')]
    """
    return _each(handled(data, _samples_of, handler))


@pipelinefilter(kind="collects", eager=True)
def listed(data: Iterable[Any], batchsize: int, partial: bool = True) -> Iterator[list[Any]]:
    """Collect samples into lists, as they are.

    Args:
        batchsize: samples in a list
        partial: whether the last list may be shorter

    >>> list(listed(2)("abc")), list(listed(2, partial=False)("abc"))
    ([['a', 'b'], ['c']], [['a', 'b']])
    """
    return _lists(iter(data), _checked_size(batchsize), partial)


@pipelinefilter(kind="expands")
def unlisted(data: Iterable[list[Any]]) -> Iterator[Any]:
    """Turn lists back into samples.

    >>> list(unlisted()([["a", "b"], ["c"]]))
    ['a', 'b', 'c']
    """
    return _each(handled(data, _checked_list))


def combine_values(b: Sequence[Any], combine_tensors: bool = True, combine_scalars: bool = True) -> Any:
    """One column of a batch: an array of numbers, stacked arrays or tensors, or a list.

    >>> combine_values([1, 2.5])
    array([1. , 2.5])
    """
    if any(isinstance(value, Unfinished) for value in b):
        if _alike(b):
            return stacked_unfinished(b)
        b = [value.finished() if isinstance(value, Unfinished) else value for value in b]
    first = b[0]
    if isinstance(first, (int, float)):
        return _numbers(list(b)) if combine_scalars else list(b)
    if not combine_tensors or not hasattr(first, "shape"):
        return list(b)
    torch = loaded("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        return _stacked(b, torch.Tensor, stacked_tensors)
    import numpy

    return _stacked(b, numpy.ndarray, stacked_arrays) if isinstance(first, numpy.ndarray) else list(b)


def tuple2dict(l: Sequence[Any]) -> dict[int, Any]:  # noqa: E741 - the parameter's public name
    """A tuple as a dict by position.

    >>> tuple2dict(("a", "b"))
    {0: 'a', 1: 'b'}
    """
    return dict(enumerate(l))


def dict2tuple(d: Mapping[int, Any]) -> tuple[Any, ...]:
    """A dict by position as a tuple.

    >>> dict2tuple({0: "a", 1: "b"})
    ('a', 'b')
    """
    return tuple(d[n] for n in range(len(d)))


_OWN = "give batched a collation_fn= of your own, or make the samples alike first"
_PAD = "make them alike first, or pad them: collation_fn=wds.pad()"


def _lists(source: Iterator[Any], size: int, partial: bool) -> Iterator[list[Any]]:
    try:
        while len(samples := list(islice(source, size))) == size:
            yield samples
        if samples and partial:
            yield samples
    finally:
        close(source)


def _checked_size(batchsize: int) -> int:
    size = int(batchsize)
    if size < 1 or size != batchsize:
        raise ValueError(f"batchsize must be a whole number of at least 1, got {batchsize}")
    return size


def _counting(collation_fn: Collation, report: Report) -> Collation:
    """A batch that fails is all its samples lost, not one."""

    def collated(samples: list[Any]) -> Any:
        try:
            return collation_fn(samples)
        except Exception:
            report.count("samples_dropped", len(samples) - 1)
            raise

    return collated


def _collated_dicts(
    samples: Sequence[Mapping[Any, Any]], first: Mapping[Any, Any], combine_tensors: bool, combine_scalars: bool
) -> dict[Any, Any]:
    for sample in samples:
        if sample.keys() != first.keys():
            differing = sorted(str(name) for name in sample.keys() ^ first.keys())
            raise BatchError(
                f"the samples of a batch have different fields: not all have {', '.join(differing)}",
                key=sample.get("__key__"),
                hint="select or rename the fields first, or give batched a collation_fn= of your own",
            )
    options = combine_tensors, combine_scalars
    return {name: _column(name, [sample[name] for sample in samples], samples, options) for name in first}


def check_shapes(samples: Sequence[Any]) -> None:
    """Raise the BatchError that names what differs, if arrays of these samples have different shapes."""
    try:
        if isinstance(samples[0], (tuple, list, Mapping)):
            default_collation_fn(samples)
        else:
            combine_values(samples)
    except BatchError as error:
        error.hint = error.hint.replace("collation_fn", "collate_fn")  # the loader's word for it
        raise


def _column(name: object, column: list[Any], samples: Sequence[Any], options: tuple[bool, bool]) -> Any:
    try:
        return combine_values(column, *options)
    except BatchError as error:
        raise BatchError(f"{error.message} in {name_of_column(name)}{keys_of(samples)}", hint=error.hint) from None


def name_of_column(name: object) -> str:
    """A column of a batch, as messages call it: a field by its name, a value of tuples by its place.

    >>> name_of_column("jpg"), name_of_column(0)
    ("the field 'jpg'", 'value 0 of the tuples')
    """
    return f"value {name} of the tuples" if isinstance(name, int) else f"the field {name!r}"


def keys_of(samples: Sequence[Any]) -> str:
    """The keys of the samples of a batch, as far as they have any, for messages."""
    keys = [str(sample["__key__"]) for sample in samples if isinstance(sample, Mapping) and "__key__" in sample]
    return f" of {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}" if keys else ""


def left_for_batch(stage: object, stages: Sequence[Any]) -> Any:
    """The stage, or in the place of a decoder of images one that leaves it to `batched` to finish them."""
    return finished_in_batch(stage, stages, _stacks)


def _stacks(stage: Stage) -> bool:
    """Whether a stage makes batches by the default collation."""
    return stage.filter is batched and stage.options()["collation_fn"] is default_collation_fn


def _alike(column: Sequence[Any]) -> bool:
    first = column[0]
    return all(
        isinstance(value, Unfinished) and value.shape == first.shape and value.dtype == first.dtype for value in column
    )


def _numbers(column: list[Any]) -> np.ndarray[Any, Any] | list[Any]:
    import numpy

    kinds = (int, float, numpy.number, numpy.bool_)
    return numpy.array(column) if all(isinstance(value, kinds) for value in column) else column


def _stacked(column: Sequence[Any], kind: Any, stack: Callable[[list[Any]], Any]) -> Any:
    shape = column[0].shape
    for value in column:
        if not isinstance(value, kind):
            names = sorted({type(each).__name__ for each in column})
            raise BatchError(f"a column of a batch mixes {' and '.join(names)}", hint=_OWN)
        if value.shape != shape:
            shapes = list(dict.fromkeys(str(tuple(each.shape)) for each in column if isinstance(each, kind)))
            shown = ", ".join(shapes[:5]) + (", ..." if len(shapes) > 5 else "")
            raise BatchError(f"arrays of different shapes do not make a batch: {shown}", hint=_PAD)
    return stack(list(column))


def _each(lists: Iterator[Iterable[Any]]) -> Iterator[Any]:
    try:
        for samples in lists:
            yield from samples
    finally:
        close(lists)


def _samples_of(batch: object) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        count = _common_length(batch.values())
        return ({name: column[n] for name, column in batch.items()} for n in range(count))
    if not isinstance(batch, (tuple, list)):
        raise ValueError(f"only batches that are tuples, lists or dicts can be unbatched, got {type(batch).__name__}")
    count = _common_length(batch)
    return (tuple([column[n] for column in batch]) for n in range(count))


def _common_length(columns: Iterable[Any]) -> int:
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        what = f"columns of different lengths {sorted(lengths)}" if lengths else "no columns"
        raise BatchError(f"a batch with {what} cannot be unbatched")
    return lengths.pop()


def _checked_list(samples: object) -> list[Any]:
    if not isinstance(samples, list):
        raise BatchError(f"unlisted takes lists of samples, got {type(samples).__name__}")
    return samples
