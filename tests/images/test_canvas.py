"""A canvas is cropped and mirrored as an array would be."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pictures import encoded, scene
from webdataset.images import Canvas


@given(st.integers(1, 90), st.integers(1, 70), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_any_size_is_cropped_and_flipped_as_an_array_would_be(width, height, seed):
    pixels = scene(width, height, seed % 7)
    canvas, expected = Canvas(encoded(pixels, "PNG")), pixels
    rng = random.Random(seed)
    for _ in range(rng.randrange(5)):
        if rng.random() < 0.5:
            canvas.mirror()
            expected = expected[:, ::-1]
        else:
            wide, tall = rng.randint(1, canvas.size[0]), rng.randint(1, canvas.size[1])
            left, top = rng.randint(0, canvas.size[0] - wide), rng.randint(0, canvas.size[1] - tall)
            canvas.crop(left, top, wide, tall)
            expected = expected[top : top + tall, left : left + wide]
    assert np.array_equal(canvas.pixels(), expected)
    assert canvas.size == (expected.shape[1], expected.shape[0])
