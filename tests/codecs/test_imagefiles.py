"""Image files: arrays and Pillow images are stored with every value as it is, or refused with the cure."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

import webdataset as wds
from webdataset.codecs import encode
from webdataset.codecs.imagefiles import imageencoder
from webdataset.errors import EncodingError

GRAY, ALPHA, COLOUR, CLEAR = (), (2,), (3,), (4,)

# the arrays that a format holds: type -> channels
HELD = {
    "png": {"?": [GRAY], "u1": [GRAY, ALPHA, COLOUR, CLEAR], "u2": [GRAY, ALPHA, COLOUR, CLEAR]},
    "tif": {"?": [GRAY], "u1": [GRAY, ALPHA, COLOUR, CLEAR], "u2": [GRAY], "i4": [GRAY], "f4": [GRAY]},
    "webp": {"u1": [COLOUR, CLEAR]},
    "pgm": {"u1": [GRAY], "u2": [GRAY]},
    "ppm": {"u1": [COLOUR], "u2": [COLOUR]},
    "pbm": {"?": [GRAY]},
}
KINDS = [(name, dtype, channels) for name, types in HELD.items() for dtype, many in types.items() for channels in many]


def read(data: bytes, field: str = "png", spec: str = "pixels") -> np.ndarray:
    return wds.imagehandler(spec)(f".{field}", data)


def through_a_shard(folder, field: str, value: object, spec: str = "pixels") -> object:
    """Written by ShardWriter, read by WebDataset."""
    with wds.ShardWriter(f"{folder}/mask-%d.tar", verbose=0) as writer:
        writer.write({"__key__": "a", field: value})
    (sample,) = wds.WebDataset(f"{folder}/mask-0.tar", shardshuffle=False).decode(spec)
    return sample[field]


@st.composite
def images(draw) -> tuple[str, np.ndarray]:
    name, dtype, channels = draw(st.sampled_from(KINDS))
    order = draw(st.sampled_from("<>"))
    shape = (draw(st.integers(1, 9)), draw(st.integers(1, 9)), *channels)
    return name, draw(npst.arrays(np.dtype(order + dtype), shape))


@settings(max_examples=300, deadline=None)
@given(images())
def test_what_is_written_is_read_as_pixels(image):
    name, array = image
    found = read(encode(name, array), name)
    assert found.dtype == array.dtype.newbyteorder("=")
    if name == "webp" and array.shape[2:] == (4,) and (array[:, :, 3] == 255).all():
        array = array[:, :, :3]  # WebP does not store an alpha channel that is opaque everywhere
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize(("name", "dtype", "channels"), KINDS)
def test_a_shard_keeps_every_kind_of_array(tmp_path, name, dtype, channels):
    rng = np.random.default_rng(0)
    array = rng.integers(0, 255, (5, 7, *channels)).astype(dtype) * np.dtype(dtype).type(257 if dtype == "u2" else 1)
    found = through_a_shard(tmp_path, f"mask.{name}", array)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    if not hasattr(torch, array.dtype.name):  # torch before 2.3
        return
    first = array.transpose(2, 0, 1) if channels else array
    tensor = torch.from_numpy(first.copy())
    assert np.array_equal(through_a_shard(tmp_path, f"mask.{name}", tensor), array)


def test_a_view_of_an_array_is_stored_as_it_looks():
    array = np.arange(600, dtype=np.uint16).reshape(10, 20, 3) * 100
    for view in (array[::-1, ::2], array.transpose(1, 0, 2), array[:, :, ::-1], array[:, :, :1]):
        assert np.array_equal(read(encode("png", view)), view.squeeze())


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4"])
@pytest.mark.parametrize("name", ["png", "pgm", "tif"])
def test_integers_with_a_sign_are_stored_if_the_format_has_their_values(name, dtype):
    array = np.array([[0, 1, 100]], dtype)
    assert read(encode(name, array), name).tolist() == [[0, 1, 100]]


@pytest.mark.parametrize(
    ("name", "array", "cure"),
    [
        ("png", np.array([[-5, 70000]], "i4"), r"-5\.\.70000"),
        ("pgm", np.array([[0, 65536]], "i4"), "65536"),
        ("png", np.array([[0, 20]], "i8"), "'uint8'"),
        ("png", np.array([[0, 1000]], "i8"), "'uint16'"),
        ("png", np.array([[-1, 20]], "i8"), "tiff"),
        ("tif", np.array([[0, 2**32 - 1]], "u4"), "npy"),
        ("png", np.zeros((2, 2, 3), "?"), "'uint8'"),
        ("png", np.zeros((2, 2, 3), "i4"), "'uint8'"),
        ("png", np.zeros((2, 2), "c8"), "npy"),
        ("png", np.array([["a"]]), "npy"),
        ("jpg", np.zeros((2, 2), "u2"), "png or tiff"),
        ("jpg", np.zeros((2, 2, 3), "u2"), "png"),
        ("webp", np.zeros((2, 2), "u2"), "png"),
        ("webp", np.zeros((2, 2), "i4"), "png"),
        ("webp", np.zeros((2, 2, 2), "u1"), "shape"),
        ("tif", np.zeros((2, 2, 3), "u2"), "png"),
        ("ppm", np.zeros((2, 2, 4), "u2"), "png"),
        ("tif", np.array([[1e300]]), "npy"),
        ("png", np.array([[80.0]]), "tiff"),
        ("png", Image.fromarray(np.array([[-1]], "i4")), r"-1\.\.-1"),
        ("jpg", Image.new("I;16", (2, 2)), "8 bits"),
        ("webp", Image.new("F", (2, 2)), "8 bits"),
        ("png", Image.new("F", (2, 2)), "png or tiff"),
        ("jpg", Image.new("P", (2, 2)), "png or tiff"),
    ],
)  # fmt: skip
def test_what_a_format_cannot_hold_is_an_error_with_the_cure(name, array, cure):
    with pytest.raises(EncodingError, match=cure) as caught:
        encode(f"mask.{name}", array)
    assert caught.value.field == f"mask.{name}"
    assert "\n" not in str(caught.value)


def voc(indices: list[int], colours: int) -> Image.Image:
    image = Image.fromarray(np.array([indices], np.uint8))
    image.putpalette([channel for n in range(colours) for channel in (n, 2 * n % 256, 3 * n % 256)])
    return image


@pytest.mark.parametrize("name", ["png", "tif"])
@pytest.mark.parametrize(
    ("indices", "colours"), [([0, 1, 2, 255], 256), ([0, 1, 2, 255], 3), ([0, 1], 2), ([0, 20], 21)]
)
def test_a_palette_image_keeps_indices_and_palette(tmp_path, name, indices, colours):
    image = voc(indices, colours)
    assert through_a_shard(tmp_path, f"seg.{name}", image).tolist() == [indices]
    with Image.open(io.BytesIO(encode(name, image))) as again:
        assert again.mode == "P"
        assert again.getpalette()[: colours * 3] == image.getpalette()[: colours * 3]
    assert image.getpalette() == voc(indices, colours).getpalette()


def test_a_short_palette_with_alpha_keeps_it():
    image = Image.fromarray(np.array([[0, 1, 9]], np.uint8))
    image.putpalette([1, 2, 3, 0, 4, 5, 6, 100], "RGBA")
    data = encode("png", image)
    assert read(data).tolist() == [[0, 1, 9]]
    assert read(data, spec="rgba8")[0, :2].tolist() == [[1, 2, 3, 0], [4, 5, 6, 100]]


@pytest.mark.parametrize("name", ["png", "tif"])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I;16B"])
def test_pillow_images_keep_their_mode(name, mode):
    array = {"I;16": np.arange(6, dtype="u2"), "I;16B": np.arange(6, dtype=">u2")}.get(mode, np.arange(6, dtype="u1"))
    image = Image.fromarray(array.reshape(2, 3) * array.dtype.type(40))
    image = image if mode.startswith("I") else image.convert(mode)
    with Image.open(io.BytesIO(imageencoder(image, name))) as again:
        assert again.mode.removesuffix("B") in (mode.removesuffix("B"), "I")
        assert np.array_equal(np.asarray(again), np.asarray(image))


@pytest.mark.parametrize("name", ["png", "tif", "pgm"])
def test_a_pillow_image_of_32_bits_is_stored_if_it_fits(name):
    image = Image.fromarray(np.array([[0, 300, 65535]], "i4"))
    assert read(encode(name, image), name).tolist() == [[0, 300, 65535]]


def test_floats_in_0_to_1_stay_what_they_were():
    array = np.array([[0.0, 0.1, 0.5, 0.999, 1.0]], np.float32)
    assert read(encode("png", array)).tolist() == [[0, 25, 127, 254, 255]]
    for dtype in ("f2", "f4", "f8"):
        data = encode("tif", array.astype(dtype))
        assert read(data, "tif").tolist() == array.astype(dtype).astype("f4").tolist()
        assert np.array_equal(read(data, "tif", "l8"), read(encode("png", array.astype(dtype))))
    colours = np.repeat(array[:, :, None], 3, axis=2)
    assert read(encode("tif", colours), "tif")[0, :, 0].tolist() == [0, 25, 127, 254, 255]


def test_a_depth_map_of_floats_is_kept_in_a_tiff():
    metres = np.array([[0.0, 79.9, np.nan, np.inf]], np.float32)
    assert np.array_equal(read(encode("depth.tif", metres), "tif"), metres, equal_nan=True)


def test_a_16_bit_png_in_colour_is_read_by_other_programs():
    array = np.random.default_rng(0).integers(0, 65536, (9, 7, 4), dtype=np.uint16)
    for channels, mode in ((3, "RGB"), (4, "RGBA")):
        with Image.open(io.BytesIO(encode("png", array[:, :, :channels]))) as image:
            image.verify()
        with Image.open(io.BytesIO(encode("png", array[:, :, :channels]))) as image:
            assert image.mode == mode
            assert np.array_equal(np.asarray(image), array[:, :, :channels] >> 8)
