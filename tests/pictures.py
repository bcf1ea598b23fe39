"""Pictures for tests, and what Pillow makes of them."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from webdataset.images import operations as ops


def scene(width=500, height=375, seed=0):
    """Something with gradients, edges and texture, as a photograph has them."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    soft = np.stack([128 + 100 * np.sin(x / 37 + c + y / 53) for c in range(3)], axis=2)
    soft[height // 4 : height // 2, width // 3 : width // 2] = (200, 40, 90)
    return np.clip(soft + rng.normal(0, 6, soft.shape), 0, 255).astype(np.uint8)


def encoded(pixels, kind="JPEG", **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **({"quality": 91} if kind == "JPEG" else {}), **options)
    return stream.getvalue()


def reference(data, box, size, mirrored):
    """Pillow's crop, antialiased resize and flip, and the arithmetic of torchvision's ToTensor and Normalize."""
    left, top, width, height = box
    image = Image.open(io.BytesIO(data)).convert("RGB").crop((left, top, left + width, top + height))
    image = image.resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.float32)[:, :: -1 if mirrored else 1] / 255
    mean, std = np.array(ops.IMAGENET_MEAN, np.float32), np.array(ops.IMAGENET_STD, np.float32)
    return ((pixels - mean) / std).transpose(2, 0, 1)


def units(left, right, std=ops.IMAGENET_STD):
    """The differences of two normalized images, in steps of a byte."""
    return np.abs(np.asarray(left) - np.asarray(right)) * np.array(std).reshape(3, 1, 1) * 255


PHOTO = encoded(scene())
PICTURE = encoded(scene(80, 60), "PNG")
