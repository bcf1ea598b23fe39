"""Order: shuffle, sample and cut a stream."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from webdataset.base.behaviour import Behaviour
from webdataset.base.context import current_pass
from webdataset.base.stages import PipelineStage, pipelinefilter
from webdataset.handlers import Handler, close

from .closing import closing
from .mistakes import OptionError
from .seeds import seed_of


@pipelinefilter(kind="shuffles", eager=True)
def shuffle(  # noqa: PLR0917 - the signature is given by the API
    data: Iterable[Any],
    bufsize: int = 1000,
    initial: int = 100,
    rng: Any = None,
    seed: Any = None,
    handler: Handler | None = None,  # noqa: ARG001 - given by old programs; a shuffle has no errors of its own
    *,
    max_bytes: int | None = None,
) -> Iterator[Any]:
    """Shuffle through a buffer of `bufsize` samples, starting when `initial` are there.

    The same seed gives the same order on every pass; without one, every pass and worker has its own.
    `max_bytes` bounds what the buffer may hold, whatever the samples' sizes.

    Args:
        bufsize: samples in the buffer
        initial: how many must be there before the first comes out
        rng: a `random.Random` to draw from, instead of `seed`
        seed: the seed of the order
        handler: accepted, and without effect: a shuffle has no errors
        max_bytes: the most bytes in the buffer

    >>> list(shuffle(5, initial=2, seed=3)(range(10)))
    [0, 3, 2, 4, 8, 6, 1, 7, 9, 5]
    """
    if rng is not None and seed is not None:
        raise OptionError("shuffle takes rng= or seed=, not both")
    if max_bytes is not None and max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")
    random_bits = _random_bits(_generator(seed) if rng is None else rng)
    source = iter(data)
    initial = min(initial, bufsize)
    if max_bytes is not None:
        return _shuffled_in_bytes(source, bufsize, initial, random_bits, max_bytes)
    return _shuffled(source, bufsize, initial, random_bits)


class detshuffle(PipelineStage):  # noqa: N801 - named like the filter it is
    """A shuffle whose order depends on seed and epoch only; every run is the next epoch.

    Args:
        bufsize: samples in the buffer
        initial: how many must be there before the first comes out
        seed: the seed of the order
        epoch: the epoch before the first

    >>> stage = detshuffle(10, seed=1)
    >>> list(stage.run(range(5))), list(stage.run(range(5)))
    ([1, 0, 4, 3, 2], [0, 4, 3, 1, 2])
    """

    behaviour = Behaviour("shuffles", keeps=("epoch",))

    def __init__(self, bufsize: int = 1000, initial: int = 100, seed: int = 0, epoch: int = -1) -> None:
        self.bufsize = bufsize
        self.initial = initial
        self.seed = seed
        self.epoch = epoch

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        self.epoch += 1
        rng = random.Random(self.seed + self.epoch)
        shuffled: Iterator[Any] = shuffle.function(src, self.bufsize, self.initial, rng)
        return shuffled


class Sampled(PipelineStage):
    """What `rsample` is in exact epochs: by a random number of each sample, whatever came before it."""

    def __init__(self, p: float, seed: Any = None) -> None:
        self.p = _checked_probability(p)
        self.seed = 0 if seed is None else seed

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        epoch, below = current_pass().epoch, int(self.p * (1 << 63))
        return (sample for sample in src if seed_of(sample, epoch, self.seed) < below)


@pipelinefilter(kind="counts", stepwise=Sampled, eager=True)
def rsample(data: Iterable[Any], p: float = 0.5, *, seed: Any = None) -> Iterator[Any]:
    """Keep each sample with probability `p`.

    Args:
        p: the probability
        seed: the seed of the choice

    >>> list(rsample(1.0)("abc")), list(rsample(0.0)("abc"))
    (['a', 'b', 'c'], [])
    """
    p = _checked_probability(p)
    source, drawn = iter(data), _generator(seed).random
    return closing(source, (sample for sample in source if drawn() < p))


@pipelinefilter(kind="counts")
def slice(data: Iterable[Any], *args: int | None) -> Iterator[Any]:
    """A part of the stream, with the arguments of itertools.islice.

    Args:
        *args: `stop`, or `start, stop`, or `start, stop, step`

    >>> list(slice(2, 8, 2)(range(10)))
    [2, 4, 6]
    """
    source = iter(data)
    return closing(source, islice(source, *args))


def pick(buf: list[Any], rng: Any) -> Any:
    """Take a random item out of a list, moving the last one into its place."""
    return _pick(buf, _random_bits(rng))


def size_in_bytes(value: Any) -> int:
    """About how much memory a sample's data takes.

    >>> size_in_bytes({"__key__": "a", "jpg": bytes(1000)})
    1001
    """
    if isinstance(value, (bytes, str, bytearray)):
        return len(value)
    if isinstance(value, (dict, list, tuple)):
        size = 0
        for part in value.values() if isinstance(value, dict) else value:
            size += len(part) if isinstance(part, (bytes, str)) else size_in_bytes(part)
        return size
    nbytes = getattr(value, "nbytes", None)  # memoryviews, arrays, tensors
    if isinstance(nbytes, int):
        return nbytes
    if hasattr(value, "getbands"):  # a Pillow image
        return int(value.width * value.height * len(value.getbands()))
    return sys.getsizeof(value)


def shuffled_from(
    source: Iterator[Any], bufsize: int, initial: int, rng: random.Random, buffer: list[Any]
) -> Iterator[Any]:
    """A shuffle that goes on with what its buffer holds; after each item the buffer is as it is then.

    >>> buffer = []
    >>> first = next(shuffled_from(iter(range(10)), 5, 2, random.Random(3), buffer))
    >>> first, buffer
    (0, [1])
    """
    return _shuffled(source, bufsize, min(initial, bufsize), rng.getrandbits, buffer)


def _shuffled(
    source: Iterator[Any],
    bufsize: int,
    initial: int,
    random_bits: Callable[[int], int],
    buffer: list[Any] | None = None,
) -> Iterator[Any]:
    # a shuffle may be resumed at the beginning of this loop: with the buffer full but for one, the loop does as
    # `_exchanged` does
    buffer = [] if buffer is None else buffer
    try:
        for sample in source:
            buffer.append(sample)
            if len(buffer) >= bufsize:
                yield _pick(buffer, random_bits)
                yield from _exchanged(source, buffer, random_bits)
                break
            buffer.extend(islice(source, 1))
            if len(buffer) >= initial:
                yield _pick(buffer, random_bits)
        while buffer:
            yield _pick(buffer, random_bits)
    finally:
        close(source)


def _exchanged(source: Iterator[Any], buffer: list[Any], random_bits: Callable[[int], int]) -> Iterator[Any]:
    """The long run: as append and `_pick`, but the list neither grows nor shrinks for each sample."""
    full = len(buffer)
    bits = (full + 1).bit_length()
    for sample in source:
        while (chosen := random_bits(bits)) > full:
            pass
        if chosen == full:
            yield sample
        else:
            taken = buffer[chosen]
            buffer[chosen] = sample
            yield taken


def _shuffled_in_bytes(
    source: Iterator[Any], bufsize: int, initial: int, random_bits: Callable[[int], int], max_bytes: int
) -> Iterator[Any]:
    """As `_shuffled`, but full at `max_bytes` too; the buffer exceeds that by one sample at most."""
    buffer: list[tuple[int, Any]] = []
    held = 0
    try:
        for sample in source:
            held += _put(buffer, sample)
            if len(buffer) < bufsize and held < max_bytes:
                held += sum(_put(buffer, second) for second in islice(source, 1))
            while buffer and (len(buffer) >= initial or held > max_bytes):
                size, taken = _pick(buffer, random_bits)
                held -= size
                yield taken
                if held <= max_bytes:
                    break
        while buffer:
            yield _pick(buffer, random_bits)[1]
    finally:
        close(source)


def _put(buffer: list[tuple[int, Any]], sample: object) -> int:
    size = size_in_bytes(sample)
    buffer.append((size, sample))
    return size


def _pick(buffer: list[Any], random_bits: Callable[[int], int]) -> Any:
    bits = len(buffer).bit_length()
    while (chosen := random_bits(bits)) >= len(buffer):
        pass
    last = buffer.pop()
    if chosen == len(buffer):
        return last
    taken = buffer[chosen]
    buffer[chosen] = last
    return taken


def _checked_probability(p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"p is a probability between 0 and 1, got {p}")
    return p


def _generator(seed: int | float | str | bytes | bytearray | None) -> random.Random:
    """Without a seed, one of the pass: every pass and worker has its own, and a resumed pass has it again."""
    return random.Random(current_pass().seed() if seed is None else seed)


def _random_bits(rng: Any) -> Callable[[int], int]:
    """`random_bits(n)`: a random number of n bits. Those too large are drawn again, as random.randrange does,
    at a fraction of its time: so the order for a seed is the one that earlier versions gave."""
    random_bits: Callable[[int], int] | None = getattr(rng, "getrandbits", None)
    if random_bits is not None:
        return random_bits
    return lambda bits: int(rng.random() * (1 << bits))  # NumPy's generators
