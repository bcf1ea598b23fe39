"""Apply Python functions to samples, in this process or in several.

>>> samples = [{"__key__": "a", "cls": b"1"}, {"__key__": "b", "cls": b"2"}]
>>> def only_b(sample):
...     return sample if sample["cls"] == 2 else None
>>> list(map_samples(lambda: only_b)(samples))
[{'__key__': 'b', 'cls': b'2'}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from webdataset.base.reports import Report, current_report
from webdataset.base.stages import pipelinefilter
from webdataset.errors import SampleError, WebDatasetError
from webdataset.handlers import Handler, ask, close, handled, placed, reraise_exception
from webdataset.tools.parallel import call, process_pool, submitted

from .lazy import LazySample, field_decoder

Sample = dict[str, Any]
Function = Callable[[LazySample], Any]
Pack = Callable[[list[Sample]], list[Any]]
Convert = Callable[[LazySample, Mapping[str, Any]], Sample]

BATCH_SAMPLES = 256
BATCH_BYTES = 4 << 20


@pipelinefilter
def map_samples(
    data: Iterable[Sample],
    make: Callable[[], Function],
    *,
    decode: str = "rgb",
    processes: int = 0,
    ordered: bool = True,
    handler: Handler = reraise_exception,
    pack: Callable[[], Pack] | None = None,
) -> Iterator[Sample]:
    """Apply the function that `make()` returns to every sample; it returns a dict, a list of dicts, or None to drop it.

    Fields are decoded when the function accesses them, and keep their bytes if it does not change them. `processes=N`
    uses N processes, each of which calls `make`, and `pack` for a function that is applied to lists of results, so that
    these processes do some of the output's work.
    """
    if processes > 1:
        start = partial(_BatchMapper, make, decode, pack)
        make()  # so that an error in the code shows once, not in every process
        return _in_processes(data, start, processes, ordered, handler=handler, report=current_report())
    return flat(handled(data, applied(make(), decode), handler))


@pipelinefilter
def through_stages(
    data: Iterable[Sample],
    stages: Sequence[Callable[[Iterable[LazySample]], Iterable[Any]]],
    *,
    decode: str = "rgb",
    handler: Handler = reraise_exception,
) -> Iterator[Sample]:
    """Send samples through stages, functions from iterator to iterator, and encode the results."""
    decode_field = field_decoder(decode)
    values: Iterable[Any] = (LazySample(sample, decode_field) for sample in data)
    for stage in stages:
        values = stage(values)
    return handled(values, _encoded, handler)


def _encoded(result: object) -> Sample:
    if not isinstance(result, Mapping) or "__key__" not in result:
        hint = 'a sample is a dict with a "__key__"'
        raise SampleError(f"the pipeline yields {type(result).__name__}, not samples", hint=hint)
    return LazySample({}).encoded(result)


def applied(
    function: Function, decode: str, convert: Convert = LazySample.encoded
) -> Callable[[Sample], Sample | list[Sample] | None]:
    """Wrap a function of decoded samples as one of undecoded samples; `convert` encodes its results."""
    decode_field = field_decoder(decode)

    def apply(sample: Sample) -> Sample | list[Sample] | None:
        lazy = LazySample(sample, decode_field)
        try:
            result = function(lazy)
        except WebDatasetError:
            raise
        except Exception as error:
            raise SampleError(f"{type(error).__name__}: {error}") from error
        if result is None:
            return None
        return convert(lazy, lazy) if result is lazy else _results(lazy, result, convert)

    return apply


def as_values(_: LazySample, result: Mapping[str, Any]) -> Sample:
    """Return a result as it is: decoded where the function accessed it, bytes elsewhere."""
    return dict(dict.items(result) if isinstance(result, dict) else result)


def _results(lazy: LazySample, result: object, convert: Convert) -> Sample | list[Sample]:
    key = lazy["__key__"]
    if isinstance(result, Mapping):
        return _keyed(convert(lazy, result), key)
    if isinstance(result, (str, bytes)) or not hasattr(result, "__iter__"):
        raise SampleError(
            f"the result is {type(result).__name__}, not a sample",
            hint="return a dict, a list of dicts or None; statements such as _[...] = ... change the sample itself",
        )
    items = list(result)
    if wrong := [item for item in items if item is not None and not isinstance(item, Mapping)]:
        raise SampleError(
            f"the result holds {type(wrong[0]).__name__}, not only samples", hint="return a list of dicts"
        )
    results = [_keyed(convert(lazy, item), f"{key}/{n:06d}") for n, item in enumerate(items) if item is not None]
    keys = [sample["__key__"] for sample in results]
    if len(set(keys)) < len(keys):
        raise SampleError("several samples of one result have the same key", hint='give each its own "__key__"')
    return results


def _keyed(sample: Sample, key: str) -> Sample:
    return sample if "__key__" in sample else {"__key__": key, **sample}


def flat(results: Iterator[Sample | list[Sample]]) -> Iterator[Sample]:
    """Flatten samples and lists of samples."""
    try:
        for result in results:
            if isinstance(result, dict):
                yield result
            else:
                yield from result
    finally:
        close(results)


# -- processes ---------------------------------------------------------------------------------------


def _in_processes(
    data: Iterable[Sample],
    start: Callable[[], _BatchMapper],
    processes: int,
    ordered: bool,
    *,
    handler: Handler,
    report: Report,
) -> Iterator[Sample]:
    source = iter(data)
    try:
        with process_pool(processes, start) as pool:
            for batch, future in submitted(pool, call, batches(source), workers=processes, ordered=ordered):
                for made in future.result():
                    if isinstance(made, list):
                        yield from made
                    elif not ask(handler, placed(made.error, batch[made.number]), report, "samples_dropped"):
                        return
    finally:
        close(source)


def batches(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Make lists of samples for another process; an error is raised after the samples before it."""
    batch: list[Sample] = []
    size, failure = 0, None
    try:
        for sample in samples:
            batch.append(sample)
            for value in sample.values():
                size += len(value)
            if size > BATCH_BYTES or len(batch) >= BATCH_SAMPLES:
                yield batch
                batch, size = [], 0
    except Exception as exn:
        failure = exn
    if batch:
        yield batch
    if failure is not None:
        raise failure


class _Failure(NamedTuple):
    """An error, and the number of its sample in the batch."""

    number: int
    error: Exception


class _BatchMapper:
    """Maps batches, in a worker process."""

    def __init__(self, make: Callable[[], Function], decode: str, pack: Callable[[], Pack] | None) -> None:
        self.apply = applied(make(), decode)
        self.pack = pack() if pack is not None else list

    def __call__(self, batch: list[Sample]) -> list[list[Any] | _Failure]:
        """Return the results, in lists between failures."""
        made: list[list[Any] | _Failure] = []
        results: list[Sample] = []
        for number, sample in enumerate(batch):
            try:
                result = self.apply(sample)
            except Exception as error:
                # not every exception can be pickled
                known = error if isinstance(error, WebDatasetError) else SampleError(f"{type(error).__name__}: {error}")
                made += [self.pack(results), _Failure(number, known)]
                results = []
            else:
                results += result if isinstance(result, list) else [] if result is None else [result]
        return [*made, self.pack(results)]
