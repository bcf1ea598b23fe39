"""A picture on its way through the operations: decoded as late, and as little, as they allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webdataset.base.packages import loaded
from webdataset.codecs.images import decode_image
from webdataset.codecs.jpeg import JpegFile
from webdataset.codecs.packages import torch_if_installed
from webdataset.codecs.stored import pillow

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SPECS = {"rgb": "rgb8", "rgba": "rgba8", "l": "l8", "stored": "pixels"}


class Canvas:
    """Bytes of an image file or pixels, and the rectangle of them that is wanted.

    `crop` and `mirror` only note what is wanted; `resize` and `pixels` decode. Pixels are H x W or H x W x C. torch
    resizes faster: it is imported where it is installed, or else used only if the program has imported it.

    Args:
        data: the bytes of the file
        mode: "rgb", "rgba", "l", or "stored" for the values as they are
        imports_torch: whether to import torch
    """

    def __init__(self, data: bytes, mode: str = "rgb", *, imports_torch: bool = True) -> None:
        self._mode = mode
        self._imports_torch = imports_torch
        self._file = JpegFile.of(data) if mode == "rgb" else None
        self._pixels: Array | None = None
        if self._file is None:
            self._pixels = decode_image(data, SPECS[mode])
            height, width = self._pixels.shape[:2]
        else:
            height, width = self._file.height, self._file.width
        self._box = (0, 0, width, height)
        self._mirrored = False

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self._box[2:]

    def crop(self, left: int, top: int, width: int, height: int) -> None:
        """Keep a rectangle, which must lie inside."""
        x, y, old_width, old_height = self._box
        if left < 0 or top < 0 or left + width > old_width or top + height > old_height or width < 1 or height < 1:
            raise ValueError(
                f"a crop of {width} x {height} at {left}, {top} does not fit into {old_width} x {old_height}"
            )
        if self._mirrored:
            left = old_width - left - width
        self._box = (x + left, y + top, width, height)

    def mirror(self) -> None:
        """Swap left and right."""
        self._mirrored = not self._mirrored

    def replace(self, pixels: Array) -> None:
        """Go on with other pixels."""
        self._pixels, self._file = pixels, None
        self._box = (0, 0, pixels.shape[1], pixels.shape[0])
        self._mirrored = False

    def pixels(self) -> Array:
        """What is left of the picture, perhaps as a view of more."""
        pixels = self._region()
        return pixels[:, ::-1] if self._mirrored else pixels

    def resize(self, width: int, height: int, *, nearest: bool = False) -> None:
        """Scale to this size: antialiased and linear, or by nearest neighbours."""
        import numpy as np

        if (width, height) == self.size:
            return
        scaled = None if nearest else self._scaled_by_decoder(width, height)
        if scaled is None:
            pixels = np.ascontiguousarray(self._region())
            scaled = _nearest(pixels, width, height) if nearest else self._linear(pixels, width, height)
        mirrored = self._mirrored
        self.replace(scaled)
        self._mirrored = mirrored

    def _scaled_by_decoder(self, width: int, height: int) -> Array | None:
        """The same from a smaller picture, where a JPEG decoder can make one; its borders are fractions of pixels."""
        import numpy as np

        x, y, old_width, old_height = self._box
        small = None if self._file is None else self._file.reduced(max(width / old_width, height / old_height))
        if small is None or self._file is None:
            return None
        across, down = small.shape[1] / self._file.width, small.shape[0] / self._file.height
        box = (x * across, y * down, (x + old_width) * across, (y + old_height) * down)
        image = pillow()
        return np.array(image.fromarray(small).resize((width, height), image.Resampling.BILINEAR, box=box))

    def _linear(self, pixels: Array, width: int, height: int) -> Array:
        """torch's resampling of bytes takes a third of Pillow's time; both agree to a unit."""
        is_coloured = pixels.ndim == 3 and pixels.shape[2] in (3, 4) and str(pixels.dtype) == "uint8"
        torch = torch_if_installed() if self._imports_torch else loaded("torch")
        return _by_torch(torch, pixels, width, height) if is_coloured and torch else _by_pillow(pixels, width, height)

    def _region(self) -> Array:
        """The rectangle's pixels."""
        x, y, width, height = self._box
        if self._file is not None:
            return self._file.region(x, y, width, height)
        assert self._pixels is not None
        return self._pixels[y : y + height, x : x + width]


def _nearest(pixels: Array, width: int, height: int) -> Array:
    import numpy as np

    rows = ((np.arange(height) + 0.5) * pixels.shape[0] / height).astype(np.intp)
    columns = ((np.arange(width) + 0.5) * pixels.shape[1] / width).astype(np.intp)
    found: Array = pixels[rows[:, None], columns[None, :]]
    return found


def _by_torch(torch: Any, pixels: Array, width: int, height: int) -> Array:
    """Views are made by numpy: every operation of torch lets other threads take the GIL."""
    tensor = torch.from_numpy(pixels.transpose(2, 0, 1)[None])
    interpolate = torch.nn.functional.interpolate
    scaled = interpolate(tensor, size=(height, width), mode="bilinear", antialias=True, align_corners=False)
    found: Array = scaled.numpy()[0].transpose(1, 2, 0)
    return found


def _by_pillow(pixels: Array, width: int, height: int) -> Array:
    import numpy as np

    image = pillow()
    if pixels.dtype == np.uint8 and (pixels.ndim == 2 or pixels.shape[2] in (3, 4)):
        picture = image.fromarray(pixels)
        return np.array(picture.resize((width, height), image.Resampling.BILINEAR))
    planes = pixels[:, :, None] if pixels.ndim == 2 else pixels
    scaled = [
        image.fromarray(np.ascontiguousarray(planes[:, :, n], dtype=np.float32)).resize(
            (width, height), image.Resampling.BILINEAR
        )
        for n in range(planes.shape[2])
    ]
    joined = np.stack([np.asarray(plane) for plane in scaled], axis=2).astype(pixels.dtype)
    return joined[:, :, 0] if pixels.ndim == 2 else joined
