"""Pictures and keys of small datasets."""

from __future__ import annotations

import io

from PIL import Image


def png(value: int, size: tuple[int, int] = (4, 3)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


def keys(dataset):
    return [sample["__key__"] for sample in dataset]
