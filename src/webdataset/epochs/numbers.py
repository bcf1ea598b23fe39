"""Random numbers out of counters: the same on every machine, Python and numpy, in any order of asking.

A generator has a state that would have to be saved; a function of (seed, epoch, place) has none.
"""

from __future__ import annotations

import hashlib
from typing import Any

Array = Any
"""A numpy array; numpy is imported when a plan is made, not before."""

_GOLDEN = 0x9E3779B97F4A7C15


def stream(*names: object) -> int:
    """The number of a stream of random numbers, from any names: a seed, an epoch, a purpose.

    >>> stream(0, 1, "blocks")
    14876665788164988223
    """
    digest = hashlib.blake2b(repr(names).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def random_bits(stream: int, counters: Array) -> Array:
    """64 random bits for each counter of a stream (the finalizer of splitmix64, twice).

    >>> import numpy as np
    >>> random_bits(1, np.arange(2)).tolist()
    [8841707400507832957, 15916886550466581944]
    """
    import numpy as np

    # numpy does not warn when arrays overflow
    x = counters.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(stream)
    for _ in range(2):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x


def uniform(stream: int, counters: Array) -> Array:
    """A random number in [0, 1) for each counter of a stream."""
    import numpy as np

    return (random_bits(stream, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(stream: int, n: int) -> Array:
    """A random order of 0..n-1.

    >>> permutation(5, 6).tolist()
    [4, 5, 2, 3, 1, 0]
    """
    import numpy as np

    return np.argsort(random_bits(stream, np.arange(n)), kind="stable")


def spread(n: int) -> list[int]:
    """For 0..n-1 places so that neighbours are far apart: any run of numbers is spread evenly over the places.

    Digits are reversed, as in a fast Fourier transform. If w is a power of two that divides n, each run of w
    numbers that begins at a multiple of w has exactly one in each w-th part of the places.

    >>> spread(8)
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    places = [0]
    for factor in reversed(_factors(n)):
        size = len(places)
        places = [digit * size + place for place in places for digit in range(factor)]
    return places


def _factors(n: int) -> list[int]:
    factors, divisor = [], 2
    while n > 1:
        while n % divisor == 0:
            factors.append(divisor)
            n //= divisor
        divisor += 1
    return factors
