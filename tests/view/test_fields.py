"""Fields as the page shows them."""

from __future__ import annotations

import gzip
import io
import json
import pickle

import numpy as np
import pytest
from PIL import Image

from shapes import npy, tone
from webdataset.view.fields import best_picture, card, content, hex_page, picture, value_of
from webdataset.view.samples import StoredField, StoredSample


def field(name: str, data: bytes) -> StoredField:
    return StoredField(name, len(data), lambda start, stop: data[start:stop])


def sample(**fields: bytes) -> StoredSample:
    named = {name.replace("__", "."): data for name, data in fields.items()}
    return StoredSample(3, "k", "a.tar", 0, 3, {name: field(name, data) for name, data in named.items()})


def test_an_image_stands_for_a_sample_before_its_mask_and_sound() -> None:
    assert best_picture(sample(wav=b"", mask__png=b"", npy=b"", jpg=b"")) == "jpg"
    assert best_picture(sample(wav=b"", mask__png=b"")) == "mask.png"
    assert best_picture(sample(txt=b"", cls=b"")) is None
    assert best_picture(sample(npy=npy(np.zeros((3, 3))), wav=b"")) == "npy"
    assert best_picture(sample(npy=npy(np.zeros(3)), wav=b"")) == "wav"
    assert best_picture(sample(npy=npy(np.float32(3)), txt=b"")) is None


def test_a_card_has_the_class_and_the_beginning_of_the_text() -> None:
    found = card(sample(cls=b" 7\n", txt=b"many\n words " * 100, json=b"{}"))
    assert found["class"] == "7"
    assert found["label"].startswith("many words many")
    assert len(found["label"]) < 200


def test_control_characters_and_turned_text_are_made_visible() -> None:
    assert card(sample(txt="a\u202eb\x1b[2J".encode()))["label"] == "a\\u202eb\\x1b[2J"


@pytest.mark.parametrize(("name", "data", "tree"), [
    ("json", b'{"a": [1]}', {"type": "dict", "size": 1, "items": [["a", {"type": "list", "size": 1, "items": [1]}]]}),
    ("json.gz", gzip.compress(b"[2]", mtime=0), {"type": "list", "size": 1, "items": [2]}),
    ("pyd", pickle.dumps({"a": 1}), {"type": "dict", "size": 1, "items": [["a", 1]]}),
])  # fmt: skip
def test_values_are_trees(name: str, data: bytes, tree: object) -> None:
    assert content(field(name, data))["tree"] == tree


def test_a_pickle_that_would_run_code_is_refused_and_shown_as_bytes() -> None:
    found = content(field("pyd", b"cos\nsystem\n(S'true'\ntR."))
    assert "error" in found
    assert found["hex"].startswith("636f73")


def test_several_arrays_in_one_field_are_shown_each() -> None:
    stream = io.BytesIO()
    np.savez(stream, one=np.arange(3), two=np.zeros((2, 2)))
    found = content(field("npz", stream.getvalue()))
    assert [(array["item"], array["shape"]) for array in found["arrays"]] == [("one", [3]), ("two", [2, 2])]
    pixels = picture(field("npz", stream.getvalue()), 64, "two")
    assert Image.open(io.BytesIO(pixels.data)).size == (64, 64)


def test_text_in_no_known_field_is_text_and_the_rest_is_bytes() -> None:
    assert content(field("xyz", "grüße".encode()))["text"] == "grüße"
    assert content(field("xyz", b"\0\1"))["hex"] == "0001"
    assert content(field("txt", b"\xff\xfe"))["text"] == "\\xff\\xfe"


def test_bytes_come_in_pages() -> None:
    data = bytes(range(256)) * 40
    assert hex_page(field("bin", data), 0)["hex"] == data[:4096].hex()
    assert hex_page(field("bin", data), 8192) == {"start": 8192, "hex": data[8192:].hex(), "size": len(data)}
    assert hex_page(field("bin", data), 1 << 60)["hex"] == ""


def test_a_cut_character_at_the_end_of_a_long_text_does_not_matter() -> None:
    found = content(field("txt", "ü".encode() * 200_000))
    assert found["cut"]
    assert set(found["text"]) == {"ü"}
    assert set(content(field("xyz", "ü".encode() * 200_001))["text"]) == {"ü"}


def test_values_for_conditions_are_decoded() -> None:
    assert value_of(field("cls", b"3")) == 3
    assert value_of(field("json", b'{"a": 1}')) == {"a": 1}
    assert value_of(field("anything", b"text")) == "text"


def test_sound_and_arrays_are_pictures_too() -> None:
    assert Image.open(io.BytesIO(picture(field("wav", tone(440)), 100).data)).size == (100, 50)
    mask = npy(np.array([[0, 1], [2, 1]], np.uint8))
    with Image.open(io.BytesIO(picture(field("mask.npy", mask), 8).data)) as image:
        assert image.mode == "RGBA"
        assert image.getpixel((0, 0)) == (0, 0, 0, 0)
        assert image.getpixel((7, 0)) == image.getpixel((7, 7))


def test_everything_is_json() -> None:
    for one in (field("json", b"[1e400, NaN]"), field("npy", npy(np.array([np.nan, 1])))):
        assert json.dumps(content(one), allow_nan=False)
