"""Numbers, texts and structured values as the bytes of a field."""

from __future__ import annotations

import json

import numpy as np
import torch

from webdataset.codecs import encode

ARRAY = np.arange(6, dtype="f4").reshape(2, 3)


def test_numbers_of_numpy_and_torch_are_numbers():
    values = [np.int64(7), np.array(7), np.uint8(7), torch.tensor(7), torch.tensor([7])]
    assert {encode("cls", value) for value in values} == {b"7"}
    assert (encode("cls", True), encode("cls", np.bool_(False)), encode("cls", 4.5)) == (b"1", b"0", b"4.5")
    assert json.loads(encode("json", {"a": np.float32(1.5), "b": np.arange(2), "c": torch.tensor(3)})) == {
        "a": 1.5,
        "b": [0, 1],
        "c": 3,
    }


def test_a_bin_field_takes_what_has_a_buffer():
    assert encode("bin", ARRAY) == ARRAY.tobytes()
    assert encode("bin", torch.zeros(2, dtype=torch.uint8)) == b"\0\0"


def test_the_standard_json_and_pickle_bytes_are_kept():
    assert encode("json", {"b": 1, "a": "é"}) == b'{"b": 1, "a": "\\u00e9"}'
    assert encode("pyd", [1]) == b"\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00]\x94K\x01a."
