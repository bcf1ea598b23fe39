"""The indices of a shard that is being written."""

import io
import os
from pathlib import Path

import pytest

from webdataset.errors import EncodingError, StorageError
from webdataset.writer import ShardWriter, TarWriter


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_an_index_says_where_each_field_is(tmp_path):
    with TarWriter(tmp_path / "a.tar", index=True) as sink:
        sink.write({"__key__": "k0", "txt": "hello", "seg.png": b"\0" * 700})
        sink.write({"__key__": "é", "cls": 7})
    first, *lines = (tmp_path / "a.idx").read_text().splitlines()
    assert (first, lines) == ("v1.2 2", ["seg.png 512 700 k0.seg.png txt 2048 5 k0.txt", "cls 4096 1 é.cls"])
    data = (tmp_path / "a.tar").read_bytes()
    assert (data[2048:2053], data[4096:4097]) == (b"hello", b"7")


def test_an_index_needs_a_local_plain_shard(tmp_path):
    for target in (tmp_path / "a.tar.gz", io.BytesIO(), "pipe:cat >/dev/null"):
        with pytest.raises(ValueError, match="index=True"):
            TarWriter(target, index=True)
    assert names_in(tmp_path) == []


def test_an_index_refuses_a_name_it_cannot_hold(tmp_path):
    with TarWriter(tmp_path / "a.tar", index=True) as sink, pytest.raises(EncodingError, match="spaces"):
        sink.write({"__key__": "a b", "txt": "x"})


def test_packed_samples_have_no_index_and_a_closed_writer_takes_none(tmp_path: Path) -> None:
    with TarWriter(f"{tmp_path}/a.tar", index=True) as sink, pytest.raises(ValueError, match="index"):
        sink.write_packed(b"", [])
    for closed in (TarWriter(f"{tmp_path}/b.tar"), ShardWriter(f"{tmp_path}/c-%d.tar", verbose=0)):
        closed.close()
        with pytest.raises(StorageError, match="closed"):
            closed.write_packed(b"", [])
