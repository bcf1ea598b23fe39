"""The instructions of pickles that plain data does not need are refused."""

from __future__ import annotations

import copyreg
import os

import pytest

from webdataset.codecs import pickles
from webdataset.errors import UnsafePickleError


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that an attack that succeeds creates; nothing may ever create it."""
    path = tmp_path / "canary"
    monkeypatch.chdir(tmp_path)
    yield path
    assert not path.exists()


def test_the_extension_registry_is_not_a_way_around(canary):
    copyreg.add_extension("posix", "system", 0xEE)
    try:
        copyreg._extension_cache[0xEE] = os.system
        for opcode in (b"\x82\xee", b"\x83\xee\x00", b"\x84\xee\x00\x00\x00"):
            with pytest.raises(UnsafePickleError, match="extension"):
                pickles.loads(b"\x80\x02" + opcode + f"(S'touch {canary}'\ntR.".encode())
    finally:
        copyreg.remove_extension("posix", "system", 0xEE)


@pytest.mark.parametrize("data", [b"Pfile\n.", b"S'x'\nQ.", b"\x80\x05\x97.", b"\x80\x05\x97\x98."])
def test_persistent_ids_and_foreign_buffers_are_refused(data):
    with pytest.raises(UnsafePickleError):
        pickles.loads(data)
