"""Samples written: what is in the shards."""

import io
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
from webdataset.errors import EncodingError, StorageError
from webdataset.tar.writer import MemberHeaders, packed
from webdataset.writer import ShardWriter, TarWriter


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


def test_a_sample_may_be_empty():
    assert written({"__key__": "a"}) == {}


def test_a_buffer_may_be_used_again_after_write():
    stream, buffer = io.BytesIO(), bytearray(b"one")
    with TarWriter(stream, encoder=False) as sink:
        sink.write({"__key__": "a", "bin": buffer})
        buffer[:] = b"two"
        sink.write({"__key__": "b", "bin": memoryview(buffer)})
        buffer[:] = b"xxx"
    assert members_of(stream.getvalue()) == {"a.bin": b"one", "b.bin": b"two"}


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


# -- TarWriter: where it writes ----------------------------------------------------------------------


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
    opened = []
    with ShardWriter(pattern, start_shard=7, opener=lambda name: opened.append(name) or io.BytesIO()) as sink:
        sink.write(sample(0))
    assert opened == [name]


@pytest.mark.parametrize("pattern", ["%d-%d.tar", "a%20b-%d%.tar", "a-{shard:nonsense}.tar"])
def test_a_pattern_that_does_not_work_is_refused_at_once(pattern):
    with pytest.raises(ValueError, match="%06d"):
        ShardWriter(pattern)


def test_a_pattern_without_a_number_serves_for_one_shard(tmp_path):
    with ShardWriter(tmp_path / "a.tar", maxcount=2) as sink:
        sink.write(sample(0))
        sink.write(sample(1))
        with pytest.raises(ValueError, match="%06d"):
            sink.write(sample(2))
    assert keys_in(tmp_path / "a.tar") == ["000000", "000001"]


@pytest.mark.parametrize("options", [{"maxcount": 0}, {"maxsize": 0}, {"workers": -1}])
def test_options_out_of_range_are_refused(tmp_path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
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
    told = [record.getMessage().split() for record in caplog.records]
    assert [(words[2], words[-1]) for words in told] == [(f"{tmp_path}/a-0.tar", "0"), (f"{tmp_path}/a-1.tar", "2")]


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
    with pytest.raises(EncodingError) as raised:
        sink.close()
    assert (raised.value.key, raised.value.field) == ("bad", "zzz")
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
    with pytest.raises(ValueError, match="shared=True"):
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


def test_progress_is_a_bar_of_tqdm(tmp_path, capfd):
    with ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=2, verbose=0, progress=True) as sink:
        for number in range(5):
            sink.write({"__key__": str(number), "txt": "x"})
    assert "write: 5 samples" in capfd.readouterr().err
