"""Images for training: what comes out is what torchvision's recipe gives, whatever is decoded on the way."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from PIL import Image

import webdataset as wds
from pictures import PHOTO, PICTURE, encoded, reference, scene, units
from webdataset.images import operations as ops


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("data", [PHOTO, PICTURE, encoded(scene(300, 500), subsampling=0)])
def test_training_is_the_usual_recipe_on_the_same_random_numbers(data, output):
    train = wds.images.train(64, output=output)
    size = Image.open(io.BytesIO(data)).size
    for seed in range(20):
        result, _ = train.decoded(data, seed, is_mask=False)
        rng = random.Random(seed)
        box = train.steps[0].box(*size, rng)
        expected = reference(data, box, (64, 64), rng.random() < 0.5)
        assert result.shape == (3, 64, 64)
        assert np.mean(units(result, expected)) < 1
        if min(box[2:]) < 4 * 64:  # larger ones are scaled by the JPEG decoder first, which has a filter of its own
            assert units(result, expected).max() <= 2.01


def test_torchvision_agrees():
    functional = pytest.importorskip("torchvision.transforms.functional", exc_type=(ImportError, RuntimeError))
    train = wds.images.train(200)
    for seed in range(10):
        rng = random.Random(seed)
        left, top, width, height = train.steps[0].box(500, 375, rng)
        image = Image.open(io.BytesIO(PHOTO)).convert("RGB")
        image = functional.resized_crop(image, top, left, height, width, [200, 200])
        image = functional.hflip(image) if rng.random() < 0.5 else image
        expected = functional.normalize(functional.to_tensor(image), ops.IMAGENET_MEAN, ops.IMAGENET_STD)
        assert units(train.decoded(PHOTO, seed, is_mask=False)[0], expected).max() <= 2.01


def test_evaluation_is_resize_and_center():
    result = wds.images.evaluate(224, output="numpy")(".jpg", PHOTO)
    image = Image.open(io.BytesIO(PHOTO)).resize((341, 256), Image.Resampling.BILINEAR)
    left = round((341 - 224) / 2)
    image = image.crop((left, 16, left + 224, 240))
    expected = (np.asarray(image, np.float32) / 255 - ops.IMAGENET_MEAN) / ops.IMAGENET_STD
    assert units(result, expected.transpose(2, 0, 1)).max() <= 2.01
