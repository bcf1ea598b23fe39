"""Keys that readers would take for one."""

import io
import os
from pathlib import Path

import pytest
from hypothesis import strategies as st

from webdataset.errors import SampleError
from webdataset.tar.writer import MemberHeaders, packed
from webdataset.tariterators import group_by_keys, tar_file_expander
from webdataset.writer import ShardWriter, TarWriter


def sample(i: int) -> dict:
    return {"__key__": f"{i:06d}", "txt": f"text {i}", "cls": i}


def write_all(sink: TarWriter | ShardWriter, samples: list[dict]) -> None:
    for sample in samples:
        sink.write(sample)


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


keys = st.text(st.characters(blacklist_characters="/\0.", blacklist_categories=["Cs"]), min_size=1, max_size=120)


fields = st.text("abcdefgh.", min_size=1, max_size=12).filter(lambda f: f.strip(".") == f and not f.endswith("gz"))


@pytest.mark.parametrize("fields", [{"txt": "2"}, {"json": {}}], ids=["the same field", "another field"])
def test_one_key_twice_in_a_row_is_an_error_that_names_it(fields):
    stream = io.BytesIO()
    with TarWriter(stream) as sink:
        sink.write({"__key__": "d/a", "txt": "1"})
        with pytest.raises(SampleError) as raised:
            sink.write({"__key__": "d/a", **fields})
        assert raised.value.key == "d/a"
        sink.write({"__key__": "d/b", "txt": "3"})
        sink.write({"__key__": "d/a", "txt": "4"})
    stream.seek(0)
    samples = list(group_by_keys(tar_file_expander([{"url": "a.tar", "stream": stream}])))
    assert [sample["txt"] for sample in samples] == [b"1", b"3", b"4"]


@pytest.mark.filterwarnings("ignore:the key has a dot")
def test_keys_that_are_one_to_readers_must_not_follow_each_other():
    with TarWriter(io.BytesIO()) as sink:
        sink.write({"__key__": "v1.0/img.001", "txt": "x"})
        with pytest.raises(SampleError) as raised:
            sink.write({"__key__": "v1.0/img.002", "txt": "x"})
        assert (raised.value.key, "dot" in raised.value.hint) == ("v1.0/img", True)
        sink.write({"__key__": "v1.5/img", "txt": "x"})


def test_keys_that_only_look_alike_may_follow_each_other():
    keys = ["a", "A", "./a", "a/b", "a.d/b", "b", "ab", "a"]
    with TarWriter(io.BytesIO()) as sink:
        for key in keys:
            sink.write({"__key__": key, "txt": "x"})


def test_a_sample_without_fields_is_none_to_readers():
    with TarWriter(io.BytesIO()) as sink:
        sink.write({"__key__": "a", "txt": "1"})
        sink.write({"__key__": "b"})
        with pytest.raises(SampleError) as raised:
            sink.write({"__key__": "a", "txt": "2"})
        assert raised.value.key == "a"


@pytest.mark.parametrize("workers", [0, 2])
def test_one_key_twice_in_a_row_is_an_error_in_a_shard_but_not_across_two(tmp_path, workers):
    with ShardWriter(str(tmp_path / "a-%d.tar"), maxcount=1, verbose=0, workers=workers) as sink:
        for _ in range(3):
            sink.write({"__key__": "a", "txt": "x"})
    assert len(names_in(tmp_path)) == 3
    with (
        pytest.raises(SampleError) as raised,
        ShardWriter(str(tmp_path / "b-%d.tar"), maxcount=2, verbose=0, workers=workers) as sink,
    ):
        write_all(sink, [{"__key__": "a", "txt": "x"}] * 2)
    assert raised.value.key == "a"


@pytest.mark.parametrize(
    "key", ["a", "é", "d" * 90 + "/" + "e" * 90, "x" * 200], ids=["plain", "pax", "prefix", "long"]
)
def test_packed_samples_are_checked_too(key):
    def one(name):
        data = packed([(f"{name}.txt".encode(), b"hello")], MemberHeaders())
        return data, (len(data), 5)

    (first, size), (other, other_size) = one(key), one("other")
    with TarWriter(io.BytesIO()) as sink:
        sink.write({"__key__": "z", "txt": "x"})
        with pytest.raises(SampleError):
            sink.write_packed(first + first, [size, size])
        sink.write_packed(first + other, [size, other_size])
        with pytest.raises(SampleError):
            sink.write({"__key__": "other", "txt": "x"})
        sink.write_packed(b"" + first, [(0, 0), size])
        with pytest.raises(SampleError):
            sink.write_packed(first, [size])
