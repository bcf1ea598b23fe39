"""Parts of JPEG files, and smaller pictures of them."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

import webdataset as wds
from pictures import encoded, scene, units
from webdataset.codecs import jpeg
from webdataset.images import operations as ops


@pytest.fixture(params=["simplejpeg", *(["libjpeg-turbo"] if jpeg._turbojpeg() else [])])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What decodes regions: the library is there with the extra `fast`, if there is a wheel."""
    if request.param == "simplejpeg":
        monkeypatch.setattr(jpeg, "_turbojpeg", lambda: None)
    return request.param


def test_the_wheel_of_the_extra_has_a_library_that_decodes_regions():
    assert (importlib.util.find_spec("turbojpeg") is not None) <= (jpeg._turbojpeg() is not None)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_a_region_of_a_jpeg_is_the_region_of_the_whole(subsampling, decoder):
    data = encoded(scene(333, 217), subsampling=subsampling)
    whole = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.int16)
    file = jpeg.JpegFile.of(data)
    for x, y, width, height in [(0, 0, 333, 217), (17, 33, 100, 90), (300, 200, 33, 17), (1, 1, 1, 1)]:
        found = file.region(x, y, width, height).astype(np.int16)
        expected = whole[y : y + height, x : x + width]
        assert found.shape == expected.shape
        inner = np.abs(found - expected)[2:-2, 2:-2]
        assert not inner.size or inner.max() == 0  # at the border, colors may be spread otherwise
        assert np.abs(found - expected).max() <= 24


def test_a_region_of_a_damaged_file_has_its_size_or_is_an_error(decoder):
    whole = encoded(scene(200, 150))
    rng = np.random.default_rng(0)
    for _ in range(200):
        data = bytearray(whole[: rng.integers(100, len(whole))] if rng.random() < 0.3 else whole)
        for position in rng.integers(20, len(data), rng.integers(0, 6)):
            data[position] = rng.integers(256)
        file = jpeg.JpegFile.of(bytes(data))
        if file is not None and file.width >= 90 and file.height >= 80:
            with contextlib.suppress(ValueError, OSError):
                assert file.region(17, 33, 70, 40).shape == (40, 70, 3)


def test_threads_share_the_decoder(decoder):
    data = encoded(scene(400, 300))
    file = jpeg.JpegFile.of(data)
    expected = file.region(100, 50, 120, 90)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: file.region(100, 50, 120, 90), range(64)))
    assert all(np.array_equal(each, expected) for each in found)


def test_a_large_picture_is_decoded_at_a_smaller_size():
    data = encoded(scene(1600, 1200))
    file = jpeg.JpegFile.of(data)
    assert file.reduced(224 / 1200).shape == (600, 800, 3)
    assert file.reduced(0.1).shape == (300, 400, 3)
    assert file.reduced(0.26) is None
    result = wds.images.evaluate(224, output="numpy")(".jpg", data)
    image = Image.open(io.BytesIO(data)).resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 282, 240))
    expected = (np.asarray(image, np.float32) / 255 - ops.IMAGENET_MEAN) / ops.IMAGENET_STD
    assert np.mean(units(result, expected.transpose(2, 0, 1))) < 0.5
