"""Images as pixels, in the form that a spec names."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from webdataset.base.packages import imported

from .imageheaders import check_scans
from .packages import torch_package
from .stored import DEEP_MODES, deep_floats, deep_picture, misread_by_pillow, opened, pillow, stored_image

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL.Image import Image

    Array = np.ndarray[Any, Any]

# spec -> container, value type, Pillow mode: those of webdataset 1.x, over which programs iterate
imagespecs: dict[str, tuple[str, str | None, str]] = {
    "l8": ("numpy", "uint8", "l"),
    "rgb8": ("numpy", "uint8", "rgb"),
    "rgba8": ("numpy", "uint8", "rgba"),
    "l": ("numpy", "float", "l"),
    "rgb": ("numpy", "float", "rgb"),
    "rgba": ("numpy", "float", "rgba"),
    "torchl8": ("torch", "uint8", "l"),
    "torchrgb8": ("torch", "uint8", "rgb"),
    "torchrgba8": ("torch", "uint8", "rgba"),
    "torchl": ("torch", "float", "l"),
    "torchrgb": ("torch", "float", "rgb"),
    "torch": ("torch", "float", "rgb"),
    "torchrgba": ("torch", "float", "rgba"),
    "pill": ("pil", None, "l"),
    "pil": ("pil", None, "rgb"),
    "pilrgb": ("pil", None, "rgb"),
    "pilrgba": ("pil", None, "rgba"),
}

STORED: dict[str, tuple[str, str | None, str]] = {
    "pixels": ("numpy", None, "stored"),
    "torchpixels": ("torch", None, "stored"),
}
"""Specs that keep the type and mode of the file: they are not in the table above, whose values programs look at."""

ALIASES = {"rgbtorch": "torchrgb"}
"""Other names of specs; they are not in the table either."""

IMAGE_EXTENSIONS = [
    "blp", "bmp", "dib", "bufr", "cur", "pcx", "dcx", "dds", "ps", "eps", "fit", "fits", "fli", "flc", "ftc", "ftu",
    "gbr", "gif", "grib", "h5", "hdf", "png", "apng", "jp2", "j2k", "jpc", "jpf", "jpx", "j2c", "icns", "ico", "im",
    "iim", "tif", "tiff", "jfif", "jpe", "jpg", "jpeg", "mpg", "mpeg", "msp", "pcd", "pxr", "pbm", "pgm", "ppm",
    "pnm", "psd", "bw", "rgb", "rgba", "sgi", "ras", "tga", "icb", "vda", "vst", "webp", "wmf", "emf", "xbm", "xpm",
]  # fmt: skip

WIDER = {"uint16": "int32", "uint32": "int64"}  # for versions of torch that lack the type

# Pillow warns above this number of pixels and refuses twice as many: large images are left to it
MANY_PIXELS = 89_478_485


def spec_names() -> list[str]:
    """The specs that there are, without aliases."""
    return [*imagespecs, *STORED]


def decode_image(data: bytes, spec: str) -> Any:
    """The pixels of an image, in the form that the spec names."""
    name = ALIASES.get(spec, spec)
    container, values, mode = STORED[name] if name in STORED else imagespecs[name]
    if container == "pil":
        return pillow_image(data, mode)
    pixels = _jpeg_pixels(data, mode)
    if pixels is None:
        pixels = _other_pixels(data, values, mode)
    if container == "torch" and pixels.ndim == 3:
        pixels = pixels.transpose(2, 0, 1)
    if values == "float" and pixels.dtype.kind != "f":
        pixels = _scaled(pixels)
    return as_tensor(pixels) if container == "torch" else pixels


def pillow_image(data: bytes, mode: str) -> Image:
    """The image through Pillow, converted to the mode."""
    picture = _shallow_picture(data, mode)
    return deep_picture(data, mode) if picture is None else picture


def _shallow_picture(data: bytes, mode: str) -> Image | None:
    """The image converted by Pillow, if that is right: for deep ones it is not."""
    if misread_by_pillow(data):
        return None
    with opened(data) as image:
        if image.mode in DEEP_MODES:
            return None
        pixels = _jpeg_pixels(data, mode) if image.format == "JPEG" else None
        if pixels is None:
            image.load()
            if mode != "rgba" and isinstance(image.info.get("transparency"), bytes):
                del image.info["transparency"]  # Pillow would do the same, and warn
            return image.convert(mode.upper())
        picture = pillow().fromarray(pixels)
        picture.info = image.info.copy()  # exif, profile and so on, as `convert` hands them on
        return picture


def _jpeg_pixels(data: bytes, mode: str) -> Array | None:
    """A JPEG's pixels by simplejpeg, where they are known to be those of Pillow; else None.

    Both use libjpeg-turbo with the same settings for YCbCr, RGB and gray files. Everything else, and every
    file that simplejpeg complains about, goes to Pillow, which returns the pixels or raises the error.
    """
    simplejpeg = simplejpeg_package()
    if simplejpeg is None or mode == "rgba" or data[:3] != b"\xff\xd8\xff":
        return None
    check_scans(data)
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        if colorspace not in ("YCbCr", "Gray", "RGB") or height * width > MANY_PIXELS:
            return None
        gray = mode != "rgb" and colorspace == "Gray"
        pixels: Array = simplejpeg.decode_jpeg(data, "GRAY" if gray else "RGB")
    except ValueError:
        return None
    if gray:
        return pixels[:, :, 0]
    return _gray(pixels) if mode == "l" else pixels


def _gray(pixels: Array) -> Array:
    """Colour to gray as Pillow weighs it; libjpeg's own gray would differ."""
    import numpy as np

    return np.array(pillow().fromarray(pixels).convert("L"))


def _other_pixels(data: bytes, values: str | None, mode: str) -> Array:
    import numpy as np

    if mode == "stored":
        return stored_image(data).pixels
    picture = _shallow_picture(data, mode)
    if picture is None:
        if values == "float":
            return deep_floats(data, mode)
        picture = deep_picture(data, mode)
    return np.array(picture)


def _scaled(pixels: Array) -> Array:
    import numpy as np

    scaled = np.empty(pixels.shape, np.float32)
    return np.divide(pixels, np.float32(255), out=scaled, dtype=np.float32, casting="unsafe")


def as_tensor(pixels: Array) -> torch.Tensor:
    """The pixels as a tensor, of a wider type where torch lacks theirs."""
    import numpy as np

    torch = torch_package()
    if not hasattr(torch, pixels.dtype.name):
        pixels = pixels.astype(WIDER.get(pixels.dtype.name, pixels.dtype))
    return torch.from_numpy(np.ascontiguousarray(pixels))


@cache
def simplejpeg_package() -> Any:
    """simplejpeg, if it is installed."""
    try:
        return imported("simplejpeg")
    except ImportError:
        return None
