"""Indices in the formats of other programs."""

from __future__ import annotations

import base64
import os

import numpy as np
import pytest

from servers.doubles import Double, Question, Reply, ranged
from webdataset import ShardWriter, TarWriter, WebDataset
from webdataset.errors import EncodingError, ShardError, ShardWarning
from webdataset.indices.files import StaleIndexError, find_index, index_from_dali, load_index, make_index
from webdataset.tar.foreign import dali_text, energon_bytes, parse_dali
from webdataset.tar.index import IndexedMember

# What megatron-energon 7.4.1 wrote for a shard of 000.txt 000.json ... 004.json with 0, 100, ... 400 bytes each.
ENERGON = "AAAAAAAAAAAABAAAAAAAAAAMAAAAAAAAABQAAAAAAAAAHAAAAAAAAAAkAAAAAAAA"


def test_energons_index_is_the_one_that_energon_writes(make_shard):
    files = [(f"{i:03d}.{ext}", b"x" * (i * 100)) for i in range(5) for ext in ("txt", "json")]
    assert energon_bytes(make_index(make_shard(files=files))) == base64.b64decode(ENERGON)


def test_dalis_index_is_read_as_it_was_written():
    samples = [[IndexedMember("txt", "a.txt", 512, 5), IndexedMember("seg.png", "a.seg.png", 1536, 0)], []]
    assert dali_text(samples) == b"v1.2 2\ntxt 512 5 a.txt seg.png 1536 0 a.seg.png\n\n"
    assert parse_dali(dali_text(samples)) == samples


def test_dalis_index_cannot_hold_everything():
    with pytest.raises(EncodingError, match="spaces"):
        dali_text([[IndexedMember("txt", "a b.txt", 512, 5)]])
    with pytest.raises(EncodingError, match="sparse"):
        dali_text([[IndexedMember("txt", "a.txt", -1, 5)]])


@pytest.mark.parametrize(
    "text", ["", "v1.1 1\njpg 512 3\n", "v1.2 2\n", "v1.2 1\njpg 512\n", "v1.2 x\n", "v1.2 1\njpg a b c\n"]
)
def test_what_is_no_index_of_dalis_is_an_error(text):
    with pytest.raises(ShardError, match="DALI"):
        parse_dali(text.encode())


def test_our_index_is_made_of_dalis_without_the_shard(tmp_path):
    with TarWriter(tmp_path / "a.tar", index=True) as sink:
        for i in range(20):
            sink.write({"__key__": f"{'long' * (30 * (i % 2))}{i:03d}", "cls": i, "Txt": b"x" * i})
    shard = str(tmp_path / "a.tar")
    made = index_from_dali(shard)
    assert made.agrees(make_index(shard))
    assert made.version == make_index(shard).version
    os.utime(tmp_path / "a.idx", (0, 0))
    with pytest.raises(StaleIndexError):
        index_from_dali(shard)


def test_dalis_index_of_a_server_is_read_with_the_options_of_the_shard(tmp_path):
    with TarWriter(tmp_path / "a.tar", index="dali") as sink:
        sink.write({"__key__": "a", "cls": 7})
    files = {f"/{path.name}": path.read_bytes() for path in tmp_path.iterdir()}

    def answer(question: Question) -> Reply:
        data = files.get(question.raw_path) if question.headers.get("x-key") == "hush" else None
        return Reply(403) if data is None else ranged(question, data, '"1"')

    with Double(answer) as server:
        made = index_from_dali(f"{server.url}/a.tar", storage_options={"headers": {"X-Key": "hush"}})
    assert made.agrees(make_index(str(tmp_path / "a.tar")))


def test_dalis_index_of_another_shard_is_an_error(make_shard, tmp_path):
    shard = make_shard(samples=2)
    (tmp_path / "a.idx").write_text("v1.2 1\ntxt 512000 5 a.txt\n")
    with pytest.raises(ShardError, match="fit"):
        index_from_dali(shard)
    (tmp_path / "a.idx").write_text("v1.2 1\ntxt 512 600 a.txt cls 1024 1 a.cls\n")
    with pytest.raises(ShardError, match="fit"):
        index_from_dali(shard)


# -- made on the way ---------------------------------------------------------------------------------


def test_a_writer_makes_the_index_that_scanning_would_make(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=7, index="wdx", verbose=0) as sink:
        for i in range(20):
            key = f"{'é' if i % 3 else 'x' * 150}{i:03d}"
            sink.write({"__key__": key, "cls": i, "Seg.PNG": os.urandom(i * 100), "json": {"a": i}})
    names = sorted(os.listdir(tmp_path))
    assert names == ["a-0.tar", "a-0.tar.wdx", "a-1.tar", "a-1.tar.wdx", "a-2.tar", "a-2.tar.wdx"]
    for n in range(3):
        shard = f"{tmp_path}/a-{n}.tar"
        assert (tmp_path / f"a-{n}.tar.wdx").read_bytes() == make_index(shard).to_bytes()
        assert find_index(shard).samples == len(list(WebDataset(shard, shardshuffle=False)))


def test_members_that_are_in_no_sample_are_in_no_index(tmp_path):
    with TarWriter(tmp_path / "a.tar", index=["wdx", "energon"]) as sink:
        sink.write_members([(b"__meta__/x", b"1"), (b"README", b"2")])
        sink.write_members([(b"a.txt", b"3")])
    assert load_index(str(tmp_path / "a.tar.wdx")).starts.tolist() == [2048, 3072]
    assert np.frombuffer((tmp_path / "a.tar.idx").read_bytes(), "<u8").tolist() == [2048, 3072]


def test_samples_that_cannot_be_read_give_no_index_and_a_warning(tmp_path):
    sink = TarWriter(tmp_path / "a.tar", index="wdx")
    sink.write_members([(b"same.txt", b"1"), (b"same.txt", b"2")])
    with pytest.warns(ShardWarning, match="twice"):
        sink.close()
    assert os.listdir(tmp_path) == ["a.tar"]


def test_an_unknown_format_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="energon"):
        TarWriter(tmp_path / "a.tar", index="zip")
