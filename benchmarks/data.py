"""The data that the benchmarks read, made once: photographs, many small samples, large arrays.

The shards are written with the standard library's tarfile in the ustar format, as GNU tar would, so that no side reads
an archive of its own making. The same call gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import photographs

Fields = dict[str, bytes]

SAMPLES = {"A": 2000, "B": 100_000, "C": 500}
SHARDS = 4
WORDS = [
    "the",
    "shard",
    "holds",
    "a",
    "sample",
    "whose",
    "fields",
    "are",
    "named",
    "by",
    "their",
    "extension",
    "in",
    "order",
]


def make(folder: str, scale: float = 1.0, *, generated: bool = False) -> dict[str, list[str]]:
    """The shards of every data set in the folder, made if they are missing; `scale` shrinks them.

    A has real photographs where they are to be had; its classes are all different.
    """
    os.makedirs(folder, exist_ok=True)
    samples = {name: max(SHARDS, int(SAMPLES[name] * scale)) for name in SAMPLES}
    shards = {name: make_set(folder, name, samples[name]) for name in ("B", "C")}
    shards["A"] = real_photographs(folder, samples["A"], generated=generated)
    shards["A.tgz"] = [compressed(shard) for shard in shards["A"]]
    return shards


def real_photographs(folder: str, samples: int, *, generated: bool) -> list[str]:
    """Photographs from wallpapers, or generated ones where there are none."""
    wallpapers = [] if generated else photographs.found(folder)
    kind = "real" if wallpapers else "made"
    names = [os.path.join(folder, f"A-{kind}-{samples}-{shard:03d}.tar") for shard in range(SHARDS)]
    cut = photographs.Photographs(wallpapers)
    for shard, path in enumerate(names):
        if not os.path.exists(path):
            first, last = samples * shard // SHARDS, samples * (shard + 1) // SHARDS
            write_shard(path, (_labelled(cut if wallpapers else None, number) for number in range(first, last)), first)
    return names


def is_real(shards: list[str]) -> bool:
    """Whether the shards have real photographs."""
    return "-real-" in os.path.basename(shards[0])


def _labelled(cut: photographs.Photographs | None, number: int) -> Fields:
    rng = np.random.default_rng([ord("A"), number])
    if cut is None:
        return {**photograph(number, rng), "cls": b"%d" % number}
    data, width, height = cut.photograph(number, rng)
    about = {"index": number, "width": width, "height": height, "caption": sentence(rng, 12)}
    return {"cls": b"%d" % number, "jpg": data, "json": json.dumps(about).encode()}


def warm(path: str) -> None:
    """Read the file once, so that every round finds it in the page cache."""
    with open(path, "rb") as stream:
        while stream.read(1 << 24):
            pass


def make_set(folder: str, name: str, samples: int) -> list[str]:
    """One data set in SHARDS shards."""
    names = [os.path.join(folder, f"{name}-{samples}-{shard:03d}.tar") for shard in range(SHARDS)]
    for shard, path in enumerate(names):
        if not os.path.exists(path):
            first, last = samples * shard // SHARDS, samples * (shard + 1) // SHARDS
            write_shard(path, fields_of(name, first, last), first)
    return names


def write_shard(path: str, samples: Iterator[Fields], first: int) -> None:
    with tarfile.open(path + ".part", "w", format=tarfile.USTAR_FORMAT) as archive:
        for index, fields in enumerate(samples, first):
            for extension, data in fields.items():
                info = tarfile.TarInfo(f"{index:08d}.{extension}")
                info.size = len(data)
                info.mtime = 1_700_000_000
                archive.addfile(info, io.BytesIO(data))
    os.replace(path + ".part", path)


def compressed(shard: str) -> str:
    path = shard.removesuffix(".tar") + ".tgz"
    if not os.path.exists(path):
        with open(shard, "rb") as source, gzip.GzipFile(path + ".part", "wb", compresslevel=6, mtime=0) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(path + ".part", path)
    return path


def fields_of(name: str, first: int, last: int) -> Iterator[Fields]:
    """The samples of a data set, field names in the order in which they lie in the shard."""
    make_fields: dict[str, Callable[[int, Any], Fields]] = {"B": small, "C": array}
    for index in range(first, last):
        yield make_fields[name](index, np.random.default_rng([ord(name), index]))


def photograph(index: int, rng: np.random.Generator) -> Fields:
    """A JPEG of about 90 KB, 500 x 375: soft shapes, a gradient and grain, as a photograph has them."""
    from PIL import Image

    shapes = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
        (500, 375), Image.Resampling.BICUBIC
    )
    gradient = np.linspace(-30, 30, 375)[:, None, None]
    grain = rng.normal(0, 12, (375, 500, 1))
    pixels = np.clip(np.asarray(shapes, dtype=np.float32) + gradient + grain, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=91)
    about = {"index": index, "width": 500, "height": 375, "caption": sentence(rng, 12)}
    return {"cls": b"%d" % (index % 1000), "jpg": stream.getvalue(), "json": json.dumps(about).encode()}


def small(index: int, rng: np.random.Generator) -> Fields:
    """300 bytes of text, 200 of JSON, a class."""
    about = {"index": index, "split": "train"}
    about["note"] = sentence(rng, 40)[: 200 - len(json.dumps(about | {"note": ""}))]
    text = sentence(rng, 80)[:300]
    return {"cls": b"%d" % (index % 1000), "json": json.dumps(about).encode(), "txt": text.encode()}


def array(index: int, rng: np.random.Generator) -> Fields:
    """One megabyte of numbers."""
    stream = io.BytesIO()
    np.save(stream, rng.integers(0, 256, (1000, 1000), dtype=np.uint8))
    return {"cls": b"%d" % (index % 1000), "npy": stream.getvalue()}


def sentence(rng: np.random.Generator, words: int) -> str:
    return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), words))
