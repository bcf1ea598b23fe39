"""A small dataset that is nice to look at: shapes with masks, depth, sound, text and JSON, two of them broken."""

from __future__ import annotations

import io
import json
import math
import wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from tests_support import tar_bytes

NAMES = ("circle", "square", "triangle", "star", "ring")
SIZES = ((160, 120), (128, 128), (120, 160))
BROKEN = (7, 71)


def shape_shards(folder: Path, samples: int = 96, per_shard: int = 32) -> list[str]:
    """Shards of so many samples; their paths."""
    rng = np.random.default_rng(0)
    paths = []
    for first in range(0, samples, per_shard):
        path = folder / f"shapes-{first // per_shard:03d}.tar"
        files = [file for i in range(first, min(samples, first + per_shard)) for file in shape_files(i, rng)]
        path.write_bytes(tar_bytes(files))
        paths.append(str(path))
    return paths


def shape_files(i: int, rng: np.random.Generator) -> list[tuple[str, bytes]]:
    """The files of one sample."""
    name, (width, height) = NAMES[i % 5], SIZES[i % 3]
    photo, mask, depth = shape_images(i % 5, width, height, rng, turn=i)
    facts = {"shape": name, "size": [width, height], "score": round(float(rng.random()), 3), "lens": {"f": i % 3}}
    key = f"train/{name}-{i:05d}"
    files = [
        (f"{key}.jpg", photo if i not in BROKEN else photo[: len(photo) // 3]),
        (f"{key}.cls", b"%d" % (i % 5)),
        (f"{key}.caption.txt", f"a {name} on a gradient, number {i}".encode()),
        (f"{key}.json", json.dumps(facts).encode()),
        (f"{key}.mask.png", mask),
    ]
    if i % 4 == 0:
        files.append((f"{key}.depth.npy", depth))
    if i % 6 == 0:
        files.append((f"{key}.wav", tone(220 + 40 * (i % 8))))
    return files


def shape_images(kind: int, width: int, height: int, rng: np.random.Generator, *, turn: int) -> tuple[bytes, ...]:
    """A photo of a shape, its mask and its depth."""
    y, x = np.mgrid[0:height, 0:width]
    way = ((x * math.cos(turn) + y * math.sin(turn)) / (width + height) + 0.5).clip(0, 1)[..., None]
    pixels = rng.random(3) * (1 - way) + rng.random(3) * way
    photo, mask = Image.fromarray((pixels * 200 + 30).astype(np.uint8)), Image.new("L", (width, height), 0)
    radius = int(rng.integers(22, 50))
    left, top = int(rng.integers(radius, width - radius)), int(rng.integers(radius, height - radius))
    colour = tuple(int(value) for value in rng.integers(120, 255, 3))
    for image, fill in ((photo, colour), (mask, kind + 1)):
        draw_shape(ImageDraw.Draw(image), kind, (left, top), radius, fill)
    depth = (np.hypot(x - left, y - top) / 30).astype(np.float32)
    return encoded(photo, "JPEG"), encoded(mask, "PNG"), npy(depth)


def draw_shape(pen: ImageDraw.ImageDraw, kind: int, place: tuple[int, int], radius: int, fill: object) -> None:
    x, y = place
    box = [x - radius, y - radius, x + radius, y + radius]
    if kind == 0:
        pen.ellipse(box, fill=fill)
    elif kind == 1:
        pen.rectangle(box, fill=fill)
    elif kind == 4:
        pen.ellipse(box, outline=fill, width=radius // 2)
    else:
        corners = 3 if kind == 2 else 10
        turns = [(radius if place % 2 == 0 or kind == 2 else radius * 0.45, 2 * math.pi * place / corners)
                 for place in range(corners)]  # fmt: skip
        pen.polygon([(x + r * math.sin(turn), y - r * math.cos(turn)) for r, turn in turns], fill=fill)


def tone(pitch: float, seconds: float = 1.0, rate: int = 8000) -> bytes:
    """A tone that fades, as a WAV file."""
    time = np.arange(int(seconds * rate)) / rate
    stream = io.BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setparams((1, 2, rate, 0, "NONE", ""))
        sound.writeframes((np.sin(2 * np.pi * pitch * time) * np.exp(-3 * time) * 26000).astype("<i2").tobytes())
    return stream.getvalue()


def encoded(image: Image.Image, kind: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def npy(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()
