from __future__ import annotations

import pytest

from tests_support import numbered, tar_bytes
from webdataset.cache import (
    check_tar_format,
    magic_filetype,
)

TAR = tar_bytes(numbered(3))


@pytest.mark.parametrize(
    ("data", "kind", "good"),
    [
        (TAR, "POSIX tar archive", True),
        (b"\x1f\x8b\x08123", "gzip compressed data", True),
        (b"BZh91", "bzip2 compressed data", True),
        (b"\xfd7zXZ\0\0", "XZ compressed data", True),
        (b"\x28\xb5\x2f\xfd\0", "Zstandard compressed data", True),
        (b"\0" * 1024, "tar archive", True),
        (b"<html>" * 200, "data", False),
        (b"PK\x03\x04" + b"\0" * 600, "data", False),
        (b"", "data", False),
    ],
)
def test_a_file_is_known_by_its_first_bytes(tmp_path, data, kind, good):
    path = tmp_path / "x"
    path.write_bytes(data)
    assert magic_filetype(str(path)) == f"{path}: {kind}"
    assert check_tar_format(str(path)) is good


def test_a_header_from_before_ustar_is_a_tar_archive(tmp_path):
    block = bytearray(TAR[:512])
    block[257:265] = bytes(8)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "v7.tar").write_bytes(bytes(block) + TAR[512:])
    assert check_tar_format(str(tmp_path / "v7.tar"))
