"""Parts of JPEG files, and smaller pictures of them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import webdataset as wds
from pictures import encoded, scene, units
from webdataset.codecs import jpeg
from webdataset.images import operations as ops


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_a_region_of_a_jpeg_is_the_region_of_the_whole(subsampling):
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
