"""Keys of pickles that another library loads, found without building anything."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import pytest

from webdataset.codecs.pickle.keys import check_keys
from webdataset.errors import DecodingError

PRIME = 2**61 - 1
HONEST: list[Any] = [
    {number: [str(number)] for number in range(1000)},
    {(number, -number): {number} for number in range(1000)},
    OrderedDict((f"layer.{number}", (number, 1.5)) for number in range(1000)),
    [{number * PRIME: 0 for number in range(1, 50)} for _ in range(20)],
]
COLLIDING: list[Any] = [
    {number * PRIME: 0 for number in range(1, 1000)},
    {(number * PRIME, 1): 0 for number in range(1, 1000)},
    {number * PRIME for number in range(1, 1000)},
    frozenset(number * PRIME for number in range(1, 1000)),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", HONEST, ids=range(len(HONEST)))
def test_ordinary_keys_pass(value: Any, protocol: int) -> None:
    check_keys(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("value", COLLIDING[:2], ids=range(2))
def test_keys_that_collide_are_refused(value: Any, protocol: int) -> None:
    with pytest.raises(DecodingError, match="collide"):
        check_keys(pickle.dumps(value, protocol))


@pytest.mark.parametrize("value", COLLIDING[2:], ids=range(2))
def test_items_of_sets_that_collide_are_refused(value: Any) -> None:
    with pytest.raises(DecodingError, match="collide"):
        check_keys(pickle.dumps(value))


def test_the_second_of_several_pickles_is_looked_at_too() -> None:
    data = pickle.dumps(1) + pickle.dumps(COLLIDING[0])
    check_keys(data)
    with pytest.raises(DecodingError, match="collide"):
        check_keys(data, 2)


def test_what_is_no_pickle_is_an_error() -> None:
    with pytest.raises(DecodingError, match="pickle"):
        check_keys(b"t" * 1000)
