"""What can be done to a picture: each operation draws its numbers and changes a canvas.

An operation is a function of (canvas, random numbers); one that changes only values, not the geometry, is not applied
to masks. Write your own as a class with `__call__(canvas, rng)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from .canvas import Canvas

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LUMA = (0.299, 0.587, 0.114)

Size = int | tuple[int, int]


class Operation:
    """One step; `is_geometry` says that masks go through it, too."""

    is_geometry = True

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        raise NotImplementedError

    def on_mask(self, canvas: Canvas, rng: Random) -> None:
        """The same geometry for a mask, whose values must not be mixed."""
        self(canvas, rng)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class random_resized_crop(Operation):  # noqa: N801 - written like a function
    """A part of random size, shape and place, scaled to one size, as torchvision's RandomResizedCrop.

    The part has `scale` of the area and a ratio of width to height between those of `ratio`.

    Args:
        size: a number, or (height, width)
        scale: the least and the largest part of the area
        ratio: the least and the largest ratio of width to height
    """

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        self.size = _pair(size)
        self.scale = scale
        self.ratio = ratio
        if not 0 < scale[0] <= scale[1] or not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"scale and ratio are two positive numbers each, got {scale} and {ratio}")

    def box(self, width: int, height: int, rng: Random) -> tuple[int, int, int, int]:
        """Left, top, width and height of the part."""
        area = width * height
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            target = area * rng.uniform(*self.scale)
            shape = math.exp(rng.uniform(low, high))
            wide, tall = round(math.sqrt(target * shape)), round(math.sqrt(target / shape))
            if 0 < wide <= width and 0 < tall <= height:
                return rng.randint(0, width - wide), rng.randint(0, height - tall), wide, tall
        shape = min(max(width / height, self.ratio[0]), self.ratio[1])
        wide = min(width, max(round(height * shape), 1))
        tall = min(height, max(round(width / shape), 1))
        return (width - wide) // 2, (height - tall) // 2, wide, tall

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        canvas.crop(*self.box(*canvas.size, rng))
        canvas.resize(*self.size)

    def on_mask(self, canvas: Canvas, rng: Random) -> None:
        canvas.crop(*self.box(*canvas.size, rng))
        canvas.resize(*self.size, nearest=True)

    def __repr__(self) -> str:
        return f"random_resized_crop({_shown(self.size)})"


class resize(Operation):  # noqa: N801
    """Scale: the shorter side to a number, or to (height, width).

    Args:
        size: a number, or (height, width)
    """

    def __init__(self, size: Size) -> None:
        width, height = _pair(size)
        self.size = size if isinstance(size, int) else (height, width)

    def target(self, width: int, height: int) -> tuple[int, int]:
        """Width and height to scale to."""
        if isinstance(self.size, tuple):
            return self.size[1], self.size[0]
        if width <= height:
            return self.size, max(1, int(self.size * height / width))
        return max(1, int(self.size * width / height)), self.size

    def __call__(self, canvas: Canvas, rng: Random) -> None:  # noqa: ARG002 - nothing is drawn
        canvas.resize(*self.target(*canvas.size))

    def on_mask(self, canvas: Canvas, rng: Random) -> None:  # noqa: ARG002
        canvas.resize(*self.target(*canvas.size), nearest=True)

    def __repr__(self) -> str:
        return f"resize({self.size})"


class center_crop(Operation):  # noqa: N801
    """The center; what is missing at the sides is filled with zeros.

    Args:
        size: a number, or (height, width)
    """

    def __init__(self, size: Size) -> None:
        self.size = _pair(size)

    def __call__(self, canvas: Canvas, rng: Random) -> None:  # noqa: ARG002
        width, height = self.size
        _pad_to(canvas, width, height, 0)
        canvas.crop(round((canvas.size[0] - width) / 2), round((canvas.size[1] - height) / 2), width, height)

    def __repr__(self) -> str:
        return f"center_crop({_shown(self.size)})"


class random_crop(Operation):  # noqa: N801
    """A part of one size at a random place; smaller pictures are filled up with zeros first.

    Args:
        size: a number, or (height, width)
        padding: a border of zeros to add first
    """

    def __init__(self, size: Size, padding: int = 0) -> None:
        self.size = _pair(size)
        self.padding = padding

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        width, height = self.size
        if self.padding:
            _pad(canvas, (self.padding,) * 4, 0)
        _pad_to(canvas, width, height, 0)
        canvas.crop(rng.randint(0, canvas.size[0] - width), rng.randint(0, canvas.size[1] - height), width, height)

    def __repr__(self) -> str:
        return f"random_crop({_shown(self.size)})"


class crop(Operation):  # noqa: N801
    """A fixed rectangle.

    Args:
        left: columns to leave out on the left
        top: rows to leave out at the top
        width: columns to keep
        height: rows to keep
    """

    def __init__(self, left: int, top: int, width: int, height: int) -> None:
        self.box = (left, top, width, height)

    def __call__(self, canvas: Canvas, rng: Random) -> None:  # noqa: ARG002
        canvas.crop(*self.box)

    def __repr__(self) -> str:
        return f"crop{self.box}"


class pad(Operation):  # noqa: N801
    """Add a border: one width for all sides, or (left, top, right, bottom).

    Args:
        border: the width of the border
        fill: its value
    """

    def __init__(self, border: int | tuple[int, int, int, int], fill: int = 0) -> None:
        self.border = (border,) * 4 if isinstance(border, int) else tuple(border)
        self.fill = fill
        if len(self.border) != 4 or min(self.border) < 0:
            raise ValueError(f"a border is one width, or four of them, none negative, got {border!r}")

    def __call__(self, canvas: Canvas, rng: Random) -> None:  # noqa: ARG002
        _pad(canvas, self.border, self.fill)

    def __repr__(self) -> str:
        return f"pad({self.border})"


class flip(Operation):  # noqa: N801
    """Swap left and right, with this probability.

    Args:
        p: the probability
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        if rng.random() < self.p:
            canvas.mirror()

    def __repr__(self) -> str:
        return "flip()" if self.p == 0.5 else f"flip({self.p})"


class vertical_flip(Operation):  # noqa: N801
    """Swap top and bottom, with this probability.

    Args:
        p: the probability
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        if rng.random() < self.p:
            canvas.replace(canvas.pixels()[::-1])


class color_jitter(Operation):  # noqa: N801
    """Change brightness, contrast, saturation and hue at random, in a random order, as torchvision's ColorJitter.

    A number b for brightness, contrast or saturation stands for factors between 1 - b and 1 + b; two numbers for the
    factors themselves. Hue is shifted by up to this part of the circle, at most 0.5.

    Args:
        brightness: a number, or two factors
        contrast: a number, or two factors
        saturation: a number, or two factors
        hue: a part of the circle, or two
    """

    is_geometry = False

    def __init__(
        self,
        brightness: float | tuple[float, float] = 0.0,
        contrast: float | tuple[float, float] = 0.0,
        saturation: float | tuple[float, float] = 0.0,
        hue: float | tuple[float, float] = 0.0,
    ) -> None:
        self.factors = {
            "brightness": _factors(brightness), "contrast": _factors(contrast), "saturation": _factors(saturation),
        }  # fmt: skip
        self.hue = hue if isinstance(hue, tuple) else (-hue, hue)
        if not -0.5 <= self.hue[0] <= self.hue[1] <= 0.5:
            raise ValueError(f"hue is between 0 and 0.5, got {hue!r}")

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        changes = [(name, rng.uniform(*factors)) for name, factors in self.factors.items() if factors != (1.0, 1.0)]
        if any(self.hue):
            changes.append(("hue", rng.uniform(*self.hue)))
        if not changes:
            return
        rng.shuffle(changes)
        pixels = canvas.pixels()
        for name, factor in changes:
            pixels = _hue_shifted(pixels, factor) if name == "hue" else _blended(pixels, name, factor)
        canvas.replace(pixels)

    def __repr__(self) -> str:
        named = [f"{name}={factors}" for name, factors in self.factors.items() if factors != (1.0, 1.0)]
        return f"color_jitter({', '.join(named + ([f'hue={self.hue}'] if any(self.hue) else []))})"


class grayscale(Operation):  # noqa: N801
    """Take the colors away, with this probability; the picture keeps its channels.

    Args:
        p: the probability
    """

    is_geometry = False

    def __init__(self, p: float = 1.0) -> None:
        self.p = p

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        if rng.random() < self.p:
            canvas.replace(_blended(canvas.pixels(), "saturation", 0.0))


class normalize(Operation):  # noqa: N801
    """Values from 0 to 1, minus the mean, divided by the standard deviation, each per channel.

    Args:
        mean: what is subtracted, per channel
        std: what is divided by, per channel
    """

    is_geometry = False

    def __init__(self, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> None:
        self.mean = tuple(map(float, mean))
        self.std = tuple(map(float, std))
        if len(self.mean) != len(self.std) or not all(self.std):
            raise ValueError(f"normalize needs as many deviations as means, none of them 0, got {mean} and {std}")

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        """Nothing here: it is done at the end, in one pass over the values."""

    def constants(self, white: int, channels_first: bool) -> tuple[Any, Any]:
        """What to subtract from values up to `white`, and what to multiply by then, shaped to fit them."""
        return _constants(self.mean, self.std, white, channels_first)

    def __repr__(self) -> str:
        usual = (self.mean, self.std) == (IMAGENET_MEAN, IMAGENET_STD)
        return "normalize()" if usual else f"normalize({self.mean}, {self.std})"


class to_chw(Operation):  # noqa: N801
    """Channels first, as torch wants them."""

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        """Nothing here: the layout changes at the end."""


class dtype(Operation):  # noqa: N801
    """The type of the values: "uint8", "float32" or "float16" (0 to 1 unless they are normalized).

    Args:
        name: the name of the type
    """

    is_geometry = False
    NAMES = ("uint8", "float32", "float16")

    def __init__(self, name: str) -> None:
        if name not in self.NAMES:
            raise ValueError(f"the type of an image is one of {', '.join(self.NAMES)}, got {name!r}")
        self.name = name

    def __call__(self, canvas: Canvas, rng: Random) -> None:
        """Nothing here: values get their type at the end."""

    def __repr__(self) -> str:
        return f"dtype({self.name!r})"


class views(Operation):  # noqa: N801
    """Several views of one picture: each pipeline makes one of them, and the field becomes a tuple of all.

    Args:
        *pipelines: an `images.pipeline` for each view
    """

    def __init__(self, *pipelines: Any) -> None:
        if not pipelines:
            raise ValueError("views needs at least one pipeline")
        self.pipelines = pipelines

    def __repr__(self) -> str:
        return f"views({', '.join(map(repr, self.pipelines))})"


@cache
def _constants(mean: tuple[float, ...], std: tuple[float, ...], white: int, channels_first: bool) -> tuple[Any, Any]:
    import numpy as np

    shape = (-1, 1, 1) if channels_first else (-1,)
    subtracted = np.array(mean, np.float32).reshape(shape) * np.float32(white)
    return subtracted, (1 / (np.array(std, np.float32) * np.float32(white))).reshape(shape)


def _pair(size: Size) -> tuple[int, int]:
    """Width and height; sizes are given as one number or as (height, width), like torchvision's."""
    sides: Any = size if isinstance(size, (tuple, list)) else (size, size)  # whatever a program gives
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError(f"a size is a positive whole number, or (height, width), got {size!r}")
    return sides[1], sides[0]


def _shown(size: tuple[int, int]) -> str:
    return str(size[0]) if size[0] == size[1] else str((size[1], size[0]))


def _factors(value: float | tuple[float, float]) -> tuple[float, float]:
    low, high = value if isinstance(value, tuple) else (max(0.0, 1.0 - value), 1.0 + value)
    if not 0 <= low <= high:
        raise ValueError(f"factors of a jitter are not negative, got {value!r}")
    return low, high


def _pad_to(canvas: Canvas, width: int, height: int, fill: int) -> None:
    """Borders on both sides until the picture is as large."""
    wide, tall = max(0, width - canvas.size[0]), max(0, height - canvas.size[1])
    if wide or tall:
        _pad(canvas, (wide // 2, tall // 2, wide - wide // 2, tall - tall // 2), fill)


def _pad(canvas: Canvas, border: Sequence[int], fill: int) -> None:
    import numpy as np

    left, top, right, bottom = border
    pixels = canvas.pixels()
    sides = [(top, bottom), (left, right)] + [(0, 0)] * (pixels.ndim - 2)
    canvas.replace(np.pad(pixels, sides, constant_values=fill))


def _blended(pixels: Array, name: str, factor: float) -> Array:
    """The picture and black, its mean gray, or its own gray, mixed."""
    import numpy as np

    values = pixels.astype(np.float32)
    other: float | Array = 0.0
    if name != "brightness":
        gray = values[..., :3] @ np.array(LUMA, np.float32) if values.ndim == 3 else values
        other = gray.mean() if name == "contrast" else gray[..., None] if values.ndim == 3 else gray
    mixed = np.rint(other + (values - other) * np.float32(factor))
    clipped: Array = np.clip(mixed, 0, 255).astype(np.uint8)
    return clipped


def _hue_shifted(pixels: Array, shift: float) -> Array:
    import numpy as np

    from webdataset.codecs.stored import pillow

    image = pillow()
    hsv = np.array(image.fromarray(np.ascontiguousarray(pixels[..., :3])).convert("HSV"))
    hsv[..., 0] += np.uint8(int(shift * 255) % 256)
    return np.array(image.fromarray(hsv, "HSV").convert("RGB"))
