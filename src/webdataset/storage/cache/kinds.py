"""The kind of a file, by its first bytes.

>>> kind_of(b"BZh91AY&SY")
'bzip2 compressed data'
"""

from __future__ import annotations

MAGIC = (
    (b"\x1f\x8b", "gzip compressed data"),
    (b"BZh", "bzip2 compressed data"),
    (b"\xfd7zXZ\0", "XZ compressed data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard compressed data"),
    (b"\x04\x22\x4d\x18", "LZ4 compressed data"),
)


def magic_filetype(fname: str) -> str:
    """The kind of a file, by its first bytes.

    >>> magic_filetype(__file__).endswith(": data")
    True
    """
    with open(fname, "rb") as stream:
        return f"{fname}: {kind_of(stream.read(512))}"


get_filetype = magic_filetype


def check_tar_format(fname: str) -> bool:
    """Whether a file looks like a tar archive, compressed or not."""
    return not magic_filetype(fname).endswith(": data")


def kind_of(start: bytes) -> str:
    """The kind in words; "data" is anything that is no shard."""
    for magic, kind in MAGIC:
        if start.startswith(magic):
            return kind
    if len(start) < 512:
        return "data"
    if start[257:262] == b"ustar":
        return "POSIX tar archive"
    return "tar archive" if _is_header(start) or not start.strip(b"\0") else "data"


def _is_header(block: bytes) -> bool:
    """Whether the checksum of a tar header is right, as in archives from before `ustar`."""
    try:
        stored = int(block[148:156].strip(b"\0 ") or b"-1", 8)
    except ValueError:
        return False
    return stored == sum(block[:148]) + 8 * 32 + sum(block[156:])
