"""Fields as pictures that a browser shows: images, masks and depth in false colours, arrays as heat maps.

Whatever the field holds, what comes out was encoded here, as PNG or JPEG, and is not larger than asked for.
"""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.codecs.images import pillow_image
from webdataset.codecs.packages import is_tensor
from webdataset.codecs.stored import DEEP_MODES, misread_by_pillow, opened, pillow, stored_image
from webdataset.errors import DecodingError, LimitError

from .colours import false_colours, value_range
from .kinds import overlay_of

if TYPE_CHECKING:
    import numpy
    from PIL.Image import Image

    Array = numpy.ndarray[Any, Any]

MOST_PIXELS = 100_000_000
MOST_NUMBERS = 50_000_000
JPEG_QUALITY = 85
SHEET = 3
"""Pictures on each side of a sheet with several."""
LINE_HEIGHT = 32
"""Pixels that the heat map of a line of numbers is high."""


class Picture(NamedTuple):
    """An encoded picture."""

    data: bytes
    type: str
    """Its media type."""


def image_facts(data: bytes) -> dict[str, Any]:
    """What the header of an image says: format, mode, width and height.

    >>> from webdataset.codecs.imagefiles import encode_png
    >>> import numpy as np
    >>> image_facts(encode_png(np.zeros((2, 3, 3), np.uint8)))
    {'format': 'PNG', 'mode': 'RGB', 'width': 3, 'height': 2}
    """
    with _opened(data) as image:
        return {"format": image.format, "mode": image.mode, "width": image.width, "height": image.height}


def image_picture(field: str, data: bytes, size: int) -> Picture:
    """An image of at most `size` pixels on each side; masks and depth in false colours."""
    with _opened(data) as image:
        deep = image.mode in DEEP_MODES or image.mode in ("I", "F") or misread_by_pillow(data)
        colours = image.mode in ("RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "LA", "PA")
        overlay = overlay_of(field)
        if overlay is not None and not colours:
            return overlay_picture(stored_image(data).pixels, overlay, size)
        if not deep:
            if image.format == "JPEG":
                image.draft("RGB", (size, size))  # decodes at a half, a quarter or an eighth of the size
            return _encoded(_smaller(image.convert("RGBA" if _is_transparent(image) else "RGB"), size))
    try:
        return _encoded(_smaller(pillow_image(data, "rgb"), size))
    except DecodingError:  # values without a scale, as metres or counts
        return heat_map(stored_image(data).pixels, size)


def overlay_picture(values: object, kind: str, size: int) -> Picture:
    """Numbers (H x W) as a picture to lay over an image; `kind` is "mask" or "depth"."""
    return _encoded(_from_colours(false_colours(_plane(_array(values)), kind), size))


def heat_map(values: object, size: int) -> Picture:
    """An array as a picture: as an image if it looks like one, else its first plane in false colours."""
    return _encoded(_sheet(_array(values), size))


def _sheet(numbers: Array, size: int) -> Image:
    """An array as one image; of a batch or a video, the first few beside and below each other."""
    if numbers.ndim != 4 or len(numbers) < 2:
        return _as_image(numbers, size) or _from_colours(false_colours(_plane(numbers)), size)
    few = numbers[: SHEET * SHEET]
    columns = math.ceil(math.sqrt(len(few)))
    tiles = [_sheet(one, max(1, size // columns)) for one in few]
    width, height = tiles[0].size
    sheet = pillow().new(tiles[0].mode, (width * columns, height * math.ceil(len(tiles) / columns)))
    for place, tile in enumerate(tiles):
        sheet.paste(tile, (place % columns * width, place // columns * height))
    return sheet


def array_facts(values: Any) -> dict[str, Any]:
    """Shape, type of numbers, range and mean of an array.

    >>> import numpy as np
    >>> array_facts(np.array([[1.0, 3.0]]))
    {'shape': [1, 2], 'dtype': 'float64', 'min': 1.0, 'max': 3.0, 'mean': 2.0}
    """
    import numpy as np

    facts: dict[str, Any] = {"shape": [int(n) for n in values.shape], "dtype": str(values.dtype).removeprefix("torch.")}
    if not 0 < math.prod(values.shape) <= MOST_NUMBERS:
        return facts
    try:
        numbers = _array(values)
    except DecodingError:
        return facts  # texts, dates and the like have no range
    finite = numbers[np.isfinite(numbers)]
    if finite.size:
        low, high = value_range(numbers)
        facts |= {"min": low, "max": high, "mean": float(finite.mean(dtype=np.float64))}
    if strange := int(numbers.size - finite.size):
        facts["not_finite"] = strange
    return facts


def _opened(data: bytes) -> Image:
    """The image, not decoded yet, if it is not too large to be shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's about large images: ours is an error
        image = opened(data)
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise LimitError(f"{image.width} x {image.height} pixels are too many to be shown")
    return image


def _is_transparent(image: Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def _smaller(image: Image, size: int) -> Image:
    if image.width > size or image.height > size:
        image.thumbnail((size, size))
    return image


def _encoded(image: Image) -> Picture:
    stream = io.BytesIO()
    if image.mode == "RGB" and image.width * image.height > 64 * 64:
        image.save(stream, "JPEG", quality=JPEG_QUALITY)
        return Picture(stream.getvalue(), "image/jpeg")
    image.save(stream, "PNG", compress_level=3)
    return Picture(stream.getvalue(), "image/png")


def _from_colours(colours: Array, size: int) -> Image:
    """Coloured numbers as an image: pixels stay sharp, and a few numbers are large enough to be seen."""
    image = pillow().fromarray(colours)
    scale = min(size / image.width, size / image.height)
    if scale < 1 or scale >= 2:
        scale = scale if scale < 1 else int(scale)
        image = image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))), 0)
    return image


def _array(values: Any) -> Array:
    """A numpy array of numbers; tensors too."""
    import numpy as np

    if is_tensor(values):
        values = values.detach().cpu()
        values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    numbers = np.asarray(values)
    if numbers.size > MOST_NUMBERS:
        raise LimitError(f"{numbers.size} numbers are too many to be shown")
    if numbers.dtype.kind == "c":
        numbers = np.abs(numbers)
    if numbers.dtype.kind not in "biuf":
        raise DecodingError(f"an array of {numbers.dtype} has no colours")
    return numbers


def _as_image(numbers: Array, size: int) -> Image | None:
    """The array as an image, if it has three or four channels of bytes, or of numbers between 0 and 1."""
    import numpy as np

    while numbers.ndim > 3:
        numbers = numbers[0]
    if numbers.ndim != 3:
        return None
    if numbers.shape[0] in (3, 4) and numbers.shape[2] not in (3, 4):
        numbers = numbers.transpose(1, 2, 0)
    if numbers.shape[2] not in (3, 4) or min(numbers.shape[:2]) < 1:
        return None
    if numbers.dtype.kind == "f" and numbers.size and numbers.min() >= 0 and numbers.max() <= 1:
        numbers = (numbers * 255).round().astype(np.uint8)
    if numbers.dtype != np.uint8:
        return None
    return _smaller(pillow().fromarray(np.ascontiguousarray(numbers)), size)


def _plane(numbers: Array) -> Array:
    """The numbers as H x W: the first of several planes, a line of numbers as a band."""
    import numpy as np

    if numbers.ndim == 3 and numbers.shape[2] in (1, 2, 3, 4) and numbers.shape[0] > 4:
        numbers = numbers[:, :, 0]
    while numbers.ndim > 2:
        numbers = numbers[0]
    if not numbers.size:
        raise DecodingError("the array is empty")
    if numbers.ndim < 2:
        line = numbers.reshape(1, -1)
        numbers = np.repeat(line, max(1, min(LINE_HEIGHT, line.shape[1])), axis=0)
    # what is much larger than any screen is thinned out, before it is coloured
    steps = [max(1, length // 4096) for length in numbers.shape]
    return numbers[:: steps[0], :: steps[1]]
