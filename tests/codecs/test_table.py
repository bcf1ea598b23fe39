"""Values to bytes and back, for every extension of the table."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from webdataset.autodecode import Decoder, morehandlers
from webdataset.codecs import CODECS, decoders, encode, encoders
from webdataset.errors import EncodingError

ARRAY = np.arange(6, dtype="f4").reshape(2, 3)
PLAIN = {"a": [1, 2.5, None, True, "é"], "b": {}}


def back(field: str, value: object) -> object:
    return Decoder([morehandlers])({"__key__": "k", field: encode(field, value)})[field]


def same(one: object, two: object) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
    if isinstance(one, np.ndarray) or torch.is_tensor(one):
        return type(one) is type(two) and one.dtype == two.dtype and bool((one == two).all())
    return type(one) is type(two) and one == two


EVERY_KIND = [
    *[(name, 7) for name in ("cls", "cls2", "class", "count", "index", "inx", "id")],
    *[(name, "text é") for name in ("txt", "text", "transcript", "html", "htm")],
    *[(name, PLAIN) for name in ("json", "jsn", "mp", "msg", "msgpack", "cbor", "pyd", "pkl", "pickle", "pth")],
    ("npy", ARRAY),
    ("npz", {"a": ARRAY, "file": np.array(3)}),
    *[(name, [ARRAY, ARRAY.astype("u4")]) for name in ("ten", "tb", "tenbin")],
    ("pth", {"t": torch.arange(3)}),
    ("pyd", {"t": torch.arange(3), "a": ARRAY}),
    ("safetensors", {"t": torch.arange(3), "h": torch.zeros(2, dtype=torch.bfloat16)}),
    ("json.gz", PLAIN),
    ("a.b.npy", ARRAY),
    ("unknown", b"bytes"),
    ("bin", b"bytes"),
]


@pytest.mark.parametrize(("field", "value"), EVERY_KIND)
def test_what_is_encoded_is_decoded_again(field, value):
    assert same(value, back(field, value))


@pytest.mark.parametrize(("field", "value"), EVERY_KIND)
def test_the_same_value_gives_the_same_bytes(field, value):
    assert encode(field, value) == encode(field, value)


def test_every_codec_with_a_decoder_is_tried_above():
    named = {field.rpartition(".")[2] for field, _ in EVERY_KIND}
    with_decoder = {name for names, codec in CODECS.items() if codec.decode for name in names.split()}
    assert with_decoder <= named


def test_bytes_and_text_are_taken_under_any_name():
    assert encode("jpg", b"x") == encode("jpg", bytearray(b"x")) == encode("jpg", memoryview(b"x")) == b"x"
    assert encode("foo", "é") == "é".encode()


def test_names_are_compared_in_lower_case_by_the_last_extension():
    assert encode("A.CLS", 3) == b"3"
    assert encode("seg.JSON", [1]) == b"[1]"


def test_gz_compresses_bytes_and_text_too_but_not_a_field_that_is_just_gz():
    assert gzip.decompress(encode("txt.gz", b"x")) == b"x"
    assert gzip.decompress(encode("json.GZ", [1])) == b"[1]"
    assert encode("gz", b"x") == b"x"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("foo", 5),
        ("", 5),
        ("cls", None),
        ("cls", [1]),
        ("txt", 5),
        ("json", {1, 2}),
        ("json", object()),
        ("npy", [1, 2]),
        ("npy", np.array([None])),
        ("npz", ARRAY),
        ("npz", {"a": np.array([{}])}),
        ("ten", 5),
        ("ten", np.zeros(2, complex)),
        ("mp", object()),
        ("cbor", object()),
        ("pyd", lambda: 0),
        ("safetensors", ARRAY),
        ("bin", 5),
        ("jpg", [1]),
        ("txt", "\ud800"),
    ],
)
def test_what_cannot_be_encoded_is_an_error_that_names_the_field(field, value):
    with pytest.raises(EncodingError) as caught:
        encode(field, value)
    assert caught.value.field == field
    assert isinstance(caught.value, ValueError)


def test_an_error_says_what_to_do():
    with pytest.raises(EncodingError, match="default_handlers"):
        encode("foo", [1])


def test_a_program_can_add_its_own(monkeypatch):
    monkeypatch.setitem(encoders, "xyz", lambda value: str(value))
    monkeypatch.setitem(decoders, "xyz", lambda data: float(data))
    assert back("xyz", 2.5) == 2.5
    monkeypatch.setitem(encoders, "xyz", lambda value: 5)
    with pytest.raises(EncodingError, match="int"):
        encode("xyz", 2.5)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(json_values, max_size=4) | st.dictionaries(st.text(), json_values, max_size=4))
def test_any_plain_value_comes_back_from_every_structured_format(value):
    for field in ("json", "mp", "cbor", "pyd", "json.gz"):
        assert back(field, value) == value


@given(st.text(), st.integers(), st.binary())
def test_any_text_number_and_bytes_come_back(text, number, data):
    encodable = text.encode("utf-8", "ignore").decode()
    assert back("txt", encodable) == encodable
    assert back("cls", number) == number
    assert back("bin", data) == data
