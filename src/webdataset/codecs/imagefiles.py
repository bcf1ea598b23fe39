"""Image files from Pillow images, arrays and tensors, with every value as it is or an error."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webdataset.errors import EncodingError

from . import png, pnm
from .basic import kind_of
from .packages import is_array, is_tensor
from .stored import DEEP_MODES, pillow

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    Array = np.ndarray[Any, Any]

FORMATS = {"JPG": "JPEG", "TIF": "TIFF", "PBM": "PPM", "PGM": "PPM", "PNM": "PPM", "IMG": "JPEG", "IMAGE": "JPEG"}
OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True, "exact": True}}
WITH_ALPHA = ("PNG", "WEBP", "TIFF")
SHALLOW = ("JPEG", "WEBP")  # 8 bits per channel and no more
DEEP_ENCODERS: dict[str, Callable[[Array], bytes]] = {"PNG": png.encode_deep, "PPM": pnm.encode_deep}


def imageencoder(image: object, format: str = "PNG") -> bytes:
    """A PIL image, array (HxW, HxWx1, HxWx3, HxWx4) or tensor (HxW, CxHxW) as a file of the format.

    Integers and bools are stored as they are, or refused by a format that cannot hold them. Floats must lie in 0..1
    and are scaled by 255, dropping the fraction; a TIFF of one channel holds floats as they are.

    >>> import numpy as np
    >>> imageencoder(np.zeros((2, 2, 3)), "ppm")
    b'P6\\n2 2\\n255\\n\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    name = FORMATS.get(format.upper(), format.upper())
    picture = _as_picture(image, name)
    if is_array(picture):
        return DEEP_ENCODERS[name](picture)
    if name not in WITH_ALPHA and picture.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        raise EncodingError(f"{name} has no transparency; store it as png, or drop the 4th channel")
    stream = io.BytesIO()
    try:
        picture.save(stream, format=name, **OPTIONS.get(name, {}))
    except OSError as exn:  # "cannot write mode F as PNG"
        hint = 'store it as png or tiff, or convert it: image.convert("RGB")'
        raise EncodingError(str(exn), hint=hint) from exn
    return stream.getvalue()


def encode_jpeg(value: object) -> bytes:
    """An image as JPEG, at the best quality."""
    return imageencoder(value, "JPEG")


def encode_png(value: object) -> bytes:
    """An image as PNG."""
    return imageencoder(value, "PNG")


def encode_ppm(value: object) -> bytes:
    """An image as PPM, PGM or PBM, as its mode needs."""
    return imageencoder(value, "PPM")


def encode_tiff(value: object) -> bytes:
    """An image as TIFF."""
    return imageencoder(value, "TIFF")


def encode_webp(value: object) -> bytes:
    """An image as lossless WebP."""
    return imageencoder(value, "WEBP")


def _as_picture(image: Any, name: str) -> Any:
    """A Pillow image that the format holds; a uint16 array for the encoders that are ours."""
    pil = pillow()
    if isinstance(image, pil.Image):
        return _storable(image, name)
    if is_tensor(image):
        image = _channels_last(image.detach().cpu().numpy())
    if not is_array(image):
        raise EncodingError(f"a PIL image, array or tensor is needed, got {kind_of(image)}")
    if not image.size:
        raise EncodingError(f"an image without pixels: {kind_of(image)}")
    pixels = _as_pixels(image, name)
    if pixels.dtype.name == "uint16" and pixels.ndim == 3:
        if name in DEEP_ENCODERS and not (name == "PPM" and pixels.shape[2] != 3):
            return pixels
        raise EncodingError(f"{name} does not take {kind_of(image)}", hint="store it as png, or scale it to uint8")
    return _storable(pil.fromarray(pixels), name)


def _channels_last(pixels: Array) -> Array:
    if pixels.ndim == 2:
        return pixels
    if pixels.ndim == 3 and pixels.shape[0] in (1, 2, 3, 4):
        return pixels.transpose(1, 2, 0)
    raise EncodingError(f"an image tensor has the shape (H, W) or (1 | 2 | 3 | 4, H, W), got {pixels.shape}")


def _as_pixels(pixels: Array, name: str) -> Array:
    """The array as one of a type and shape that Pillow or an encoder of ours takes, with all its values."""
    import numpy as np

    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    channels = (2, 3, 4) if name in ("PNG", "TIFF") else (3, 4)
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[2] in channels):
        allowed = " | ".join(map(str, (1, *channels)))
        raise EncodingError(f"an image array for {name} has the shape (H, W), (H, W, {allowed}), got {pixels.shape}")
    if pixels.dtype.kind == "f":
        pixels = _as_float32(pixels) if name == "TIFF" and pixels.ndim == 2 else _as_bytes(pixels)
    elif pixels.ndim == 2 and np.can_cast(pixels.dtype, np.int32) and pixels.dtype.kind == "i":
        pixels = pixels.astype(np.int32)
    elif pixels.dtype.name not in ("uint8", "uint16") and not (pixels.dtype.kind == "b" and pixels.ndim == 2):
        raise EncodingError(f"{kind_of(pixels)} has no form in {name}", hint=_cure(pixels))
    return np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("="))


def _as_bytes(pixels: Array) -> Array:
    """Floats in 0..1 as 0 to 255."""
    import numpy as np

    wide = pixels if pixels.dtype.itemsize >= 4 else pixels.astype(np.float32)
    low, high = np.min(wide), np.max(wide)
    if not (low > -0.001 and high < 1.001):
        hint = "a tiff of one channel holds any, and so does npy"
        raise EncodingError(f"float pixels must lie in 0..1, these in {low}..{high}", hint=hint)
    return (np.clip(wide, 0.0, 1.0) * 255.0).astype(np.uint8)


def _as_float32(pixels: Array) -> Array:
    import numpy as np

    most = np.finfo(np.float32).max
    if (np.isfinite(pixels) & (np.abs(pixels) > most)).any():
        raise EncodingError(f"a tiff holds 32-bit floats, up to {most}", hint="store it as npy")
    return pixels.astype(np.float32)


def _cure(pixels: Array) -> str:
    """What to do with values of a type that no image has."""
    import numpy as np

    if pixels.dtype.kind not in "biu":
        return "store it as npy"
    low, high = int(pixels.min()), int(pixels.max())
    for kind in ("uint8", "uint16"):
        if low >= 0 and high <= np.iinfo(kind).max:
            return f"its values lie in {low}..{high}, so .astype({kind!r}) keeps them"
    return f"its values lie in {low}..{high}: a tiff of one channel holds int32, npy any"


def _storable(picture: Image, name: str) -> Image | Array:
    """The picture in a mode that the format holds as it is, where Pillow would change values or not know the mode;
    a uint16 array for the encoders that are ours."""
    if picture.mode in DEEP_MODES and name in SHALLOW:
        hint = "store it as png or tiff, or scale it to uint8"
        raise EncodingError(f"{name} has 8 bits per channel, the image more (mode {picture.mode})", hint=hint)
    if picture.mode in DEEP_MODES and picture.mode != "F" and name in DEEP_ENCODERS:
        pixels = _as_uint16(picture, name)
        return _with_pixels(picture, pixels) if name == "PNG" else pixels
    if picture.mode == "P" and name == "PNG":
        return _with_whole_palette(picture)
    return picture


def _as_uint16(picture: object, name: str) -> Array:
    import numpy as np

    pixels = np.asarray(picture)
    if pixels.min() < 0 or pixels.max() > 65535:
        hint = "a tiff holds int32, npy any"
        raise EncodingError(f"{name} holds 0..65535, the values lie in {pixels.min()}..{pixels.max()}", hint=hint)
    return pixels.astype(np.uint16)


def _with_pixels(picture: Image, pixels: Array) -> Image:
    changed = pillow().fromarray(pixels)
    changed.info = picture.info.copy()
    return changed


def _with_whole_palette(picture: Image) -> Image:
    """A palette for every index: Pillow takes the bits per pixel from its length, and cuts off larger indices."""
    mode = picture.palette.mode if picture.palette else "RGB"  # or RGBA
    palette = picture.getpalette(mode) or []
    missing = len(mode) * (picture.getextrema()[1] + 1) - len(palette)
    if missing <= 0:
        return picture
    picture = picture.copy()
    picture.putpalette([*palette, *bytes(missing)], mode)
    return picture
