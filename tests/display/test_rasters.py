"""Fields as pictures: sizes, colours, limits."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from pictures import PHOTO, encoded
from webdataset.display import rasters
from webdataset.display.colours import false_colours
from webdataset.display.rasters import Picture, array_facts, heat_map, image_facts, image_picture, overlay_picture
from webdataset.errors import DecodingError, LimitError


def opened(picture: Picture) -> Image.Image:
    return Image.open(io.BytesIO(picture.data))


def test_large_images_become_small_and_small_ones_stay() -> None:
    assert opened(image_picture("jpg", PHOTO, 100)).size == (100, 75)
    assert opened(image_picture("jpg", PHOTO, 5000)).size == (500, 375)


def test_what_is_transparent_stays_so() -> None:
    data = encoded(np.zeros((4, 4, 4), np.uint8), "PNG")
    assert opened(image_picture("png", data, 64)).mode == "RGBA"


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "int32"])
def test_every_kind_of_pixel_can_be_shown(dtype: str) -> None:
    pixels = (np.arange(600).reshape(20, 30) * 5).astype(dtype)
    assert image_facts(encoded(pixels, "TIFF"))["width"] == 30
    assert max(opened(image_picture("tiff", encoded(pixels, "TIFF"), 64)).size) <= 64


def test_a_mask_has_a_colour_for_each_value_and_none_for_zero() -> None:
    colours = false_colours(np.array([[0, 1, 2, 255, 256]]), "mask")[0]
    assert colours[0].tolist() == [0, 0, 0, 0]
    assert len({tuple(colour) for colour in colours.tolist()}) >= 4
    assert all(colour[3] == 255 for colour in colours[1:].tolist())


def test_depth_goes_from_dark_to_bright_and_what_is_no_number_is_transparent() -> None:
    colours = false_colours(np.array([[1.0, 2.0, 3.0, np.nan, np.inf]]))[0].astype(int)
    assert colours[0, :3].sum() < colours[1, :3].sum() < colours[2, :3].sum()
    assert colours[3:, 3].tolist() == [0, 0]
    assert false_colours(np.full((2, 2), 7.0)).shape == (2, 2, 4)


@pytest.mark.parametrize("shape", [(1,), (7,), (5, 5), (3, 20, 20), (20, 20, 4), (2, 3, 4, 5), (1, 9000), (20, 20, 7)])
def test_arrays_of_any_shape_are_pictures(shape: tuple[int, ...]) -> None:
    assert max(opened(heat_map(np.random.default_rng(0).normal(size=shape), 128)).size) <= 128


def test_complex_and_boolean_arrays_are_pictures_and_texts_are_not() -> None:
    heat_map(np.array([[1j, 2]]), 32)
    overlay_picture(np.array([[True, False]]), "mask", 32)
    with pytest.raises(DecodingError, match="colours"):
        heat_map(np.array([["a"]]), 32)
    with pytest.raises(DecodingError, match="empty"):
        heat_map(np.zeros((0, 3)), 32)


def test_facts_of_arrays_leave_out_what_is_no_number() -> None:
    facts = array_facts(np.array([1.0, np.nan, 3.0]))
    assert (facts["min"], facts["max"], facts["mean"], facts["not_finite"]) == (1.0, 3.0, 2.0, 1)
    assert array_facts(np.array([])) == {"shape": [0], "dtype": "float64"}
    assert array_facts(np.array(["a"]))["dtype"] == "<U1"


def test_too_many_pixels_and_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rasters, "MOST_PIXELS", 1000)
    monkeypatch.setattr(rasters, "MOST_NUMBERS", 1000)
    with pytest.raises(LimitError, match="500 x 375"):
        image_picture("jpg", PHOTO, 100)
    with pytest.raises(LimitError, match="1001"):
        heat_map(np.zeros(1001), 10)
    assert array_facts(np.zeros(1001)) == {"shape": [1001], "dtype": "float64"}


def test_postscript_is_not_run() -> None:
    with pytest.raises(DecodingError, match="program"):
        image_picture("img", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n%%EndComments\n%%EOF\n", 10)
