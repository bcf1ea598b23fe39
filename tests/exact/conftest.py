"""Shards for tests of exact epochs."""

from __future__ import annotations

import pytest

from exact_support import SIZES
from tests_support import tar_bytes


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for name, sizes in SIZES.items():
        for number, size in enumerate(sizes):
            files = []
            for i in range(size):
                key = f"{name}{number}-{i:03d}"
                files += [(f"{key}.cls", str(i).encode()), (f"{key}.txt", b"x" * (37 * i % 60))]
            (folder / f"{name}-{number:06d}.tar").write_bytes(tar_bytes(files))
    return folder
