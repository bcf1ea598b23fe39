"""Random numbers out of counters: the same everywhere."""

from __future__ import annotations

import pytest

from webdataset.epochs.numbers import permutation, spread


@pytest.mark.parametrize("n", [1, 2, 6, 8, 48, 64, 97])
def test_spread_is_a_permutation_that_divides_evenly_by_powers_of_two(n):
    places = spread(n)
    assert sorted(places) == list(range(n))
    for w in (2, 4, 8, 16, 32):
        if n % w == 0:
            assert all(sorted(p * w // n for p in places[i : i + w]) == list(range(w)) for i in range(0, n, w))


def test_a_permutation_is_stable_across_versions():
    assert permutation(5, 6).tolist() == [4, 5, 2, 3, 1, 0]
