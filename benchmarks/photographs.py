"""Real photographs for the benchmarks: wallpapers of Debian, cut to sizes as those of ImageNet.

`apt-get download` fetches the packages, which needs neither root nor an installation. Without Debian, or without a way
to its packages, `found` is empty, and data.py makes pictures instead.
"""

from __future__ import annotations

import glob
import io
import os
import shutil
import subprocess
from typing import Any

PACKAGES = ("mate-backgrounds", "ukui-wallpapers", "plasma-workspace-wallpapers", "gnome-backgrounds")
SIZE = (590, 443)
QUALITY = 96


def found(folder: str) -> list[str]:
    """The wallpapers, fetched if they are not there yet; the largest version of each."""
    unpacked = os.path.join(folder, "wallpapers")
    if not os.path.isdir(unpacked):
        _fetch(unpacked)
    paths = sorted(glob.glob(os.path.join(unpacked, "**", "*.jp*g"), recursive=True))
    return [path for path in paths if os.path.getsize(path) > 500_000]


def _fetch(unpacked: str) -> None:
    part = unpacked + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        for package in PACKAGES:
            subprocess.run(["apt-get", "-qq", "download", package], cwd=part, timeout=300, check=False)
        for package in glob.glob(os.path.join(part, "*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, part], check=False)
            os.unlink(package)
    os.replace(part, unpacked)


class Photographs:
    """Cuts photographs out of wallpapers, the same for the same number."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._opened: tuple[str, Any] = ("", None)

    def photograph(self, number: int, rng: Any) -> tuple[bytes, int, int]:
        """A JPEG, its width and its height: a part of a wallpaper, scaled to about the size."""
        from PIL import Image

        # neighbours come from one wallpaper, so that each is decoded only once
        wallpaper = self._wallpaper(self._paths[number // 32 % len(self._paths)])
        width, height = (int(side * rng.uniform(0.8, 1.2)) for side in SIZE)
        if rng.random() < 0.25:
            width, height = height, width
        scale = rng.uniform(1.0, max(1.0, min(wallpaper.width / width, wallpaper.height / height, 3.0)))
        wide, tall = min(int(width * scale), wallpaper.width), min(int(height * scale), wallpaper.height)
        left, top = int(rng.integers(0, wallpaper.width - wide + 1)), int(rng.integers(0, wallpaper.height - tall + 1))
        picture = wallpaper.resize((width, height), Image.Resampling.BICUBIC, (left, top, left + wide, top + tall))
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=QUALITY)
        return file.getvalue(), width, height

    def _wallpaper(self, path: str) -> Any:
        from PIL import Image

        if self._opened[0] != path:
            self._opened = path, Image.open(path).convert("RGB")
        return self._opened[1]
