"""Members that are too large for memory, in pieces."""

from __future__ import annotations

import gc
import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from tests_support import sparse_tar, tar_bytes
from webdataset.errors import LimitError, ShardError, StorageError
from webdataset.tar.large import LargeMember, LargeMembers
from webdataset.tar.reader import read_members
from webdataset.tar.writer import ArchiveWriter

LIMIT = 1000
FILES = [("a.bin", b"x" * 5000), ("a.cls", b"1"), ("b.bin", b"small"), ("b.cls", b"2"), ("c.bin", b"yz" * 1000)]


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", str(LIMIT))


def content(data: Any) -> bytes:
    return b"".join(data.pieces(700)) if isinstance(data, LargeMember) else data


def read(stream: Any, large: LargeMembers, plain: Any = None) -> list[tuple[str, Any]]:
    windows = read_members(stream, limits=large.limits(plain))
    return [(name, data) for window in windows for name, _, data in window]


@pytest.mark.parametrize("kind", ["file", "pipe", "gz"])
def test_large_members_of_files_and_streams_have_all_their_bytes(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.tar"
    data = tar_bytes(FILES)
    path.write_bytes(gzip.compress(data) if kind == "gz" else data)
    url = f"pipe:cat {path}" if kind == "pipe" else str(path)
    samples = list(wds.WebDataset(url, large=LargeMembers(), shardshuffle=False))
    assert [content(sample["bin"]) for sample in samples] == [b"x" * 5000, b"small", b"yz" * 1000]
    assert [isinstance(sample["bin"], LargeMember) for sample in samples] == [True, False, True]
    assert content(samples[0]["bin"]) == b"x" * 5000  # again
    assert len(samples[0]["bin"]) == 5000
    assert repr(samples[0]["bin"]) == "LargeMember('a.bin', 5000)"


def test_without_a_word_about_large_members_they_are_an_error(make_shard: Any) -> None:
    shard = make_shard(files=FILES)
    with pytest.raises(LimitError, match="5000") as raised:
        list(wds.WebDataset(shard, shardshuffle=False))
    assert (raised.value.member, raised.value.key) == ("a.bin", None)
    assert "WDS_MAX_MEMBER_BYTES=5000" in raised.value.hint
    with pytest.raises(ValueError, match="large="):
        wds.WebDataset(shard, exact=True, large=LargeMembers())


def test_those_that_nobody_wants_are_passed_over(make_shard: Any) -> None:
    shard = make_shard(files=FILES)
    for url in (shard, f"pipe:cat {shard}"):
        large = LargeMembers(lambda name: name.startswith("c"))
        samples = list(wds.WebDataset(url, large=large, shardshuffle=False))
        assert content(samples[2]["bin"]) == b"yz" * 1000
        assert len(samples[0]["bin"]) == 5000
        with pytest.raises(LimitError, match="1000"):
            next(samples[0]["bin"].pieces())


def test_whole_only_if_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    member = LargeMember("a.bin", 2000, lambda: io.BytesIO(bytes(2000)))
    with pytest.raises(LimitError, match="2000"):
        member.whole()
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "2000")
    assert member.whole() == bytes(2000)


def test_a_smaller_limit_of_ones_own(make_shard: Any) -> None:
    shard = make_shard(files=FILES)
    samples = list(wds.WebDataset(shard, large=LargeMembers(limit=2), shardshuffle=False))
    assert isinstance(samples[1]["bin"], LargeMember)
    assert samples[1]["bin"].whole() == b"small"


@pytest.mark.parametrize("where", ["file", "stream"])
def test_a_cut_inside_a_large_member_is_an_error(tmp_path: Path, where: str) -> None:
    path = tmp_path / "cut.tar"
    path.write_bytes(tar_bytes(FILES)[:3000])
    with open(path, "rb") as file, pytest.raises(ShardError, match="early") as raised:
        read(file if where == "file" else io.BytesIO(file.read()), LargeMembers(), file if where == "file" else None)
    assert raised.value.member == "a.bin"


def test_a_file_that_lost_its_end_meanwhile(make_shard: Any) -> None:
    shard = make_shard(files=FILES)
    sample = next(iter(wds.WebDataset(shard, large=LargeMembers(), shardshuffle=False)))
    os.truncate(shard, 2000)
    with pytest.raises(ShardError, match="early"):
        content(sample["bin"])


def test_a_sparse_file_of_gnu_tar(tmp_path: Path) -> None:
    with open(tmp_path / "a.bin", "wb") as file:
        file.write(b"begin")
        file.seek(3 << 20)
        file.write(b"end")
    (tmp_path / "a.cls").write_text("1")
    for form in ("--format=gnu", "--format=posix"):
        subprocess.run(["tar", form, "-S", "-cf", "s.tar", "a.bin", "a.cls"], cwd=tmp_path, check=True)
        assert (tmp_path / "s.tar").stat().st_size < 1 << 20
        (sample,) = wds.WebDataset(str(tmp_path / "s.tar"), large=LargeMembers(), shardshuffle=False)
        assert content(sample["bin"]) == (tmp_path / "a.bin").read_bytes()
        assert sample["cls"] == b"1"


def test_temporary_files_go_with_their_members(
    make_shard: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sample = next(iter(wds.WebDataset(f"pipe:cat {make_shard(files=FILES)}", large=LargeMembers(), shardshuffle=False)))
    before = len(os.listdir("/proc/self/fd"))
    assert os.listdir(tmp_path) == ["a.tar"]
    del sample
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < before


def test_no_room_for_a_temporary_file_is_an_error_with_the_cure(
    make_shard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    with pytest.raises(StorageError) as raised:
        list(wds.WebDataset(f"pipe:cat {make_shard(files=FILES)}", large=LargeMembers(), shardshuffle=False))
    assert raised.value.member == "a.bin"
    assert "TMPDIR" in raised.value.hint


@given(st.lists(st.integers(0, 3000), max_size=12), st.booleans())
def test_what_is_read_in_pieces_is_written_as_it_was(sizes: list[int], parts: bool) -> None:
    files = [(f"{i}.bin", bytes([i + 1]) * size) for i, size in enumerate(sizes)]
    members = read(io.BytesIO(tar_bytes(files)), LargeMembers())
    out = io.BytesIO()

    def writev(pieces: Any) -> None:
        out.write(b"".join(pieces))

    writer = ArchiveWriter(out.write, writev=writev if parts else None)
    writer.add_all((name.encode(), data) for name, data in members)
    writer.finish()
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        found = [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]
    assert found == files


def test_a_member_of_more_than_8_gb_is_written_so_that_gnu_tar_reads_it(tmp_path: Path) -> None:
    sparse_tar(tmp_path / "big.tar", [("a.bin", 9 << 30), ("a.cls", b"1")])
    headers: list[bytes] = []
    with open(tmp_path / "big.tar", "rb") as file:
        (name, data), label = read(file, LargeMembers(), file)
    assert (name, len(data), label) == ("a.bin", 9 << 30, ("a.cls", b"1"))
    ArchiveWriter(headers.append).headers.header(b"a.bin", len(data))
    header = ArchiveWriter(headers.append).headers.header(b"a.bin", len(data))
    told = subprocess.run(["tar", "-tvf", "-"], input=header, capture_output=True, check=False)
    assert str(9 << 30) in told.stdout.decode()
