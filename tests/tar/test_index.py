"""The index of a shard: what reading finds, in a few bytes a sample, and whole or not at all."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import random
import struct
import subprocess
import tarfile
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset.base.reports import Report
from webdataset.errors import ShardError
from webdataset.handlers import reraise_exception
from webdataset.tar import read_members
from webdataset.tar.index import IndexBuilder, ShardIndex
from webdataset.tar.plain import MemberPlace
from webdataset.tar.scan import PlaceScan
from webdataset.tariterators import Grouping, base_plus_ext


def indexed(archive, **options) -> ShardIndex:
    """The index of an archive in memory, or of a stream."""
    stream = io.BytesIO(archive) if isinstance(archive, bytes) else archive
    scan, builder = PlaceScan(stream, **options), IndexBuilder()
    grouping = Grouping(base_plus_ext, True, None, reraise_exception, Report())
    for sample in grouping.samples(scan.windows(), {}):
        key = sample.pop("__key__")
        builder.add(key, list(sample), list(sample.values()))
    size = len(archive) if isinstance(archive, bytes) else 1 << 40
    return builder.index(size=size, self_contained=scan.self_contained)


def samples_of(archive: bytes) -> list[dict]:
    grouping = Grouping(base_plus_ext, True, None, reraise_exception, Report())
    return list(grouping.samples(read_members(io.BytesIO(archive)), {}))


def found(scan: PlaceScan) -> list[MemberPlace]:
    return [place for window in scan.windows() for _, _, place in window]


# -- places ------------------------------------------------------------------------------------------


def test_a_scan_finds_the_places_of_members(kit):
    archive = kit.member(b"a.txt", b"x" * 600) + kit.member(b"b.txt", b"y" * 100_000) + kit.member(b"c.txt") + kit.END
    expected = [
        MemberPlace("a.txt", 0, 512, 600, 1536),
        MemberPlace("b.txt", 1536, 2048, 100_000, 102_400),
        MemberPlace("c.txt", 102_400, 102_912, 0, 102_912),
    ]
    assert found(PlaceScan(io.BytesIO(archive))) == expected
    assert found(PlaceScan(kit.stream(archive, [700]))) == expected


def test_extended_headers_belong_to_their_member(kit):
    archive = kit.member(b"a.txt", b"1") + kit.pax((b"path", b"new.txt")) + kit.member(b"old", b"2")
    archive += kit.long(b"l" * 120 + b".txt") + kit.member(b"short", b"3") + kit.END
    places = found(PlaceScan(io.BytesIO(archive)))
    assert [(place.name, place.offset, place.data_offset) for place in places] == [
        ("a.txt", 0, 512),
        ("new.txt", 1024, 2560),
        ("l" * 120 + ".txt", 3072, 4608),
    ]


def test_links_and_directories_have_no_place(kit):
    archive = (
        kit.member(b"d/", type=b"5") + kit.member(b"l", type=b"2", link=b"t") + kit.member(b"a.txt", b"1") + kit.END
    )
    assert [place.name for place in found(PlaceScan(io.BytesIO(archive)))] == ["a.txt"]


@pytest.mark.parametrize("seekable", [True, False])
def test_a_cut_member_is_an_error_with_its_place(kit, seekable):
    archive = kit.member(b"a", b"1") + kit.header(b"b", 200_000) + bytes(100_000)
    stream = io.BytesIO(archive) if seekable else kit.stream(archive, [5000])
    with pytest.raises(ShardError, match="100000 of 200192") as raised:
        found(PlaceScan(stream, url="u"))
    assert (raised.value.url, raised.value.offset, raised.value.member) == ("u", 1024, "b")


def test_a_global_header_that_changes_names_makes_samples_depend_on_it(kit):
    harmless = kit.pax((b"comment", b"made by hand"), type=b"g") + kit.member(b"a.txt", b"1") + kit.END
    assert indexed(harmless).self_contained
    telling = kit.pax((b"path", b"x.txt"), type=b"g") + kit.member(b"a.txt", b"1") + kit.END
    index = indexed(telling)
    assert not index.self_contained
    assert index.key(0) == "x"


# -- samples -----------------------------------------------------------------------------------------


def test_an_index_knows_samples_and_members(kit):
    files = [(b"a.cls", b"1"), (b"a.JPG", b"x" * 700), (b"b.cls", b"22"), (b"d/c.seg.png", b"333")]
    index = indexed(b"".join(kit.member(*file) for file in files) + kit.END)
    assert (index.samples, index.starts.tolist()) == (3, [0, 2560, 3584, 4608])
    assert index.starts.dtype == np.uint64
    assert [index.key(i) for i in range(3)] == list(index.keys()) == ["a", "b", "d/c"]
    assert [tuple(member) for member in index.members(0)] == [("cls", "a.cls", 512, 1), ("jpg", "a.JPG", 1536, 700)]
    assert [tuple(member) for member in index.members(2)] == [("seg.png", "d/c.seg.png", 4096, 3)]
    assert index.field_names == ["cls", "jpg", "seg.png"]
    assert index.field_bytes("jpg").tolist() == [700, -1, -1]
    assert index.field_bytes("cls").tolist() == [1, 2, -1]
    assert index.field_bytes("none").tolist() == [-1, -1, -1]


def test_keys_are_found(kit):
    index = indexed(b"".join(kit.member(b"%04d.txt" % i) for i in range(3000)) + kit.END)
    assert [index.find(f"{i:04d}") for i in (0, 1023, 1024, 2999)] == [0, 1023, 1024, 2999]
    with pytest.raises(KeyError, match="3000"):
        index.find("3000")
    with pytest.raises(IndexError, match="3000"):
        index.key(3000)


def test_a_key_that_comes_back_is_two_samples_and_the_first_is_found(kit):
    archive = b"".join(kit.member(name) for name in (b"a.txt", b"b.txt", b"a.txt")) + kit.END
    index = indexed(archive)
    assert (list(index.keys()), index.find("a")) == (["a", "b", "a"], 0)


def test_what_is_in_no_sample_lies_between_samples(kit):
    names = [b"__meta__/x", b"README", b"a.txt", b"NOTE", b"a.cls", b"HINT", b"b.txt", b"END"]
    index = indexed(b"".join(kit.member(name, b"1") for name in names) + kit.END)
    assert index.starts.tolist() == [2048, 6144, 7168]
    assert [member.data_offset for member in index.members(0)] == [2560, 4608]


def test_an_empty_shard_has_no_samples(kit):
    index = indexed(kit.END)
    assert (index.samples, index.starts.tolist(), index.field_names, list(index.keys())) == (0, [0], [], [])
    assert index.field_bytes("x").tolist() == []


def test_sparse_files_have_their_real_size_and_no_place(kit, tmp_path):
    with open(tmp_path / "a.bin", "wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    (tmp_path / "a.cls").write_bytes(b"7")
    for format in ("gnu", "posix"):
        command = ["tar", "-cS", f"--format={format}", "-C", str(tmp_path), "a.bin", "a.cls"]
        archive = subprocess.run(command, capture_output=True, check=True).stdout
        index = indexed(archive)
        sparse, plain = index.members(0)
        assert (sparse.field, sparse.data_offset, sparse.size) == ("bin", -1, (1 << 20) + 3)
        assert archive[plain.data_offset : plain.data_offset + plain.size] == b"7"


def test_names_that_are_no_utf8_survive(kit):
    index = indexed(kit.member(b"caf\xe9.t\xe9", b"1") + kit.END)
    (member,) = ShardIndex.from_bytes(index.to_bytes()).members(0)
    assert member.name.encode("utf-8", "surrogateescape") == b"caf\xe9.t\xe9"
    assert index.find("caf\udce9") == 0


# -- the file ----------------------------------------------------------------------------------------


def test_an_index_is_the_same_from_its_bytes(kit):
    index = IndexBuilder()
    index.add("k", ["txt"], [MemberPlace("k.txt", 0, 512, 5, 1024)])
    made = index.index(size=2048, version='"etag"', rule="my rule")
    again = ShardIndex.from_bytes(made.to_bytes())
    assert (again.samples, again.size, again.version, again.rule) == (1, 2048, '"etag"', "my rule")
    assert again.members(0) == made.members(0)


@pytest.mark.parametrize(
    ("prefix", "fields", "most"), [("sample", 2, 20), ("train/n01440764_", 3, 28), ("random", 2, 40)]
)
def test_an_index_takes_few_bytes_a_sample(kit, prefix, fields, most):
    rng, builder, place = random.Random(1), IndexBuilder(), 0
    for i in range(10_000):
        key = f"{rng.getrandbits(100):025x}" if prefix == "random" else f"{prefix}{i:08d}"
        names, places = [], []
        for field in ("jpg", "cls", "json")[:fields]:
            size = rng.randrange(20_000, 200_000) if field == "jpg" else rng.randrange(1, 999)
            end = place + 512 + size + -size % 512
            names.append(field)
            places.append(MemberPlace(f"{key}.{field}", place, place + 512, size, end))
            place = end
        builder.add(key, names, places)
    assert len(builder.index(size=place + 1024).to_bytes()) / 10_000 < most


def test_shards_of_terabytes_fit(kit):
    builder, far = IndexBuilder(), 5 << 40
    builder.add("a", ["bin"], [MemberPlace("a.bin", far, far + 512, far, 2 * far + 512)])
    index = builder.index(size=3 * far)
    assert index.starts.tolist() == [far, 2 * far + 512]
    assert tuple(index.members(0)[0]) == ("bin", "a.bin", far + 512, far)


def test_every_byte_of_an_index_counts(kit):
    data = indexed(b"".join(kit.member(b"%04d.txt" % i, b"x" * i) for i in range(50)) + kit.END).to_bytes()
    whole = _everything(ShardIndex.from_bytes(data))
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        with contextlib.suppress(ShardError):
            # what is between the columns means nothing
            assert _everything(ShardIndex.from_bytes(bytes(damaged))) == whole


def test_a_cut_index_is_an_error(kit):
    data = indexed(kit.member(b"a.txt") + kit.END).to_bytes()
    for length in (0, 7, 8, 20, 100, len(data) - 1):
        with pytest.raises(ShardError):
            ShardIndex.from_bytes(data[:length])
    with pytest.raises(ShardError, match="cut"):
        ShardIndex.from_bytes(data + b"x")


def forged(data: bytes, **changes) -> bytes:
    """The index with another header, whose checksum is right."""
    length = struct.unpack_from("<I", data, 8)[0]
    head = json.loads(data[16 : 16 + length])
    for name, value in changes.items():
        if name in head:
            head[name] = value
        else:
            head["columns"][name] = value and [*value, *head["columns"][name][len(value) :]]
    text = json.dumps(head).encode()
    return data[:8] + struct.pack("<II", len(text), zlib.crc32(text)) + text + data[16 + length :]


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": 10**12},
        {"samples": -1},
        {"samples": "many"},
        {"size": 512},
        {"columns": 3},
        {"columns": {}},
        {"starts": [10**9, 8]},
        {"starts": None},
        {"sizes": [0, 0, 0]},
        {"hashes": [0, 0, 0, "|O"]},
        {"kinds": ["x"]},
        {"keys": [0, 0, 0]},
        {"layouts": [0, 0, 0]},
    ],
)
def test_a_forged_index_is_an_error(kit, changes):
    data = indexed(
        b"".join(kit.member(b"%d.%s" % (i, b"txt" if i % 2 else b"cls")) for i in range(9)) + kit.END
    ).to_bytes()
    with pytest.raises(ShardError, match="damaged"):
        _everything(ShardIndex.from_bytes(forged(data, **changes)))


def test_keys_do_not_grow_without_bounds(kit, monkeypatch):
    monkeypatch.setattr("webdataset.tar.index.MAX_TEXT", 1000)
    index = indexed(b"".join(kit.member(b"%04d.txt" % i) for i in range(500)) + kit.END)
    with pytest.raises(ShardError, match="'keys'"):
        index.key(0)


def test_other_columns_are_not_touched_for_the_starts(kit):
    data = indexed(b"".join(kit.member(b"%d.txt" % i) for i in range(9)) + kit.END).to_bytes()
    damaged = data[:-8] + bytes(8)
    index = ShardIndex.from_bytes(damaged)
    assert len(index.starts) == 10
    with pytest.raises(ShardError, match="'keys'"):
        index.key(0)


def _everything(index: ShardIndex) -> tuple:
    keys = [index.key(i) for i in range(index.samples)]
    places = [index.members(i) for i in range(index.samples)]
    facts = (index.size, index.version, index.self_contained, index.rule)
    return keys, places, index.starts.tolist(), index.key_hashes.tolist(), [index.find(key) for key in keys], facts


# -- any archive -------------------------------------------------------------------------------------

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
TYPES = [tarfile.REGTYPE] * 8 + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]
keys = st.one_of(
    st.sampled_from(["a", "b", "c", "d/e", "__x__", ""]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0/."), min_size=1, max_size=12),
    st.text("nm", min_size=90, max_size=200),
)
endings = st.sampled_from([".txt", ".cls", ".JPG", ".seg.png", "", ".__url__", "/x.txt", "."])
lengths = st.one_of(st.integers(0, 2000), st.integers(20_000, 70_000))
times = st.sampled_from([0.0, 1.5])
files = st.lists(st.tuples(keys, endings, lengths, st.sampled_from(TYPES), times), max_size=14)


def build(specs, format: int) -> bytes:
    file, seen = io.BytesIO(), set()
    with tarfile.open(fileobj=file, mode="w", format=format, encoding="utf-8") as tar:
        for key, ending, size, type, mtime in specs:
            info = tarfile.TarInfo(key + ending)
            if info.name.lower() in seen or not info.name:  # a field that comes twice is an error of its own
                continue
            seen.add(info.name.lower())
            info.type, info.mtime = type, mtime
            info.linkname = "target" if type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            info.size = size if type == tarfile.REGTYPE else 0
            try:
                tar.addfile(info, io.BytesIO(random.Random(size).randbytes(info.size)))
            except ValueError:  # a name that ustar cannot hold
                continue
    return file.getvalue()


def check(archive: bytes, index: ShardIndex) -> None:
    """Every sample of the archive is in the index, and is in its bytes, alone."""
    expected = samples_of(archive)
    assert index.samples == len(expected)
    for i, sample in enumerate(expected):
        start, stop = index.starts[i : i + 2].tolist()
        (alone,) = samples_of(archive[start:stop] + bytes(1024))
        assert alone == sample
        assert index.key(i) == sample["__key__"]
        fields = {field: archive[place : place + size] for field, _, place, size in index.members(i)}
        assert fields == {name: data for name, data in sample.items() if name != "__key__"}
    for field in index.field_names:
        assert index.field_bytes(field).tolist() == [
            len(sample[field]) if field in sample else -1 for sample in expected
        ]


@settings(max_examples=150, deadline=None)
@given(specs=files, format=st.sampled_from(FORMATS))
@pytest.mark.filterwarnings("ignore::webdataset.errors.ShardWarning")
def test_the_index_of_any_archive_is_what_reading_finds(specs, format):
    archive = build(specs, format)
    check(archive, indexed(archive))


@settings(max_examples=50, deadline=None)
@given(specs=files, chunks=st.lists(st.integers(1, 5000), min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore::webdataset.errors.ShardWarning")
def test_a_stream_gives_the_same_index_as_a_file(kit, specs, chunks):
    archive = build(specs, tarfile.PAX_FORMAT)
    assert _everything(indexed(kit.stream(archive, chunks)))[:-1] == _everything(indexed(archive))[:-1]


@settings(max_examples=30, deadline=None)
@given(specs=files, format=st.sampled_from(FORMATS))
@pytest.mark.filterwarnings("ignore::webdataset.errors.ShardWarning")
def test_two_archives_in_a_row_are_one_shard(specs, format):
    archive = build(specs, format) + build([("z" + key, *rest) for key, *rest in specs], format)
    check(archive, indexed(archive))


FIRST_VERSION = """
iVdEWDENChpIAQAATCzKX3sic2l6ZSI6NjE0NCwidmVyc2lvbiI6IjYxNDQtMSIsInNlbGZfY29udGFpbmVkIjp0cnVlLCJydWxlIjpudWxsLC
JzYW1wbGVzIjoyLCJsZW5ndGgiOjEyMCwiY29sdW1ucyI6eyJzdGFydHMiOlswLDEyLDk3NTk1NDA0MiwiPHU0Il0sImxheW91dHMiOlsxNiw1
MSwzNTY4ODM0OTk5LCIiXSwia2luZHMiOls3MiwyLDkyMDUyNzQ2NSwiPHUxIl0sInNpemVzIjpbODAsMywxNDM4NDE2OTI1LCI8dTEiXSwiaG
FzaGVzIjpbODgsOCwyODQ0MTAxOTg5LCI8dTQiXSwiYmxvY2tzIjpbOTYsMSwxMTcxMjczMjIxLCI8dTEiXSwia2V5cyI6WzEwNCwxMSwyMjA3
ODQ3MTEsIiJdfX0gICAAAAAABAAAAAgAAAAAAAAAeJyLjo5WSs4pVtJR0gNThjp5pTk5sTrRSiUVJSBRMAUVBQrDxUMiQpR0jKHisQAIXxXBAA
AAAAAAAQAAAAAAAAECAwAAAAAAQ7636PnvvnELAAAAAAAAAHicS2RIAgABiADEAAAAAAA=
"""


def test_files_of_the_first_version_stay_readable():
    """If this fails, the new format needs another magic."""
    index = ShardIndex.from_bytes(base64.b64decode(FIRST_VERSION))
    assert (index.samples, index.size, index.version, index.self_contained) == (2, 6144, "6144-1", True)
    assert (index.starts.tolist(), list(index.keys()), index.find("b")) == ([0, 2048, 4096], ["a", "b"], 1)
    assert [tuple(member) for member in index.members(0)] == [("cls", "a.cls", 512, 1), ("txt", "a.txt", 1536, 2)]
    assert [tuple(member) for member in index.members(1)] == [("txt", "b.TXT", 3584, 3)]
