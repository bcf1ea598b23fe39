"""Operations do what they say, and refuse wrong arguments."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PIL import Image

import webdataset as wds
from pictures import PICTURE, scene
from webdataset.images import operations as ops
from webdataset.images import pipeline


def test_boxes_are_spread_as_they_should_be():
    crop = ops.random_resized_crop(224)
    boxes = [crop.box(500, 375, random.Random(seed)) for seed in range(3000)]
    areas = np.array([width * height / (500 * 375) for _, _, width, height in boxes])
    shapes = np.array([width / height for _, _, width, height in boxes])
    assert all(x >= 0 and y >= 0 and x + w <= 500 and y + h <= 375 for x, y, w, h in boxes)
    assert areas.min() > 0.079
    assert 0.4 < areas.mean() < 0.46  # large parts often do not fit
    assert 0.73 < shapes.min() < shapes.max() < 1.37
    assert ops.random_resized_crop(10).box(1000, 3, random.Random(0))[3] == 3  # no part has the ratio: the center


def run(*steps, data=PICTURE, seed=0, **options):
    return pipeline(*steps, output="numpy", **options).decoded(data, seed, is_mask=False)[0]


def test_values_types_and_layouts():
    assert run().dtype == np.uint8
    assert run(ops.to_chw()).shape == (3, 60, 80)
    assert run(ops.dtype("float32")).max() <= 1
    assert run(ops.normalize(), ops.dtype("float16")).dtype == np.float16
    assert run(ops.resize((30, 50))).shape == (30, 50, 3)
    assert run(mode="l").shape == (60, 80)
    assert run(ops.normalize([0.5], [0.5]), ops.to_chw(), mode="l").shape == (60, 80)
    import torch

    assert pipeline(ops.to_chw())(".png", PICTURE).dtype == torch.uint8


def test_borders():
    padded = run(ops.pad((1, 2, 3, 4), fill=9))
    assert padded.shape == (66, 84, 3)
    assert (padded[:2] == 9).all()
    assert np.array_equal(padded[2:62, 1:81], scene(80, 60))
    assert run(ops.center_crop(100)).shape == (100, 100, 3)
    assert run(ops.random_crop(64, padding=4)).shape == (64, 64, 3)
    assert np.array_equal(run(ops.crop(5, 6, 7, 8)), scene(80, 60)[6:14, 5:12])
    assert np.array_equal(run(ops.vertical_flip(1.0)), scene(80, 60)[::-1])


def test_jitter_changes_what_it_says():
    plain = scene(80, 60).astype(float)
    assert np.abs(run(ops.color_jitter(brightness=(0.5, 0.5))) - plain / 2).max() <= 1
    gray = plain @ np.array([0.299, 0.587, 0.114])
    assert np.abs(run(ops.grayscale())[:, :, 0] - gray).max() <= 1
    assert np.abs(run(ops.color_jitter(contrast=(0.0, 0.0))) - gray.mean()).max() <= 1
    assert not np.array_equal(run(ops.color_jitter(hue=0.5)), scene(80, 60))
    assert np.array_equal(run(ops.color_jitter()), scene(80, 60))
    enhanced = Image.fromarray(scene(80, 60)).convert("HSV")
    assert run(ops.color_jitter(hue=(0.0, 0.0))).shape == np.asarray(enhanced).shape


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ops.resize(0), "size"),
        (lambda: wds.images.train("big"), "size"),
        (lambda: wds.images.evaluate("big"), "size"),
        (lambda: ops.center_crop((1, 2, 3)), "size"),
        (lambda: ops.dtype("int7"), "float16"),
        (lambda: ops.normalize([0.5], [0.5, 0.5]), "deviations"),
        (lambda: ops.color_jitter(hue=0.7), "0.5"),
        (lambda: ops.random_resized_crop(3, scale=(2, 1)), "ratio"),
        (lambda: ops.pad((1, 2)), "four"),
        (lambda: pipeline(mode="cmyk"), "rgba"),
        (lambda: pipeline(output="jax"), "torch"),
        (lambda: ops.views(), "one"),
        (lambda: run(ops.normalize([1, 1], [1, 1])), "2 channels"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_told(make, told):
    with pytest.raises(ValueError, match=told):
        make()
