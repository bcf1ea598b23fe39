"""Recognise other formats where a tar archive should be."""

from __future__ import annotations

SIGNATURES = (
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstandard data"),
    (b"\x04\x22\x4d\x18", "lz4 data"),
    (b"\x1f\x9d", "data of the compress program"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-zip archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (b"070701", "a cpio archive"),
    (b"070707", "a cpio archive"),
    (b"!<arch>\n", "an ar archive"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"PAR1", "a parquet file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
)
TEXTS = (
    (b"<!doctype html", "HTML"),
    (b"<html", "HTML"),
    (b"<head", "HTML"),
    (b"<?xml", "XML, perhaps a storage server's error message"),
    (b"<error", "XML, perhaps a storage server's error message"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)
TEXT_BYTES = bytes({7, 8, 9, 10, 12, 13, 27} | set(range(0x20, 0x7F)) | set(range(0x80, 0x100)))


def looks_like(head: bytes) -> str | None:
    """A guess at what begins with these bytes, None without one.

    >>> looks_like(b"PK\\x03\\x04...."), looks_like(b"  <!DOCTYPE html><title>404</title>")
    ('a zip archive', 'HTML')
    """
    for signature, kind in SIGNATURES:
        if head.startswith(signature):
            return kind
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:32].lower()
    for beginning, kind in TEXTS:
        if text.startswith(beginning) and _is_text(head):
            return kind
    return "text" if len(head) >= 16 and _is_text(head) else None


def _is_text(data: bytes) -> bool:
    try:
        data[:-3].decode()
    except UnicodeDecodeError:
        return False
    return not data.translate(None, TEXT_BYTES)
