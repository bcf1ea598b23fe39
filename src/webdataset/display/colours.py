"""False colours: numbers as pixels, for masks, depth and arrays.

>>> import numpy as np
>>> false_colours(np.array([[0, 1]]), "mask").tolist()[0][0]
[0, 0, 0, 0]
"""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# viridis at equal distances: even in brightness, and the same to those who cannot tell red from green
_VIRIDIS = (
    "440154 481567 482677 453781 404788 39568c 33638d 2d708e 287d8e 238a8d 1f968b 20a387 29af7f 3cbb75 55c667 73d055 "
    "95d840 b8de29 dce319 fde725"
)
GOLDEN = 0.61803398875
MASK_COLOURS = 256


def false_colours(values: Array, kind: str = "depth") -> Array:
    """Numbers (H x W) as RGBA: a colour of its own for each value of a mask, from dark to bright for other numbers.

    In a mask, 0 is transparent; so is what is not a number.
    """
    import numpy as np

    if kind == "mask":
        of_palette = values.astype(np.int64) % (MASK_COLOURS - 1) + 1
        coloured: Array = mask_palette()[np.where(values == 0, 0, of_palette)]
        return coloured
    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    low, high = value_range(numbers)
    scaled = np.where(finite, (numbers - low) / ((high - low) or 1), 0)
    palette = scale_palette()
    colours: Array = palette[(scaled.clip(0, 1) * (len(palette) - 1)).round().astype(np.int64)]
    colours[~finite] = 0
    return colours


def value_range(values: Array) -> tuple[float, float]:
    """The least and the largest of the numbers that are finite; (0, 0) without any."""
    import numpy as np

    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def scale_palette() -> Array:
    """256 colours from dark to bright, RGBA."""
    import numpy as np

    stops = np.array([list(bytes.fromhex(stop)) for stop in _VIRIDIS.split()], np.float64)
    places = np.linspace(0, len(stops) - 1, 256)
    channels = [np.interp(places, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    return np.stack([*channels, np.full(256, 255.0)], axis=1).round().astype(np.uint8)


def mask_palette() -> Array:
    """A colour for each value of a mask: neighbours are far apart, and 0 is transparent."""
    import numpy as np

    rows = [[0, 0, 0, 0]]
    for number in range(1, MASK_COLOURS):
        red, green, blue = colorsys.hsv_to_rgb(
            number * GOLDEN % 1, (0.9, 0.65)[number % 2], (1.0, 0.8)[number // 2 % 2]
        )
        rows.append([round(255 * red), round(255 * green), round(255 * blue), 255])
    return np.array(rows, np.uint8)
