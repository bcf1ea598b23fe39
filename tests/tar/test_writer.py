"""Archives as written: what other programs read from them."""

import io
import os
import subprocess
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.errors import EncodingError
from webdataset.tar.writer import END, ArchiveWriter, MemberHeaders, member_bytes, name_bytes, padding

NAMES = [
    "a.txt",
    "x" * 100,
    "x" * 101,
    "d/" * 60 + "f.txt",
    "d" * 155 + "/" + "f" * 100,
    "d" * 156 + "/" + "f" * 100,
    "/" + "x" * 120,
    "é.txt",
    "é" * 80,
    "日本/" * 30 + "x.jpg",
    "\udce9.txt",
    "\udce9" * 150,
    "\udce9/" * 60 + "a",
    "line\nbreak" * 20,
    " leading and trailing ",
    "x" * 10_000,
]


def archive_of(members: list[tuple[str, bytes]], **options) -> bytes:
    blocks: list[bytes] = []
    writer = ArchiveWriter(blocks.append, headers=MemberHeaders(**options))
    for name, data in members:
        writer.add(name_bytes(name), data)
    writer.finish()
    return b"".join(blocks)


def read_back(archive: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]


def gnu_tar(archive: bytes, *options: str) -> bytes:
    done = subprocess.run(
        ["tar", *options, "-f", "-"], input=archive, capture_output=True, check=True, env=os.environ | {"LC_ALL": "C"}
    )
    return done.stdout


def header_of(archive: bytes) -> tarfile.TarInfo:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return tar.next()


@pytest.mark.parametrize("name", NAMES)
def test_python_reads_every_name_back(name):
    assert read_back(archive_of([(name, b"data")])) == [(name, b"data")]


@pytest.mark.parametrize("name", NAMES)
def test_gnu_tar_reads_every_name_back(name):
    listed = gnu_tar(archive_of([(name, b"data")]), "-tP", "--quoting-style=literal")
    assert listed == name.encode("utf-8", "surrogateescape") + b"\n"


@pytest.mark.parametrize("name", NAMES)
def test_gnu_tar_reads_the_data_behind_every_name(name):
    assert gnu_tar(archive_of([(name, b"data")]), "-xPO") == b"data"


segments = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=130)
names = st.lists(segments, min_size=1, max_size=4).map("/".join)
raw_names = (
    st.binary(min_size=1, max_size=300)
    .filter(lambda raw: b"\0" not in raw and not raw.endswith(b"/"))
    .map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)


@given(st.lists(st.tuples(names | raw_names, st.binary(max_size=1500)), max_size=5))
def test_what_is_written_is_what_is_read(members):
    archive = archive_of(members)
    assert read_back(archive) == members
    assert len(archive) % 512 == 0


@given(names | raw_names, st.integers(0, 2**62))
def test_the_header_says_name_and_size(name, size):
    header = header_of(member_bytes(name, size) + END)
    assert (header.name, header.size) == (name, size)


@given(
    mode=st.integers(0, 0o7777),
    mtime=st.integers(-(2**33), 2**36),
    user=st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=60),
    uid=st.integers(0, 2**31),
)
def test_the_header_says_mode_time_and_owner(mode, mtime, user, uid):
    header = header_of(member_bytes("a", 0, mode=mode, mtime=mtime, user=user, uid=uid) + END)
    assert (header.mode, header.mtime, header.uname, header.uid) == (mode, mtime, user, uid)


def test_a_small_member_takes_two_blocks():
    assert len(archive_of([("a.cls", b"7")])) == 1024 + len(END)


def test_a_plain_member_is_ustar():
    header = member_bytes("a.txt", 5)
    assert (len(header), header[257:265], header[156:157]) == (512, b"ustar\x0000", b"0")


def test_a_split_name_stays_ustar():
    assert len(member_bytes("d" * 150 + "/" + "f" * 100, 5)) == 512


def test_a_fraction_of_a_second_needs_no_extended_header():
    header = member_bytes("a.txt", 5, mtime=1.75)
    assert (len(header), header_of(header + b"12345" + padding(5) + END).mtime) == (512, 1)


def test_a_size_of_8_gib_gets_an_extended_header():
    assert len(member_bytes("a", 8**11 - 1)) == 512
    assert header_of(member_bytes("a", 8**11) + END).size == 8**11


def test_gnu_tar_reads_a_size_over_8_gib(tmp_path):
    size = 8**11 + 5
    path = tmp_path / "big.tar"
    header = member_bytes("a.bin", size)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size + len(padding(size)))
        file.seek(0, io.SEEK_END)
        file.write(END)
    listed = subprocess.run(["tar", "-tvf", path], capture_output=True, check=True).stdout
    assert str(size).encode() in listed.split()


def test_the_same_members_give_the_same_bytes():
    members = [(name, name.encode("utf-8", "surrogateescape")) for name in NAMES]
    assert archive_of(members) == archive_of(members)


@pytest.mark.parametrize("name", ["", "a\0b", "a/", "\ud800"])
def test_a_name_that_no_reader_would_give_back_is_refused(name):
    with pytest.raises(EncodingError, match="name"):
        member_bytes(name, 0)


def test_a_zero_byte_in_the_owner_is_refused():
    with pytest.raises(ValueError, match="uname"):
        MemberHeaders(user="a\0b")


def test_the_offset_of_the_data_is_told():
    writer = ArchiveWriter(lambda data: None)
    assert [writer.add(b"a", b"x" * 600), writer.add("é".encode(), b""), writer.offset] == [512, 3072, 3072]


def test_large_parts_are_handed_over_uncopied():
    parts, joined = [], []
    writer = ArchiveWriter(joined.append, writev=parts.extend)
    data = b"x" * (2 << 20)
    writer.add(b"a", data)
    assert any(part is data for part in parts)
    assert joined == []


def test_small_members_are_collected_into_large_writes():
    joined = []
    writer = ArchiveWriter(joined.append)
    for i in range(5000):
        writer.add(b"%06d.cls" % i, b"7")
    writer.finish()
    assert len(joined) < 10
    assert sum(map(len, joined)) == 5000 * 1024 + len(END)
