"""Images as the bytes of a field, and as pixels in the form a spec names."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

from webdataset.errors import DecodingError, EncodingError

from .basic import kind_of
from .packages import is_array, is_tensor, package, torch_package

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# spec -> container, value type, Pillow mode
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

ALIASES = {"rgbtorch": "torchrgb"}
"""Other names of specs; they are not in the table, over which programs iterate."""

IMAGE_EXTENSIONS = [
    "blp", "bmp", "dib", "bufr", "cur", "pcx", "dcx", "dds", "ps", "eps", "fit", "fits", "fli", "flc", "ftc", "ftu",
    "gbr", "gif", "grib", "h5", "hdf", "png", "apng", "jp2", "j2k", "jpc", "jpf", "jpx", "j2c", "icns", "ico", "im",
    "iim", "tif", "tiff", "jfif", "jpe", "jpg", "jpeg", "mpg", "mpeg", "msp", "pcd", "pxr", "pbm", "pgm", "ppm",
    "pnm", "psd", "bw", "rgb", "rgba", "sgi", "ras", "tga", "icb", "vda", "vst", "webp", "wmf", "emf", "xbm", "xpm",
]  # fmt: skip

FORMATS = {"JPG": "JPEG", "TIF": "TIFF", "PBM": "PPM", "PGM": "PPM", "PNM": "PPM", "IMG": "JPEG", "IMAGE": "JPEG"}
OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True, "exact": True}}
WITH_ALPHA = ("PNG", "WEBP", "TIFF")

# Pillow warns above this number of pixels and refuses twice as many: large images are left to it
MANY_PIXELS = 89_478_485


def decode_image(data: bytes, spec: str) -> Any:
    """The pixels of an image, in the form that the spec names."""
    container, values, mode = imagespecs[spec]
    if container == "pil":
        return pillow_image(data, mode)
    pixels = _jpeg_pixels(data, mode)
    if pixels is None:
        pixels = _pillow_pixels(data, mode)
    if container == "torch" and pixels.ndim == 3:
        pixels = pixels.transpose(2, 0, 1)
    if values == "float":
        pixels = _scaled(pixels)
    return _tensor(pixels) if container == "torch" else pixels


def pillow_image(data: bytes, mode: str) -> Any:
    """The image through Pillow, converted to the mode."""
    with _pillow().open(io.BytesIO(data)) as image:
        if image.format == "EPS":  # Pillow would hand the data to a PostScript interpreter
            raise DecodingError("PostScript is a program, which is not run; store a picture of it")
        pixels = _jpeg_pixels(data, mode) if image.format == "JPEG" else None
        if pixels is None:
            image.load()
            return image.convert(mode.upper())
        picture = _pillow().fromarray(pixels)
        picture.info = image.info.copy()  # exif, profile and so on, as `convert` hands them on
        return picture


def imageencoder(image: Any, format: str = "PNG") -> bytes:
    """A PIL image, array (HxW, HxWx1, HxWx3, HxWx4) or tensor (HxW, CxHxW) as a file of the format.

    Floats must lie in 0..1 and are scaled by 255, dropping the fraction.

    >>> import numpy as np
    >>> imageencoder(np.zeros((2, 2, 3)), "ppm")
    b'P6\\n2 2\\n255\\n\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    name = FORMATS.get(format.upper(), format.upper())
    picture = _as_picture(image)
    if name not in WITH_ALPHA and picture.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        raise EncodingError(f"{name} has no transparency; store it as png, or drop the 4th channel")
    stream = io.BytesIO()
    picture.save(stream, format=name, **OPTIONS.get(name, {}))
    return stream.getvalue()


def encode_jpeg(value: Any) -> bytes:
    """An image as JPEG, at the best quality."""
    return imageencoder(value, "JPEG")


def encode_png(value: Any) -> bytes:
    """An image as PNG."""
    return imageencoder(value, "PNG")


def encode_ppm(value: Any) -> bytes:
    """An image as PPM, PGM or PBM, as its mode needs."""
    return imageencoder(value, "PPM")


def encode_tiff(value: Any) -> bytes:
    """An image as TIFF."""
    return imageencoder(value, "TIFF")


def encode_webp(value: Any) -> bytes:
    """An image as lossless WebP."""
    return imageencoder(value, "WEBP")


def _jpeg_pixels(data: bytes, mode: str) -> Array | None:
    """A JPEG's pixels by simplejpeg, where they are known to be those of Pillow; else None.

    Both use libjpeg-turbo with the same settings for YCbCr, RGB and gray files. Everything else, and every
    file that simplejpeg complains about, goes to Pillow: it then gives the pixels or the error.
    """
    simplejpeg = _simplejpeg()
    if simplejpeg is None or mode == "rgba" or data[:3] != b"\xff\xd8\xff":
        return None
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        if colorspace not in ("YCbCr", "Gray", "RGB") or height * width > MANY_PIXELS:
            return None
        gray = mode == "l" and colorspace == "Gray"
        pixels: Array = simplejpeg.decode_jpeg(data, "GRAY" if gray else "RGB")
    except ValueError:
        return None
    if gray:
        return pixels[:, :, 0]
    return pixels if mode == "rgb" else _gray(pixels)


def _gray(pixels: Array) -> Array:
    """Colour to gray as Pillow weighs it; libjpeg's own gray would differ."""
    import numpy as np

    return np.array(_pillow().fromarray(pixels).convert("L"))


def _pillow_pixels(data: bytes, mode: str) -> Array:
    import numpy as np

    return np.array(pillow_image(data, mode))


def _scaled(pixels: Array) -> Array:
    import numpy as np

    scaled = np.empty(pixels.shape, np.float32)
    return np.divide(pixels, np.float32(255), out=scaled, dtype=np.float32, casting="unsafe")


def _tensor(pixels: Array) -> Any:
    import numpy as np

    return torch_package().from_numpy(np.ascontiguousarray(pixels))


def _as_picture(image: Any) -> Any:
    pil = _pillow()
    if isinstance(image, pil.Image):
        return image
    if is_tensor(image):
        image = _channels_last(image.detach().cpu().numpy())
    if not is_array(image):
        raise EncodingError(f"a PIL image, array or tensor is needed, got {kind_of(image)}")
    pixels = _as_pixels(image)
    if not pixels.size:
        raise EncodingError(f"an image without pixels: {kind_of(image)}")
    try:
        return pil.fromarray(pixels)
    except TypeError as exn:
        raise EncodingError(f"{kind_of(image)} is not an image; uint8 or floats in 0..1 are") from exn


def _channels_last(pixels: Array) -> Array:
    if pixels.ndim == 2:
        return pixels
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4):
        return pixels.transpose(1, 2, 0)
    raise EncodingError(f"an image tensor has the shape (H, W) or (1 | 3 | 4, H, W), got {pixels.shape}")


def _as_pixels(pixels: Array) -> Array:
    import numpy as np

    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[2] in (3, 4)):
        raise EncodingError(f"an image array has the shape (H, W), (H, W, 1 | 3 | 4), got {pixels.shape}")
    if pixels.dtype.kind == "f" and pixels.size:
        wide = pixels if pixels.dtype.itemsize >= 4 else pixels.astype(np.float32)
        low, high = np.min(wide), np.max(wide)
        if not (low > -0.001 and high < 1.001):
            raise EncodingError(f"float pixels must lie in 0..1, these in {low}..{high}")
        pixels = (np.clip(wide, 0.0, 1.0) * 255.0).astype(np.uint8)
    return np.ascontiguousarray(pixels)


@cache
def _simplejpeg() -> Any:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def _pillow() -> Any:
    return package("PIL.Image", extra="image", purpose="for images")
