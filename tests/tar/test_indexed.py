"""Samples by their index: whatever is found quickly is what the reader of members finds."""

from __future__ import annotations

import io
import random
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.base.reports import Report
from webdataset.indices.files import make_index
from webdataset.tar.indexed import BIG, IndexedSamples, members_around
from webdataset.tar.limits import Limits
from webdataset.tar.plain import PlainMembers
from webdataset.tar.reader import read_members
from webdataset.tariterators import Grouping, base_plus_ext

PLACES = {"__url__": "a.tar"}
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def archive(files, format=tarfile.USTAR_FORMAT, mtime=0):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.mtime = mtime
            if data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def samples_read(data):
    grouping = Grouping(base_plus_ext, True, None, None, Report())
    return list(grouping.samples(read_members(io.BytesIO(data), report=Report()), PLACES))


def indexed(data, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    return IndexedSamples(make_index(str(path)))


def in_pieces(data, samples, length):
    """The samples, a few at a time, or None if one of the pieces was left to the reader."""
    found = []
    count = len(samples.starts) - 1
    for first in range(0, count, length):
        last = min(first + length, count) - 1
        piece = data[int(samples.starts[first]) : int(samples.starts[last + 1])]
        few = samples.in_piece(piece, first, last, PLACES)
        if few is None:
            return None
        found += few
    return found


def apart(data, samples, numbers):
    """The samples with these numbers, each of a piece of its own."""
    pieces = [data[int(samples.starts[number]) : int(samples.starts[number + 1])] for number in numbers]
    return samples.in_pieces(pieces, numbers, PLACES)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("mtime", [1_700_000_000, 1_700_000_000.25])
@pytest.mark.parametrize("length", [1, 7, 100])
def test_samples_are_those_that_the_reader_gives(tmp_path, format, mtime, length):
    files = [(f"{i:03d}.{ext}", ext.encode() * i) for i in range(60) for ext in ("jpg", "cls", "seg.PNG")]
    data = archive(files, FORMATS[format], mtime)
    assert in_pieces(data, indexed(data, tmp_path), length) == samples_read(data)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("mtime", [1_700_000_000, 1_700_000_000.25])
@pytest.mark.parametrize("numbers", [[5], [0, 20, 59], [3, 4, 50, 8]])
def test_samples_that_lie_apart_are_those_that_the_reader_gives(tmp_path, format, mtime, numbers):
    files = [(f"{i:03d}.{ext}", ext.encode() * i * 100) for i in range(60) for ext in ("jpg", "cls", "seg.PNG")]
    data = archive(files, FORMATS[format], mtime)
    known = samples_read(data)
    assert apart(data, indexed(data, tmp_path), numbers) == [known[number] for number in numbers]


def test_samples_may_be_built_in_several_ways(tmp_path):
    files = [(f"{i}.{ext}", b"x" * i) for i in range(100) for ext in ("a", "b", "c")[: 1 + i % 3]]
    data = archive(files)
    samples, known = indexed(data, tmp_path), samples_read(data)
    assert in_pieces(data, samples, 9) == known
    assert apart(data, samples, [70, 1, 2, 33]) == [known[number] for number in (70, 1, 2, 33)]


@pytest.mark.parametrize(
    "files",
    [
        [("a.x", b"1"), ("__meta__/note", b"2"), ("b.x", b"3")],
        [("a.x", b"1"), ("a", None), ("b.x", b"3")],
        [("a.x", b"1"), ("d/" * 60 + "b.x", b"3")],
    ],
    ids=["members of no sample", "folders", "names in two fields"],
)
def test_what_is_not_simple_is_left_to_the_reader(tmp_path, files):
    data = archive(files)
    assert in_pieces(data, indexed(data, tmp_path), 10) is None


def test_long_names_are_left_to_the_reader(tmp_path):
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        data = archive([("k" * 150 + ".txt", b"1"), ("b.txt", b"2")], format)
        assert in_pieces(data, indexed(data, tmp_path), 10) is None


def test_a_member_over_the_limit_is_left_to_the_reader(tmp_path):
    path = tmp_path / "a.tar"
    data = archive([("a.x", b"12"), ("b.x", b"123")])
    path.write_bytes(data)
    samples = IndexedSamples(make_index(str(path)), 2)
    assert in_pieces(data, samples, 1) is None
    assert samples.in_piece(data[:1024], 0, 0, {}) == [{"__key__": "a", "x": b"12"}]


@given(st.integers(0, 59), st.integers(0, 511), st.integers(1, 255))
def test_a_header_that_changed_is_never_believed(tmp_path_factory, number, place, change):
    files = [(f"{i:03d}.txt", b"t" * i) for i in range(60)]
    data = bytearray(archive(files))
    samples = indexed(bytes(data), tmp_path_factory.getbasetemp())
    data[int(samples.starts[number]) + place] ^= change
    piece = bytes(data[: int(samples.starts[-1])])
    for found in (samples.in_piece(piece, 0, 59, PLACES), apart(piece, samples, list(range(60)))):
        assert found is None or found == samples_read(bytes(data))


def test_a_piece_that_was_cut_is_not_believed(tmp_path):
    data = archive([(f"{i}.txt", b"t" * 700) for i in range(5)])
    samples = indexed(data, tmp_path)
    pieces = [data[int(samples.starts[number]) : int(samples.starts[number + 1])] for number in range(5)]
    assert samples.in_pieces(pieces, [0, 1, 2, 3, 4], PLACES) == samples_read(data)
    pieces[3] = pieces[3][:1100]
    assert samples.in_pieces(pieces, [0, 1, 2, 3, 4], PLACES) is None


@given(
    st.lists(st.tuples(st.sampled_from(["jpg", "x.json", "cls"]), st.sampled_from([0, 1, 700, BIG - 1, BIG, 3 * BIG]))),
    st.sampled_from(sorted(FORMATS)),
    st.data(),
)
def test_members_around_big_ones_are_those_that_the_reader_gives(tmp_path_factory, shapes, format, drawn):
    noise = random.Random(len(shapes))
    files = [(f"{i:03d}.{ext}", noise.randbytes(size)) for i, (ext, size) in enumerate(shapes)]
    data = archive([("first.x", b"1"), *files], FORMATS[format], 0.5)
    samples = indexed(data, tmp_path_factory.getbasetemp())
    count = len(samples.starts) - 1
    first = drawn.draw(st.integers(0, count - 1))
    last = drawn.draw(st.integers(first, count - 1))
    start, stop = int(samples.starts[first]), int(samples.starts[last + 1])
    big = samples.big_members(start, stop)
    stream = io.BytesIO(data)
    stream.seek(start)
    found = members_around(stream, start, stop, big=big, plain=PlainMembers(Limits.default()))
    known = [member for window in read_members(io.BytesIO(data)) for member in window]
    assert found == [member for member in known if start <= member[1] < stop]


def test_big_members_of_another_size_are_not_believed(tmp_path):
    data = archive([("a.x", b"1" * BIG), ("b.x", b"2")])
    samples = indexed(data, tmp_path)
    changed = archive([("a.x", b"1" * (BIG + 5)), ("b.x", b"2")])
    stop = int(samples.starts[-1])
    big = samples.big_members(0, stop)
    assert big == [(512, 512 + BIG)]
    assert members_around(io.BytesIO(changed), 0, stop, big=big, plain=PlainMembers(Limits.default())) is None
    assert members_around(io.BytesIO(data[:2000]), 0, stop, big=big, plain=PlainMembers(Limits.default())) is None


def test_a_sparse_file_has_no_place_of_its_own(tmp_path):
    import subprocess

    with open(tmp_path / "a.bin", "wb") as file:
        file.write(b"x" * BIG)
        file.truncate(1 << 20)
        file.seek(1 << 20)
        file.write(b"y" * BIG)
    subprocess.run(["tar", "-S", "--format=gnu", "-cf", "a.tar", "a.bin"], cwd=tmp_path, check=True)
    data = (tmp_path / "a.tar").read_bytes()
    samples = indexed(data, tmp_path)
    assert samples.big_members(0, int(samples.starts[-1])) is None
    assert in_pieces(data, samples, 1) is None
