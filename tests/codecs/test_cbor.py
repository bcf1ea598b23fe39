"""CBOR: what cbor2 writes, read as plain data; anything else is refused."""

from __future__ import annotations

import datetime
import decimal
import fractions
import uuid
from typing import Any

import cbor2
import pytest

import webdataset as wds
from webdataset.codecs import encode


def decoded(data: bytes) -> Any:
    return wds.Decoder([])({"__key__": "a", "cbor": data})["cbor"]


VALUES = [
    {"a": [1, -2, 2**70, -(2**70), 1.5, None, True, b"x", "é"], "b": {}, (1, 2): "tuple"},
    {1, 2, 3},
    datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
    datetime.date(2024, 5, 6),
    decimal.Decimal("1.25"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=7),
    cbor2.CBORTag(4000, [1]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value: Any) -> None:
    assert decoded(encode("cbor", value)) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("9f0102ff", [1, 2]),
        ("bf616101ff", {"a": 1}),
        ("7f61616162ff", "ab"),
        ("5f41614162ff", b"ab"),
        ("f93e00", 1.5),
        ("c11a00000001", datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)),
    ],
)
def test_indefinite_lengths_and_short_forms(data: str, value: Any) -> None:
    assert decoded(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("ff", id="an end without a beginning"),
        pytest.param("8201", id="cut"),
        pytest.param("1c", id="a reserved form"),
        pytest.param("7f4161ff", id="mixed pieces"),
        pytest.param("bf6161ff", id="a key without a value"),
        pytest.param("a1a001", id="a dict as a key"),
        pytest.param("d81c80", id="shared references"),
        pytest.param("c201", id="a number in place of bytes"),
        pytest.param("81" * 1001 + "01", id="too many levels"),
    ],
)
def test_damage_is_an_error(data: str) -> None:
    with pytest.raises(wds.DecodingError):
        decoded(bytes.fromhex(data))
