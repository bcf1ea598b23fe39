"""Archives that the standard library writes and reads."""

from __future__ import annotations

import io
import random
import tarfile


def build(specs, format: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format, encoding="utf-8") as tar:
        for name, size, type, mtime in specs:
            info = tarfile.TarInfo(name)
            info.type, info.mtime = type, mtime
            info.linkname = "target" if type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            regular = type in (tarfile.REGTYPE, tarfile.AREGTYPE)
            info.size = size if regular else 0
            try:
                tar.addfile(info, io.BytesIO(random.Random(size).randbytes(size)) if regular else None)
            except ValueError:  # a name that ustar cannot hold
                continue
    return file.getvalue()


def by_tarfile(archive: bytes) -> list[tuple[str, int, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as tar:
        return [(info.name, info.offset, tar.extractfile(info).read()) for info in tar if info.isreg()]
