"""Sparse files come out whole, whichever way their map is stored."""

from __future__ import annotations

import subprocess

import pytest

from webdataset.errors import LimitError, ShardError


def sparse_file(path, pieces: list[tuple[int, bytes]], size: int) -> bytes:
    with open(path, "wb") as file:
        file.truncate(size)
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)
    return path.read_bytes()


SPARSE = {
    "hole in the middle": ([(0, b"a" * 5000), (1 << 20, b"b" * 4096)], (1 << 20) + 4096),
    "hole at the end": ([(0, b"a" * 4096)], 1 << 20),
    "hole at the start": ([(1 << 20, b"tail")], (1 << 20) + 4),
    "only a hole": ([], 100_000),
    "many pieces": ([(i << 16, b"%d" % i * 100) for i in range(60)], 60 << 16),
}


@pytest.mark.parametrize("shape", SPARSE)
@pytest.mark.parametrize("version", ["gnu", "oldgnu", "0.0", "0.1", "1.0"])
def test_sparse_files_of_gnu_tar_come_out_whole(kit, tmp_path, shape, version):
    pieces, size = SPARSE[shape]
    (tmp_path / "in").mkdir()
    content = sparse_file(tmp_path / "in" / "s", pieces, size)
    (tmp_path / "in" / "t").write_bytes(b"after")
    options = [f"--format={version}"] if "gnu" in version else ["--format=posix", f"--sparse-version={version}"]
    command = ["tar", "-c", "-S", *options, "-C", str(tmp_path / "in"), "s", "t"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    assert len(archive) < size or shape == "only a hole"
    assert kit.read(archive) == [("s", content), ("t", b"after")]
    assert kit.gnu_files(archive, tmp_path / "out") == {b"s": content, b"t": b"after"}
    assert [(entry.name, entry.size) for entry in kit.scan(archive)] == [("s", size), ("t", 5)]


def test_a_sparse_file_with_a_long_name_keeps_it(kit, tmp_path):
    name = "long" * 60
    content = sparse_file(tmp_path / name, [(65536, b"x" * 512)], 200_000)
    for version in ("0.0", "0.1", "1.0"):
        command = ["tar", "-c", "-S", "--format=posix", f"--sparse-version={version}", "-C", str(tmp_path), name]
        archive = subprocess.run(command, capture_output=True, check=True).stdout
        assert kit.read(archive) == [(name, content)]


S = b"GNU.sparse."


BAD_SPARSE = {
    "out of order": [(S + b"size", b"2000"), (S + b"numblocks", b"2"), (S + b"map", b"1024,512,0,512")],
    "overlap": [(S + b"size", b"1024"), (S + b"numblocks", b"2"), (S + b"map", b"0,512,256,512")],
    "inside a block": [(S + b"size", b"2000"), (S + b"numblocks", b"2"), (S + b"map", b"0,100,1076,924")],
    "too much data": [(S + b"size", b"2048"), (S + b"numblocks", b"1"), (S + b"map", b"0,2048")],
    "too little data": [(S + b"size", b"512"), (S + b"numblocks", b"1"), (S + b"map", b"0,512")],
    "no end": [(S + b"size", b"9999"), (S + b"numblocks", b"1"), (S + b"map", b"0,1024")],
    "beyond the end": [(S + b"size", b"10"), (S + b"numblocks", b"1"), (S + b"map", b"0,1024")],
    "odd map": [(S + b"size", b"1024"), (S + b"numblocks", b"1"), (S + b"map", b"0,1024,5")],
    "wrong count": [(S + b"size", b"1024"), (S + b"numblocks", b"3"), (S + b"map", b"0,1024")],
    "no numbers": [(S + b"size", b"1024"), (S + b"map", b"0;1024")],
    "only a size": [(S + b"size", b"1024")],
    "no size": [(S + b"numblocks", b"1"), (S + b"map", b"0,1024")],
    "not by turns": [(S + b"size", b"1024"), (S + b"offset", b"0"), (S + b"offset", b"0")],
    "unknown version": [(S + b"major", b"2"), (S + b"minor", b"0"), (S + b"realsize", b"1024")],
    "1.0 without a map": [(S + b"major", b"1"), (S + b"minor", b"0"), (S + b"realsize", b"1024")],
}


@pytest.mark.parametrize("fault", BAD_SPARSE)
def test_a_sparse_map_that_makes_no_sense_is_an_error(kit, fault):
    archive = kit.member(b"a", b"1") + kit.pax(*BAD_SPARSE[fault]) + kit.member(b"s", b"D" * 1024) + kit.END
    members, error, _ = kit.outcome(archive)
    assert [name for name, _, _ in members] == ["a"]
    assert "sparse" in error.text
    assert error.offset == 1024


def test_a_sparse_map_on_a_gnu_header_is_an_error(kit):
    records = [(S + b"size", b"3"), (S + b"numblocks", b"1"), (S + b"map", b"0,3")]
    with pytest.raises(ShardError, match="PAX") as raised:
        kit.read(kit.pax(*records) + kit.member(b"s", b"abc", magic=kit.GNU) + kit.END)
    assert raised.value.member == "s"


def test_a_sparse_map_by_hand_is_expanded(kit):
    records = [
        (S + b"size", b"3000"),
        (S + b"numblocks", b"2"),
        (S + b"map", b"512,512,3000,0"),
        (S + b"name", b"real"),
    ]
    assert kit.read(kit.pax(*records) + kit.member(b"s", b"D" * 512) + kit.END) == [
        ("real", bytes(512) + b"D" * 512 + bytes(3000 - 1024))
    ]


@pytest.mark.parametrize(("version", "pieces"), [("oldgnu", 44_000), ("0.0", 20_000), ("0.1", 84_000), ("1.0", 84_000)])
def test_a_sparse_map_of_more_than_a_megabyte_is_read(kit, tmp_path, version, pieces):
    content = sparse_file(tmp_path / "s", [(0, (b"x" * 512 + bytes(512)) * pieces)], 1024 * pieces + (1 << 20))
    options = ["--format=oldgnu"] if version == "oldgnu" else ["--format=posix", f"--sparse-version={version}"]
    command = ["tar", "-c", "-S", "--hole-detection=raw", *options, "-C", str(tmp_path), "s"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    assert 1 << 20 < len(archive) - 512 * pieces < len(content) // 3  # what is not data is the map
    [(name, data)] = kit.read(archive)
    assert name == "s"
    assert data == content
    with pytest.raises(LimitError, match="10000") as raised:
        kit.read(archive, limits=kit.limits(max_sparse_pieces=10_000))
    assert raised.value.offset == 0
    assert "max_sparse_pieces=" in raised.value.hint
