"""Seeds: random numbers for transforms that are the same whenever, and wherever, a sample comes again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from webdataset.base.context import PassContext, current_pass
from webdataset.base.packages import loaded
from webdataset.base.stages import pipelinefilter
from webdataset.base.workers import make_seed
from webdataset.errors import SampleError
from webdataset.handlers import handled


@pipelinefilter(kind="each")
def seeded(data: Iterable[dict[str, Any]], seed: int = 0) -> Iterator[dict[str, Any]]:
    """Give every sample a `__seed__`: 63 bits from the seed, the epoch, the name of the shard and the key.

    It does not depend on the worker or the order, and is another in every epoch.

    Args:
        seed: the seed of all samples

    >>> [sample] = seeded(7)([{"__key__": "a", "__url__": "data/train-0.tar"}])
    >>> sample["__seed__"]
    8064476832449826415
    """
    epoch = current_pass().epoch
    return handled(data, lambda sample: {**sample, "__seed__": seed_of(sample, epoch, seed)})


def seed_of(sample: dict[str, Any], epoch: int, seed: int = 0) -> int:
    """The seed of a sample in an epoch."""
    if "__key__" not in sample:
        raise SampleError("a sample without a key has no seed", hint="seeds come before to_tuple() and batched()")
    shard = str(sample.get("__url__", "")).partition("?")[0].rpartition("/")[2]
    return make_seed(seed, epoch, shard, sample["__key__"], bits=63)


def repeatable(function: Callable[[Any], Any], seed: int = 0) -> Repeatable:
    """A transform of samples, for `map`, that draws the same random numbers whenever a sample comes again in an epoch.

    For the call, the global generators of `random`, numpy and torch, as far as they were imported before, are seeded
    from the sample; afterwards they are as they were. Calls in several threads wait for each other, because they share
    these generators; other threads that use them meanwhile draw from the sample's numbers. Transforms for thread
    workers are faster with a generator of their own: `random.Random(sample["__seed__"])`, after `seeded()`.

    Args:
        function: a function of the sample
        seed: the seed of all samples

    >>> import random
    >>> from webdataset.filters import map
    >>> jitter = map(repeatable(lambda sample: {**sample, "x": random.random()}))
    >>> samples = [{"__key__": "a"}, {"__key__": "b"}]
    >>> list(jitter(samples)) == list(jitter(samples))
    True
    """
    return Repeatable(function, seed)


class Repeatable:
    """A function with the random numbers of each sample; it pickles if the function does."""

    def __init__(self, function: Callable[[Any], Any], seed: int = 0, epoch: int | None = None) -> None:
        self.function = function
        self.seed = seed
        self.epoch = epoch
        # the name by which states tell functions apart
        self.__qualname__ = f"repeatable({getattr(function, '__qualname__', type(function).__qualname__)}, {seed})"

    def in_pass(self, context: PassContext) -> Repeatable:
        """The function for one pass: numbers are others in every epoch."""
        return Repeatable(self.function, self.seed, context.epoch)

    def __call__(self, sample: dict[str, Any]) -> Any:
        with drawing_from(self._seed(sample)):
            return self.function(sample)

    def _seed(self, sample: dict[str, Any]) -> int:
        if self.epoch is not None:
            return seed_of(sample, self.epoch, self.seed)
        if "__seed__" not in sample:
            hint = "use it in map(), or after seeded()"
            raise SampleError("repeatable() does not know the epoch here", key=sample.get("__key__"), hint=hint)
        return make_seed(self.seed, sample["__seed__"], bits=63)


_generators = threading.RLock()
"""Whoever seeds the global generators has them alone."""


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Seed the global generators of random, numpy and torch, as far as they are imported, and put them back after it.

    >>> import random
    >>> with drawing_from(1):
    ...     first = random.random()
    >>> with drawing_from(1):
    ...     first == random.random()
    True
    """
    with _generators:
        restored = [seeding(module, seed) for name, seeding in _SEEDING.items() if (module := loaded(name))]
        try:
            yield
        finally:
            for restore in restored:
                restore()


def _seed_random(random: ModuleType, seed: int) -> Callable[[], Any]:
    state = random.getstate()
    random.seed(seed)
    return lambda: random.setstate(state)


def _seed_numpy(numpy: ModuleType, seed: int) -> Callable[[], Any]:
    state = numpy.random.get_state()  # imports numpy.random, if that is not yet done
    numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32, 1])  # other numbers than those of random
    return lambda: numpy.random.set_state(state)


def _seed_torch(torch: ModuleType, seed: int) -> Callable[[], Any]:
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    return lambda: torch.default_generator.set_state(state)


_SEEDING: dict[str, Callable[[Any, int], Callable[[], Any]]] = {
    "random": _seed_random,
    "numpy": _seed_numpy,
    "torch": _seed_torch,
}
