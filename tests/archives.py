"""Archives for the commands that order samples."""

from __future__ import annotations

from pathlib import Path

from tests_support import tar_bytes


def archive(path: Path, samples: list[tuple[str, int, bytes]]) -> Path:
    """Keys are made distinct; classes are not."""
    files = [
        (f"{key}{n}.{ext}", data)
        for n, (key, label, blob) in enumerate(samples)
        for ext, data in (("bin", blob), ("cls", b"%d" % label))
    ]
    path.write_bytes(tar_bytes(files))
    return path
