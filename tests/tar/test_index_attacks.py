"""An index is a claim: one that its shard cannot bear out is refused before anything is allocated for it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests_support import numbered, tar_bytes
from webdataset.errors import ShardError
from webdataset.tar.index import MAGIC, ShardIndex
from webdataset.tar.plain import MemberPlace

FRONT = struct.Struct("<8sII")


def honest() -> ShardIndex:
    places = [MemberPlace("a.txt", 0, 512, 5, 1024)], [MemberPlace("b.txt", 1024, 1536, 5, 2048)]
    return ShardIndex.from_entries([("a", ["txt"], places[0]), ("b", ["txt"], places[1])], size=10240)


def rewritten(change: Callable[[dict[str, Any]], None]) -> bytes:
    """An honest index with another header, whose checksum is right."""
    data = honest().to_bytes()
    _, length, _ = FRONT.unpack_from(data)
    head = json.loads(data[FRONT.size : FRONT.size + length])
    change(head)
    text = json.dumps(head).encode()
    return FRONT.pack(MAGIC, len(text), zlib.crc32(text)) + text + data[FRONT.size + length :]


def claiming(**claims: Any) -> bytes:
    return rewritten(lambda head: head.update(claims))


CLAIMS: dict[str, bytes] = {
    "two hundred million samples": claiming(samples=200_000_000, size=1 << 50),
    "more samples than fit": claiming(samples=200_000_000),
    "fewer samples than places": claiming(samples=1),
    "an endless number of samples": claiming(samples=float("inf")),
    "a text for a size": claiming(size="10240"),
    "a column before the file": rewritten(lambda head: head["columns"]["starts"].__setitem__(0, -100)),
    "a column of a negative length": rewritten(lambda head: head["columns"]["keys"].__setitem__(1, -1)),
    "a column of floats": rewritten(lambda head: head["columns"]["starts"].__setitem__(3, "<f8")),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_header_with_an_impossible_claim_is_refused(name: str) -> None:
    with pytest.raises(ShardError, match="damaged"):
        ShardIndex.from_bytes(CLAIMS[name])


def members_of(size: int, *, field: str = "txt", data_offset: int = 512) -> ShardIndex:
    return ShardIndex.from_entries(
        [("a", [field], [MemberPlace(f"a.{field}", 0, data_offset, size, 1024)])], size=10240
    )


@pytest.mark.parametrize("size", [513, 4 << 30, (1 << 64) - 1, (1 << 63) + 5])
def test_a_member_larger_than_its_sample_is_refused(size: int) -> None:
    with pytest.raises(ShardError, match="'sizes'"):
        members_of(size).members(0)


@pytest.mark.parametrize("field", ["__key__", "__url__", "__local_path__", "__"])
def test_a_field_cannot_pass_for_a_samples_own_entry(field: str) -> None:
    with pytest.raises(ShardError, match="'layouts'"):
        members_of(5, field=field).members(0)


@pytest.mark.parametrize("data_offset", [0, 512 * 40])
def test_a_member_that_begins_outside_its_sample_is_refused(data_offset: int) -> None:
    with pytest.raises(ShardError, match=r"'(starts|layouts)'"):
        members_of(5, data_offset=data_offset).members(0)


READ = """
import resource, sys
import webdataset as wds
from webdataset.errors import WebDatasetError
samples = wds.WebDataset(sys.argv[1], exact=True, shardshuffle=False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    print(len(list(samples)))
except WebDatasetError as exn:
    print("refused:", exn)
print("grew by", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10, "MB")
"""


def test_a_small_index_beside_a_shard_takes_no_memory(tmp_path: Path) -> None:
    """The shard is 10 KB; its index says that a member has 4 GB, and is as old as the shard."""
    shard = tmp_path / "a.tar"
    shard.write_bytes(tar_bytes(numbered(4)))
    index = ShardIndex.from_entries([("a", ["txt"], [MemberPlace("a.txt", 0, 512, 4 << 30, 5 << 30)])], size=5 << 30)
    (tmp_path / "a.tar.wdx").write_bytes(index.to_bytes())
    assert len(index.to_bytes()) < 500
    child = subprocess.run([sys.executable, "-c", READ, str(shard)], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-500:]
    said, grown = child.stdout.splitlines()
    assert said.startswith(("refused", "4"))
    assert int(grown.split()[2]) < 500
