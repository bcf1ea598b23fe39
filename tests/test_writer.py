"""Samples written: what is in the shards."""

import gzip
import io
import json
import logging
import os
import pickle
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset import writer
from webdataset.errors import EncodingError, SampleError, ShardError, ShardWarning, StorageError
from webdataset.tar.writer import MemberHeaders, packed
from webdataset.tariterators import group_by_keys, tar_file_expander
from webdataset.writer import ShardWriter, TarWriter, make_encoder, shard_name


def members_of(archive: bytes | Path) -> dict[str, bytes]:
    data = archive.read_bytes() if isinstance(archive, Path) else archive
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def written(*samples: dict, **options) -> dict[str, bytes]:
    stream = io.BytesIO()
    with TarWriter(stream, **options) as sink:
        for sample in samples:
            sink.write(sample)
    return members_of(stream.getvalue())


def sample(i: int) -> dict:
    return {"__key__": f"{i:06d}", "txt": f"text {i}", "cls": i}


def write_all(sink: TarWriter | ShardWriter, samples: list[dict]) -> None:
    for sample in samples:
        sink.write(sample)


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def keys_in(path: Path) -> list[str]:
    return [name[:-4] for name in members_of(path) if name.endswith(".cls")]


# -- TarWriter: what is written ---------------------------------------------------------------------


def test_fields_become_members_in_sorted_order():
    assert written({"__key__": "a", "txt": "x", "cls": 3}) == {"a.cls": b"3", "a.txt": b"x"}


def test_write_returns_the_size_of_the_fields():
    with TarWriter(io.BytesIO(), encoder=False) as sink:
        assert sink.write({"__key__": "a", "x": b"12", "y": b"345"}) == 5


def test_members_look_as_they_always_did():
    stream = io.BytesIO()
    with TarWriter(stream) as sink:
        sink.write({"__key__": "a", "txt": "x"})
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        member = tar.next()
    assert (member.uname, member.gname, member.mode, member.uid, member.gid, member.mtime) == (
        "bigdata",
        "bigdata",
        0o444,
        0,
        0,
        0,
    )


def test_owner_mode_and_time_can_be_chosen():
    stream = io.BytesIO()
    with TarWriter(stream, user="me", group="us", mode=0o600, mtime=1234.5) as sink:
        sink.write({"__key__": "a", "txt": "x"})
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        member = tar.next()
    assert (member.uname, member.gname, member.mode, member.mtime) == ("me", "us", 0o600, 1234)


def test_the_same_samples_give_the_same_bytes(tmp_path):
    for name in ("a.tar", "b.tar"):
        with TarWriter(tmp_path / name) as sink:
            sink.write({"__key__": "k", "json": {"b": 1, "a": [2]}, "x.txt.gz": "text", "pyd": {"a": 1}})
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_a_small_member_costs_two_blocks():
    stream = io.BytesIO()
    with TarWriter(stream) as sink:
        for i in range(100):
            sink.write({"__key__": str(i), "cls": 1})
    assert len(stream.getvalue()) == 100 * 1024 + 1024


def test_meta_fields_are_left_out():
    assert written({"__key__": "a", "__url__": "u", "_x": b"y", "__index__": 3, "txt": "x"}) == {"a.txt": b"x"}


def test_meta_fields_are_kept_on_request():
    kept = written({"__key__": "a", "__url__": "u", "_x": b"y", "txt": "x"}, keep_meta=True)
    assert kept == {"a.__url__": b"u", "a._x": b"y", "a.txt": b"x"}


def test_meta_fields_that_are_kept_must_be_text_or_bytes():
    with pytest.raises(EncodingError, match="field __index__"):
        written({"__key__": "a", "__index__": 3}, keep_meta=True)


def test_fields_that_differ_in_case_alone_are_an_error_as_readers_refuse_them():
    with pytest.raises(EncodingError, match=r"'TXT' and 'txt' are the same one to readers \[key a, field txt\]"):
        written({"__key__": "a", "TXT": "1", "txt": "2"})
    assert written({"__key__": "a", "TXT": "1", "cls": 2, "_txt": "3"}) == {"a.TXT": b"1", "a.cls": b"2"}


def test_a_sample_may_be_empty():
    assert written({"__key__": "a"}) == {}


def test_a_sample_may_be_any_mapping():
    from collections import ChainMap

    assert written(ChainMap({"__key__": "a"}, {"txt": "x"})) == {"a.txt": b"x"}


def test_the_sample_itself_is_not_changed():
    given_sample = {"__key__": "a", "cls": 3}
    written(given_sample)
    assert given_sample == {"__key__": "a", "cls": 3}


def test_a_buffer_may_be_used_again_after_write():
    stream, buffer = io.BytesIO(), bytearray(b"one")
    with TarWriter(stream, encoder=False) as sink:
        sink.write({"__key__": "a", "bin": buffer})
        buffer[:] = b"two"
        sink.write({"__key__": "b", "bin": memoryview(buffer)})
        buffer[:] = b"xxx"
    assert members_of(stream.getvalue()) == {"a.bin": b"one", "b.bin": b"two"}


def test_values_are_encoded_by_their_extension():
    got = written({"__key__": "a", "json": {"x": 1}, "cls": 7, "txt": "é", "b.cls": 2, "any": "text", "raw": b"\0"})
    assert got == {
        "a.json": b'{"x": 1}',
        "a.cls": b"7",
        "a.txt": "é".encode(),
        "a.b.cls": b"2",
        "a.any": b"text",
        "a.raw": b"\0",
    }


def test_a_gz_field_is_compressed():
    got = written({"__key__": "a", "json.gz": {"x": 1}, "txt.gz": b"raw"})
    assert json.loads(gzip.decompress(got["a.json.gz"])) == {"x": 1}
    assert gzip.decompress(got["a.txt.gz"]) == b"raw"


keys = st.text(st.characters(blacklist_characters="/\0.", blacklist_categories=["Cs"]), min_size=1, max_size=120)
fields = st.text("abcdefgh.", min_size=1, max_size=12).filter(lambda f: f.strip(".") == f and not f.endswith("gz"))


@given(st.dictionaries(keys, st.dictionaries(fields, st.binary(max_size=1200), max_size=4), max_size=4))
def test_what_is_written_is_what_is_read(samples):
    got = written(*({"__key__": key, **values} for key, values in samples.items()))
    assert got == {f"{key}.{field}": data for key, values in samples.items() for field, data in values.items()}


def test_gnu_tar_reads_what_is_written(tmp_path):
    with TarWriter(tmp_path / "a.tar") as sink:
        sink.write({"__key__": "dir/ключ", "txt": "x", "cls": 1})
    listed = subprocess.run(
        ["tar", "-tf", tmp_path / "a.tar", "--quoting-style=literal"], capture_output=True, check=True
    )
    assert listed.stdout.decode() == "dir/ключ.cls\ndir/ключ.txt\n"


# -- TarWriter: encoders -----------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", [False, None])
def test_without_an_encoder_only_bytes_are_accepted(encoder):
    assert written({"__key__": "a", "txt": b"x", "y": bytearray(b"z")}, encoder=encoder) == {"a.txt": b"x", "a.y": b"z"}
    with pytest.raises(ValueError, match="txt doesn't map to a bytes"):
        written({"__key__": "a", "txt": "x"}, encoder=encoder)


def test_without_an_encoder_gz_fields_stay_as_they_are():
    packed = gzip.compress(b"x")
    assert written({"__key__": "a", "txt.gz": packed}, encoder=False) == {"a.txt.gz": packed}


def test_an_encoder_may_be_a_function_of_the_sample():
    got = written({"__key__": "a", "n": 1}, encoder=lambda s: {"__key__": s["__key__"] + "2", "n": b"one"})
    assert got == {"a2.n": b"one"}


def test_an_encoder_may_be_a_dict():
    assert written({"__key__": "a", "n": 1, "txt": b"x"}, encoder={"n": lambda n: b"one"}) == {
        "a.n": b"one",
        "a.txt": b"x",
    }
    with pytest.raises(EncodingError, match=r"cls.*key a, field cls"):
        written({"__key__": "a", "cls": 1}, encoder={"n": bytes})


@pytest.mark.parametrize("encoder", ["rgb", 5])
def test_any_other_encoder_is_refused(encoder):
    with pytest.raises(ValueError, match="encoder must be"):
        TarWriter(io.BytesIO(), encoder=encoder)


def test_an_encoder_added_to_the_table_is_used_at_once(monkeypatch):
    with TarWriter(io.BytesIO()) as sink:
        monkeypatch.setitem(writer.default_handlers, "zzz", lambda value: b"z" * value)
        assert sink.write({"__key__": "a", "zzz": 3}) == 3


def test_make_encoder_gives_a_function_of_the_sample():
    assert make_encoder(True)({"__key__": "a", "cls": 3, "__url__": "u"}) == {
        "__key__": "a",
        "cls": b"3",
        "__url__": "u",
    }
    assert make_encoder(False)({"__key__": "a", "cls": 3}) == {"__key__": "a", "cls": 3}
    assert writer.encode_based_on_extension1(3, "x.cls", writer.default_handlers) == b"3"


def test_the_old_names_of_the_encoders_are_there():
    import numpy as np

    from webdataset.codecs import decoders

    array = np.arange(6.0).reshape(2, 3)
    assert (decoders["npy"](writer.numpy_dumps(array)) == array).all()
    assert (decoders["npz"](writer.numpy_npz_dumps({"a": array}))["a"] == array).all()
    assert (decoders["ten"](writer.tenbin_dumps([array]))[0] == array).all()
    assert (decoders["pth"](writer.torch_dumps(array.tolist()))) == array.tolist()
    assert decoders["mp"](writer.mp_dumps({"a": 1})) == {"a": 1}
    assert decoders["cbor"](writer.cbor_dumps({"a": 1})) == {"a": 1}
    assert writer.imageencoder(array / 5, "png")[:4] == b"\x89PNG"


# -- TarWriter: what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"txt": "x"}, "no __key__"),
        ({"__key__": 3, "txt": "x"}, "__key__ must be a str, got int"),
        ({"__key__": b"a", "txt": "x"}, "__key__ must be a str, got bytes"),
        ({"__key__": "", "txt": "x"}, "must not be empty"),
        ({"__key__": "dir/", "txt": "x"}, "end in a slash"),
        ({"__key__": "a\0b", "txt": "x"}, "zero byte"),
        ({"__key__": "a", "": "x"}, "must not be empty"),
        ({"__key__": "a", "x/y": "x"}, "slash"),
        ({"__key__": "a", 3: "x"}, "name of a field must be a str"),
        ({"__key__": "a", "unknown": 3}, r"no encoder.*field unknown"),
        ({"__key__": "a", "txt": None}, "field txt"),
        ({"__key__": "a", "json": {1, 2}}, "field json"),
        ([("__key__", "a")], "a sample is a dict, got list"),
    ],
)
def test_a_bad_sample_is_refused_and_writes_nothing(bad, message):
    stream = io.BytesIO()
    with TarWriter(stream) as sink:
        with pytest.raises(EncodingError, match=message):
            sink.write(bad)
        sink.write({"__key__": "good", "txt": "x"})
    assert members_of(stream.getvalue()) == {"good.txt": b"x"}


def test_a_field_that_cannot_be_encoded_takes_the_whole_sample_with_it():
    stream = io.BytesIO()
    with TarWriter(stream) as sink, pytest.raises(EncodingError, match="key a, field zzz"):
        sink.write({"__key__": "a", "cls": 1, "zzz": object()})
    assert members_of(stream.getvalue()) == {}


def test_a_key_with_a_dot_gives_one_warning():
    with TarWriter(io.BytesIO()) as sink:
        with pytest.warns(ShardWarning, match=r"'dir\.x/img' for the key"):
            sink.write({"__key__": "dir.x/img.001", "txt": "x"})
        sink.write({"__key__": "dir.x/other.002", "txt": "x"})


def test_a_key_with_a_dot_is_an_error_in_strict_mode(monkeypatch):
    monkeypatch.setenv("WDS_STRICT", "1")
    with pytest.raises(ShardError, match="has a dot"):
        TarWriter(io.BytesIO()).write({"__key__": "img.001", "txt": "x"})


def test_a_dot_in_a_folder_is_nothing_to_warn_about():
    assert written({"__key__": "v1.0/a", "txt": "x"}) == {"v1.0/a.txt": b"x"}


@pytest.mark.parametrize("fields", [{"txt": "2"}, {"json": {}}], ids=["the same field", "another field"])
def test_one_key_twice_in_a_row_is_an_error_that_names_it(fields):
    stream = io.BytesIO()
    with TarWriter(stream) as sink:
        sink.write({"__key__": "d/a", "txt": "1"})
        with pytest.raises(SampleError, match=r"two samples in a row have the same key.*key d/a\]; give every sample"):
            sink.write({"__key__": "d/a", **fields})
        sink.write({"__key__": "d/b", "txt": "3"})
        sink.write({"__key__": "d/a", "txt": "4"})
    stream.seek(0)
    samples = list(group_by_keys(tar_file_expander([{"url": "a.tar", "stream": stream}])))
    assert [sample["txt"] for sample in samples] == [b"1", b"3", b"4"]


@pytest.mark.filterwarnings("ignore:the key has a dot")
def test_keys_that_are_one_to_readers_must_not_follow_each_other():
    with TarWriter(io.BytesIO()) as sink:
        sink.write({"__key__": "v1.0/img.001", "txt": "x"})
        with pytest.raises(SampleError, match=r"key v1\.0/img\]; .* a key ends at the first dot of its last part"):
            sink.write({"__key__": "v1.0/img.002", "txt": "x"})
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
        with pytest.raises(SampleError, match="the same key"):
            sink.write({"__key__": "a", "txt": "2"})


@pytest.mark.parametrize("workers", [0, 2])
def test_one_key_twice_in_a_row_is_an_error_in_a_shard_but_not_across_two(tmp_path, workers):
    with ShardWriter(str(tmp_path / "a-%d.tar"), maxcount=1, verbose=0, workers=workers) as sink:
        for _ in range(3):
            sink.write({"__key__": "a", "txt": "x"})
    assert len(names_in(tmp_path)) == 3
    with (
        pytest.raises(SampleError, match="key a"),
        ShardWriter(str(tmp_path / "b-%d.tar"), maxcount=2, verbose=0, workers=workers) as sink,
    ):
        write_all(sink, [{"__key__": "a", "txt": "x"}] * 2)


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
        with pytest.raises(SampleError, match="the same key"):
            sink.write_packed(first + first, [size, size])
        sink.write_packed(first + other, [size, other_size])
        with pytest.raises(SampleError, match="the same key"):
            sink.write({"__key__": "other", "txt": "x"})
        sink.write_packed(b"" + first, [(0, 0), size])
        with pytest.raises(SampleError, match="the same key"):
            sink.write_packed(first, [size])


# -- TarWriter: where it writes ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path, lambda path: f"file:{path}", lambda path: f"pipe:cat > '{path}'"])
def test_a_path_or_url_is_opened(tmp_path, kind):
    with TarWriter(kind(tmp_path / "a.tar")) as sink:
        sink.write(sample(1))
    assert members_of(tmp_path / "a.tar") == {"000001.cls": b"1", "000001.txt": b"text 1"}
    assert names_in(tmp_path) == ["a.tar"]


def test_a_stream_is_left_open():
    stream = io.BytesIO(b"")
    TarWriter(stream).close()
    assert (stream.closed, stream.getvalue()) == (False, bytes(1024))


def test_a_stream_that_takes_little_at_a_time_gets_everything():
    class Slow(io.RawIOBase):
        def __init__(self):
            self.data = b""

        def write(self, data):
            self.data += bytes(data[:1000])
            return len(data[:1000])

    stream = Slow()
    with TarWriter(stream) as sink:
        sink.write({"__key__": "a", "bin": b"x" * 5000})
    assert members_of(stream.data) == {"a.bin": b"x" * 5000}


def test_the_standard_output_can_be_written_to(tmp_path):
    code = "from webdataset.writer import *\nwith TarWriter('-') as sink: sink.write({'__key__': 'a', 'txt': 'x'})"
    done = subprocess.run([os.sys.executable, "-c", code], capture_output=True, check=True)
    assert members_of(done.stdout) == {"a.txt": b"x"}


def test_a_device_is_written_in_place():
    with TarWriter("/dev/null") as sink:
        sink.write(sample(1))
    assert not Path("/dev/null").is_file()


def test_a_named_pipe_is_written_in_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with TarWriter(tmp_path / "pipe") as sink:
        sink.write(sample(1))
    reader.join(60)
    assert list(members_of(got[0])) == ["000001.cls", "000001.txt"]
    assert names_in(tmp_path) == ["pipe"]


@pytest.mark.parametrize("fileobj", [3, None, io.StringIO()])
def test_what_cannot_be_written_to_is_refused(fileobj):
    with pytest.raises(TypeError, match="binary stream"):
        TarWriter(fileobj)


@pytest.mark.parametrize(
    ("name", "magic"),
    [
        ("a.tar", b"000001"),
        ("a.tgz", b"\x1f\x8b\x08"),
        ("a.tar.gz", b"\x1f\x8b\x08"),
        ("a.tar.bz2", b"BZh"),
        ("a.tar.xz", b"\xfd7zXZ"),
        ("a.tar.zst", b"\x28\xb5\x2f\xfd"),
        ("a.tar.lz4", b"\x04\x22\x4d\x18"),
    ],
)
def test_the_suffix_says_how_to_compress(tmp_path, name, magic):
    from webdataset.codecs.compression import decompressed

    with TarWriter(tmp_path / name) as sink:
        sink.write(sample(1))
    with (tmp_path / name).open("rb") as file:
        assert file.read(len(magic)) == magic
        file.seek(0)
        assert members_of(decompressed(file).read()) == {"000001.cls": b"1", "000001.txt": b"text 1"}


@pytest.mark.parametrize(
    ("compress", "magic"), [(True, b"\x1f\x8b"), ("gz", b"\x1f\x8b"), ("zst", b"\x28\xb5"), (False, b"00")]
)
def test_the_compression_can_be_chosen(compress, magic):
    stream = io.BytesIO()
    with TarWriter(stream, compress=compress) as sink:
        sink.write(sample(1))
    assert stream.getvalue()[:2] == magic


def test_an_unknown_compression_is_refused(tmp_path):
    with pytest.raises(ValueError, match="compress must be"):
        TarWriter(tmp_path / "a.tar", compress="zip")
    assert names_in(tmp_path) == []


def test_a_command_that_compresses_itself_gets_plain_data(tmp_path):
    with TarWriter(f"pipe:cat > {tmp_path}/a.tar.zst") as sink:
        sink.write(sample(1))
    assert list(members_of(tmp_path / "a.tar.zst")) == ["000001.cls", "000001.txt"]


def test_threads_may_share_a_writer(tmp_path):
    with TarWriter(tmp_path / "a.tar") as sink:
        threads = [
            threading.Thread(target=lambda t=t: [sink.write(sample(t * 100 + i)) for i in range(100)]) for t in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    names = list(members_of(tmp_path / "a.tar"))
    assert [name[:6] for name in names[::2]] == [name[:6] for name in names[1::2]]
    assert len(names) == 800


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
        with pytest.raises(ValueError, match="index=True needs"):
            TarWriter(target, index=True)
    assert names_in(tmp_path) == []


def test_an_index_refuses_a_name_it_cannot_hold(tmp_path):
    with TarWriter(tmp_path / "a.tar", index=True) as sink, pytest.raises(EncodingError, match="spaces"):
        sink.write({"__key__": "a b", "txt": "x"})


# -- ShardWriter -------------------------------------------------------------------------------------


def test_shards_are_split_by_count(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%03d.tar", maxcount=3) as sink:
        for i in range(7):
            sink.write(sample(i))
    assert names_in(tmp_path) == ["a-000.tar", "a-001.tar", "a-002.tar"]
    assert keys_in(tmp_path / "a-002.tar") == ["000006"]


def test_shards_are_split_by_size(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar", maxsize=10) as sink:
        for i in range(5):
            sink.write({"__key__": str(i), "bin": b"123456"})
    assert [len(members_of(tmp_path / name)) for name in names_in(tmp_path)] == [2, 2, 1]


def test_the_attributes_count_as_they_always_did(tmp_path):
    sink = ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=3, start_shard=4)
    seen = [(sink.shard, sink.count, sink.size, sink.total, sink.fname[-7:])]
    for i in range(4):
        sink.write({"__key__": str(i), "txt": "hello"})
        seen.append((sink.shard, sink.count, sink.size, sink.total, sink.fname[-7:]))
    sink.close()
    assert seen == [
        (5, 0, 0, 0, "a-4.tar"),
        (5, 1, 5, 1, "a-4.tar"),
        (5, 2, 10, 2, "a-4.tar"),
        (5, 3, 15, 3, "a-4.tar"),
        (6, 1, 5, 4, "a-5.tar"),
    ]
    assert (sink.shard, sink.count, sink.total) == (6, 1, 4)


def test_no_sample_gives_no_shard(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar"):
        pass
    assert names_in(tmp_path) == []


def test_a_full_last_shard_is_followed_by_none(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=2) as sink:
        for i in range(4):
            sink.write(sample(i))
    assert names_in(tmp_path) == ["a-0.tar", "a-1.tar"]


def test_a_refused_sample_opens_no_shard(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar") as sink, pytest.raises(EncodingError):
        sink.write({"txt": "x"})
    assert names_in(tmp_path) == []


def test_next_stream_begins_a_new_shard_only_after_a_sample(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar") as sink:
        sink.next_stream()
        sink.write(sample(0))
        sink.next_stream()
        sink.next_stream()
        sink.write(sample(1))
    assert names_in(tmp_path) == ["a-0.tar", "a-1.tar"]


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("a-%06d.tar", "a-000007.tar"),
        ("a-%d.tar", "a-7.tar"),
        ("a-{shard}.tar", "a-7.tar"),
        ("a-{shard:04d}-{x}.tar", "a-0007-{x}.tar"),
        ("100%%-%d.tar", "100%-7.tar"),
        ("100%.tar", "100%.tar"),
        ("pipe:cat > a-%03d.tar", "pipe:cat > a-007.tar"),
    ],
)
def test_patterns_take_the_number_of_the_shard(pattern, name):
    assert shard_name(pattern, 7) == name


@pytest.mark.parametrize("pattern", ["%d-%d.tar", "a%20b-%d%.tar", "a-{shard:nonsense}.tar"])
def test_a_pattern_that_does_not_work_is_refused_at_once(pattern):
    with pytest.raises(ValueError, match="does not take a shard's number"):
        ShardWriter(pattern)


def test_a_pattern_without_a_number_serves_for_one_shard(tmp_path):
    with ShardWriter(tmp_path / "a.tar", maxcount=2) as sink:
        sink.write(sample(0))
        sink.write(sample(1))
        with pytest.raises(ValueError, match=r"has no number.*%06d"):
            sink.write(sample(2))
    assert keys_in(tmp_path / "a.tar") == ["000000", "000001"]


@pytest.mark.parametrize("options", [{"maxcount": 0}, {"maxsize": 0}, {"workers": -1}])
def test_options_out_of_range_are_refused(tmp_path, options):
    with pytest.raises(ValueError, match="must be"):
        ShardWriter(f"{tmp_path}/a-%d.tar", **options)


def test_post_is_called_for_each_complete_shard(tmp_path):
    seen = []
    with ShardWriter(
        f"{tmp_path}/a-%d.tar", maxcount=1, post=lambda name: seen.append((name, len(members_of(Path(name)))))
    ) as sink:
        sink.write(sample(0))
        sink.write(sample(1))
    assert seen == [(f"{tmp_path}/a-0.tar", 2), (f"{tmp_path}/a-1.tar", 2)]


def test_an_opener_gives_the_stream_which_is_closed_before_post(tmp_path):
    opened = {}

    def opener(name):
        opened[name] = io.BytesIO()
        return opened[name]

    closed = []
    with ShardWriter(
        "a-%d.tar.gz", maxcount=1, opener=opener, post=lambda name: closed.append(opened[name].closed)
    ) as sink:
        sink.write(sample(0))
        sink.write(sample(1))
    assert (list(opened), closed) == (["a-0.tar.gz", "a-1.tar.gz"], [True, True])


def test_the_options_of_tarwriter_are_passed_on(tmp_path):
    with ShardWriter(f"{tmp_path}/a-%d.tar", encoder=False, keep_meta=True, mtime=5, index=True) as sink:
        sink.write({"__key__": "a", "_x": b"1", "y": b"2"})
    assert names_in(tmp_path) == ["a-0.idx", "a-0.tar", "a-0.tar.wdx"]
    assert members_of(tmp_path / "a-0.tar") == {"a._x": b"1", "a.y": b"2"}


def test_progress_is_logged_unless_verbose_is_0(tmp_path, caplog):
    caplog.set_level(logging.INFO, "webdataset.writer")
    for verbose in (0, 1):
        with ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=2, verbose=verbose) as sink:
            for i in range(3):
                sink.write(sample(i))
    assert [record.getMessage() for record in caplog.records] == [
        f"# writing {tmp_path}/a-0.tar 0 0.0 GB 0",
        f"# writing {tmp_path}/a-1.tar 2 0.0 GB 2",
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing_in_the_shards(tmp_path, workers):
    for name, n in (("serial", 0), ("threads", workers)):
        (tmp_path / name).mkdir()
        with ShardWriter(f"{tmp_path}/{name}/a-%d.tar", maxcount=30, workers=n) as sink:
            for i in range(100):
                sink.write({"__key__": f"{i:04d}", "json": list(range(i)), "txt": "x" * i})
        assert (sink.total, sink.count, sink.shard) == (100, 10, 4)
    for name in names_in(tmp_path / "serial"):
        assert (tmp_path / "serial" / name).read_bytes() == (tmp_path / "threads" / name).read_bytes()
    assert names_in(tmp_path / "serial") == names_in(tmp_path / "threads")


def test_workers_run_at_the_same_time_and_ahead_of_a_bound_only(tmp_path):
    both = threading.Barrier(2, timeout=60)
    started = []

    def encoder(given_sample):
        started.append(given_sample["__key__"])
        if len(started) <= 2:
            both.wait()
        return {"__key__": given_sample["__key__"], "txt": b"x"}

    with ShardWriter(f"{tmp_path}/a-%d.tar", workers=2, encoder=encoder) as sink:
        for i in range(100):
            sink.write({"__key__": str(i)})
            assert i - sink.total <= 2 * 8
    assert list(members_of(tmp_path / "a-0.tar")) == [f"{i}.txt" for i in range(100)]


def test_an_error_in_a_worker_is_raised_and_nothing_is_published(tmp_path):
    sink = ShardWriter(f"{tmp_path}/a-%d.tar", workers=2)
    sink.write({"__key__": "good", "txt": "x"})
    sink.write({"__key__": "bad", "zzz": object()})
    with pytest.raises(EncodingError, match="key bad, field zzz"):
        sink.close()
    assert names_in(tmp_path) == []


def test_after_an_error_in_a_worker_the_other_samples_are_still_there(tmp_path):
    failures = []
    with ShardWriter(f"{tmp_path}/a-%d.tar", workers=1) as sink:
        for i in range(40):
            try:
                sink.write({"__key__": str(i), "cls": i if i != 5 else object()})
            except EncodingError as error:
                failures.append(error.key)
    assert failures == ["5"]
    assert list(members_of(tmp_path / "a-0.tar")) == [f"{i}.cls" for i in range(40) if i != 5]


def test_shared_shards_get_the_first_free_number(tmp_path):
    names = []
    one = ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=1, shared=True, post=names.append)
    two = ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=1, shared=True, post=names.append)
    for i in range(4):
        one.write(sample(i))
        two.write(sample(10 + i))
    two.close()
    one.close()
    assert sorted(names) == sorted(f"{tmp_path}/a-{n}.tar" for n in range(8))
    assert names_in(tmp_path) == [f"a-{n}.tar" for n in range(8)]
    assert one.fname == names[-1]
    assert sorted(key for n in range(8) for key in keys_in(tmp_path / f"a-{n}.tar")) == sorted(
        f"{i:06d}" for i in (0, 1, 2, 3, 10, 11, 12, 13)
    )


def test_shared_shards_never_replace_what_is_there(tmp_path):
    (tmp_path / "a-0.tar").write_bytes(b"precious")
    with ShardWriter(f"{tmp_path}/a-%d.tar", shared=True, index=True) as sink:
        sink.write(sample(1))
    assert (tmp_path / "a-0.tar").read_bytes() == b"precious"
    assert names_in(tmp_path) == ["a-0.tar", "a-1.idx", "a-1.tar", "a-1.tar.wdx"]


@pytest.mark.parametrize("pattern", ["a.tar", "%d/a.tar", "pipe:cat > a-%d.tar"])
def test_a_shared_pattern_must_be_local_with_a_number_in_the_name(tmp_path, pattern):
    (tmp_path / "0").mkdir()
    pattern = pattern if pattern.startswith("pipe") else f"{tmp_path}/{pattern}"
    with pytest.raises(ValueError, match="shared=True needs"):
        ShardWriter(pattern, shared=True)


@pytest.mark.parametrize("make", [lambda path: TarWriter(path / "a.tar"), lambda path: ShardWriter(path / "a-%d.tar")])
def test_closing_twice_is_fine_and_writing_afterwards_is_not(tmp_path, make):
    sink = make(tmp_path)
    sink.write(sample(0))
    sink.close()
    sink.close()
    with pytest.raises(StorageError, match="closed"):
        sink.write(sample(1))


@pytest.mark.parametrize("make", [lambda path: TarWriter(path / "a.tar"), lambda path: ShardWriter(path / "a-%d.tar")])
def test_a_writer_says_why_it_does_not_pickle(tmp_path, make):
    with make(tmp_path) as sink, pytest.raises(TypeError, match="shared=True"):
        pickle.dumps(sink)


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 5), st.integers(1, 60))
def test_every_sample_is_in_exactly_one_shard(values, maxcount, maxsize):
    streams = []

    def opener(name):
        stream = io.BytesIO()
        stream.close = lambda: None
        streams.append(stream)
        return stream

    with ShardWriter("a-%d.tar", maxcount=maxcount, maxsize=maxsize, opener=opener) as sink:
        for i, value in enumerate(values):
            sink.write({"__key__": f"{i}", "bin": value})
    shards = [members_of(stream.getvalue()) for stream in streams]
    assert [item for shard in shards for item in shard.items()] == [
        (f"{i}.bin", value) for i, value in enumerate(values)
    ]
    assert all(1 <= len(shard) <= maxcount for shard in shards)


@pytest.mark.parametrize(("maxcount", "maxsize"), [(2, 1e9), (100, 700), (100, 1e9)])
def test_samples_that_are_packed_already_are_split_like_others(tmp_path: Path, maxcount: int, maxsize: float) -> None:
    from webdataset.tar.writer import MemberHeaders, packed

    samples = [{"__key__": f"{n}", "bin": bytes(n * 100)} for n in range(7)]
    with ShardWriter(f"{tmp_path}/a-%d.tar", maxcount, maxsize, verbose=0) as sink:
        for sample in samples:
            sink.write(sample)
    blobs = [packed([(f"{n}.bin".encode(), bytes(n * 100))], MemberHeaders()) for n in range(7)]
    with ShardWriter(f"{tmp_path}/b-%d.tar", maxcount, maxsize, verbose=0) as sink:
        sink.write(samples[0])
        sink.write_packed(b"".join(blobs[1:6]), [(len(blobs[n]), n * 100) for n in range(1, 6)])
        sink.write(samples[6])
    ones, others = sorted(tmp_path.glob("a-*")), sorted(tmp_path.glob("b-*"))
    assert [path.read_bytes() for path in ones] == [path.read_bytes() for path in others]


def test_packed_samples_have_no_index_and_a_closed_writer_takes_none(tmp_path: Path) -> None:
    with TarWriter(f"{tmp_path}/a.tar", index=True) as sink, pytest.raises(ValueError, match="in no index"):
        sink.write_packed(b"", [])
    for closed in (TarWriter(f"{tmp_path}/b.tar"), ShardWriter(f"{tmp_path}/c-%d.tar", verbose=0)):
        closed.close()
        with pytest.raises(StorageError, match="this writer is closed"):
            closed.write_packed(b"", [])
