"""JPEG files of which a part is wanted, or a smaller picture: decoded by simplejpeg, or by libjpeg-turbo 3 where it is.

libjpeg-turbo 3 can leave out what lies outside a rectangle. The library is found on the system or in the wheel of the
package `turbojpeg`, and never needed.
"""

from __future__ import annotations

import ctypes
import glob
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from .imageheaders import check_scans
from .images import MANY_PIXELS, simplejpeg_package

if TYPE_CHECKING:
    from ctypes import CDLL

    import numpy as np

    Array = np.ndarray[Any, Any]

WORTH_CROPPING = 0.7
"""A rectangle of less than this part of the picture is decoded alone."""


LEFT_TO_SCALE = 2
"""What libjpeg scales is scaled at least by this afterwards, so that its filter hardly shows."""


class JpegFile:
    """A JPEG file in RGB whose header was read."""

    def __init__(self, data: bytes, width: int, height: int) -> None:
        self.data = data
        self.width = width
        self.height = height

    @classmethod
    def of(cls, data: bytes) -> JpegFile | None:
        """The file, if it is one that simplejpeg and Pillow decode alike; None for all others."""
        simplejpeg = simplejpeg_package()
        if simplejpeg is None or data[:3] != b"\xff\xd8\xff":
            return None
        check_scans(data)
        try:
            height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
            if colorspace not in ("YCbCr", "Gray", "RGB") or height * width > MANY_PIXELS:
                return None
        except ValueError:
            return None
        return cls(data, width, height)

    def region(self, x: int, y: int, width: int, height: int) -> Array:
        """The pixels of a rectangle."""
        is_small = width * height < WORTH_CROPPING * self.width * self.height
        # of a file that was cut, a part may be all right; but whether it fails must not depend on the part
        if is_small and b"\xff\xd9" in self.data[-64:] and (library := _turbojpeg()) is not None:
            found = library.region(self.data, x, y, width, height)
            if found is not None:
                return found
        return self._whole()[y : y + height, x : x + width]

    def reduced(self, scale: float) -> Array | None:
        """The whole picture at half the size, a quarter or an eighth, if it is to be scaled to less than half of that.

        libjpeg scales while it decodes, which saves most of the work.
        """
        part = 1
        while part < 8 and scale * 2 * LEFT_TO_SCALE * part <= 1:
            part *= 2
        if part == 1:
            return None
        try:
            small: Array = simplejpeg_package().decode_jpeg(
                self.data, "RGB", min_width=-(-self.width // part), min_height=-(-self.height // part), min_factor=1
            )
        except ValueError:
            return None
        return small

    def _whole(self) -> Array:
        from .images import decode_image

        try:
            pixels: Array = simplejpeg_package().decode_jpeg(self.data, "RGB")
        except ValueError:  # Pillow gives the pixels, or the error
            pixels = decode_image(self.data, "rgb8")
        return pixels


class _Region(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "w", "h")]


class TurboJpeg:
    """libjpeg-turbo 3, called through ctypes; each thread has its own decompressor.

    Only decoding releases the GIL: to get it back takes longer than the other calls do.
    """

    BLOCK_WIDTHS = {0: 8, 1: 16, 2: 16, 3: 8, 4: 8, 5: 32, 6: 8}  # noqa: RUF012
    """Kind of subsampling -> width of the blocks at which a rectangle can begin."""
    SUBSAMPLING, RGB = 4, 0

    def __init__(self, path: str) -> None:
        library = ctypes.PyDLL(path)
        library.tj3Init.restype = ctypes.c_void_p
        library.tj3DecompressHeader.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        library.tj3SetCroppingRegion.argtypes = [ctypes.c_void_p, _Region]
        library.tj3Get.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.tj3Destroy.argtypes = [ctypes.c_void_p]
        self._library = library
        self._decompress = ctypes.CDLL(path).tj3Decompress8
        self._decompress.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
        ]  # fmt: skip
        self._local = threading.local()
        self.path = path

    def region(self, data: bytes, x: int, y: int, width: int, height: int) -> Array | None:
        """The pixels of a rectangle; None if the library refuses the file."""
        import numpy as np

        library, handle = self._library, self._handle()
        if library.tj3DecompressHeader(handle, data, len(data)):
            return None
        block = self.BLOCK_WIDTHS.get(library.tj3Get(handle, self.SUBSAMPLING))
        if block is None:
            return None
        left = x // block * block
        wide = width + x - left
        if library.tj3SetCroppingRegion(handle, _Region(left, y, wide, height)):
            return None
        pixels = np.empty((height, wide, 3), np.uint8)
        failed = self._decompress(handle, data, len(data), pixels.ctypes.data, 0, self.RGB)
        library.tj3SetCroppingRegion(handle, _Region(0, 0, 0, 0))
        return None if failed else pixels[:, x - left :]

    def _handle(self) -> Any:
        owned = getattr(self._local, "handle", None)
        if owned is None or owned.process != os.getpid():
            owned = self._local.handle = _Handle(self._library)
        return owned.number


class _Handle:
    """A decompressor, given back when its thread ends."""

    def __init__(self, library: CDLL) -> None:
        self._library = library
        self.number = library.tj3Init(1)
        self.process = os.getpid()

    def __del__(self) -> None:
        if self.process == os.getpid():
            self._library.tj3Destroy(self.number)


@cache
def _turbojpeg() -> TurboJpeg | None:
    for path in _library_paths():
        try:
            return TurboJpeg(path)
        except (OSError, AttributeError):  # not to be loaded, or older than version 3
            continue
    return None


def _library_paths() -> list[str]:
    """Where libturbojpeg may be: in the wheel of `turbojpeg`, then on the system."""
    import importlib.util
    from ctypes.util import find_library

    found = []
    spec = importlib.util.find_spec("turbojpeg")
    if spec is not None and spec.origin:
        found += sorted(glob.glob(os.path.join(os.path.dirname(spec.origin), "turbojpeg.libs", "libturbojpeg*")))
    return [*found, *filter(None, [find_library("turbojpeg")])]
