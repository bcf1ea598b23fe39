"""Compressed streams: recognised, whole, bounded."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import subprocess
import sys
import tracemalloc
import zlib
from functools import cache

import lz4.frame
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from webdataset.codecs import methods
from webdataset.codecs.compression import compression_of_name, compressor, decompressed, gunzip_bounded, kind_of_content
from webdataset.errors import DecodingError, LimitError, ShardError
from webdataset.tar.writer import END, member_bytes

KINDS = ["gz", "bz2", "xz", "zst", "lz4"]
FOREIGN = {
    "gz": gzip.compress,
    "bz2": cache(bz2.compress),
    "xz": cache(lzma.compress),
    "zst": zstd.compress,
    "lz4": lz4.frame.compress,
}
EXPANDERS = {
    "gz": gzip.decompress,
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
    "zst": zstd.decompress,
    "lz4": lz4.frame.decompress,
}
CONTENT = b"".join(b"%d," % (n * n) for n in range(50_000))


class Trickle:
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        self.stream = io.BytesIO(data)
        self.step = step
        self.closed = False

    def read(self, n: int = -1) -> bytes:
        return self.stream.read(self.step if n < 0 else min(n, self.step))

    def close(self) -> None:
        self.closed = True


def all_of(stream, n: int = 100_000) -> bytes:
    return b"".join(iter(lambda: stream.read(n), b""))


def compress(kind: str, *pieces: bytes, level: int | None = None) -> bytes:
    out = io.BytesIO()
    with compressor(out, kind, level) as stream:
        for piece in pieces:
            stream.write(piece)
    return out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_what_other_programs_compressed_is_read(kind):
    assert all_of(decompressed(io.BytesIO(FOREIGN[kind](CONTENT)))) == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_compressed_is_read_by_other_programs(kind):
    assert EXPANDERS[kind](compress(kind, CONTENT[:1000], b"", CONTENT[1000:])) == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_written_gives_an_empty_compressed_file(kind):
    assert EXPANDERS[kind](compress(kind)) == b""


@pytest.mark.parametrize("kind", KINDS)
def test_levels_are_honoured(kind):
    assert EXPANDERS[kind](compress(kind, CONTENT, level=1)) == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_are_compressed_to_the_same_bytes(kind):
    assert compress(kind, CONTENT) == compress(kind, CONTENT)


def test_gzip_output_holds_no_time_and_no_name():
    assert compress("gz", CONTENT)[:8] == b"\x1f\x8b\x08\0\0\0\0\0"


@pytest.mark.parametrize("kind", KINDS)
def test_several_members_are_one_content(kind):
    packed = FOREIGN[kind](CONTENT) + FOREIGN[kind](b"") + FOREIGN[kind](b"the end")
    assert all_of(decompressed(io.BytesIO(packed))) == CONTENT + b"the end"


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_after_a_member_are_padding(kind):
    packed = FOREIGN[kind](b"one") + bytes(700_000) + FOREIGN[kind](b"two") + bytes(4)
    assert all_of(decompressed(io.BytesIO(packed))) == b"onetwo"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.999])
def test_a_cut_stream_is_an_error(kind, keep):
    packed = FOREIGN[kind](CONTENT)
    stream = decompressed(io.BytesIO(packed[: int(len(packed) * keep)]), url="a.tar")
    with pytest.raises(ShardError, match="early") as raised:
        all_of(stream)
    assert raised.value.url == "a.tar"
    assert raised.value.offset is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_without_its_last_byte_is_an_error(kind):
    with pytest.raises(ShardError, match="early"):
        all_of(decompressed(io.BytesIO(FOREIGN[kind](CONTENT)[:-1])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_second_member_is_an_error(kind):
    packed = FOREIGN[kind](CONTENT)
    with pytest.raises(ShardError, match="early"):
        all_of(decompressed(io.BytesIO(packed + packed[:-100])))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_do_not_belong_to_it_are_an_error(kind):
    with pytest.raises(ShardError, match="belong"):
        all_of(decompressed(io.BytesIO(FOREIGN[kind](CONTENT) + b"garbage")))


@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_is_an_error(kind):
    packed = bytearray(compress(kind, CONTENT))
    packed[len(packed) // 2] ^= 4
    with pytest.raises(ShardError):
        all_of(decompressed(io.BytesIO(bytes(packed))))


def test_a_wrong_checksum_at_the_end_of_gzip_is_an_error():
    packed = bytearray(gzip.compress(CONTENT))
    packed[-6] ^= 1
    with pytest.raises(ShardError, match="damaged"):
        all_of(decompressed(io.BytesIO(bytes(packed))))


def test_an_error_of_the_stream_itself_passes_through():
    class Broken(io.BytesIO):
        def read(self, n=-1):
            if self.tell() > 1000:
                raise ConnectionResetError("gone")
            return super().read(min(n, 600))

    with pytest.raises(ConnectionResetError):
        all_of(decompressed(Broken(gzip.compress(os.urandom(5000)))))


def test_skippable_frames_of_zstd_are_skipped():
    frame = b"\x5a\x2a\x4d\x18" + (7).to_bytes(4, "little") + b"comment"
    packed = frame + zstd.compress(b"one") + frame + zstd.compress(b"two") + frame
    assert all_of(decompressed(io.BytesIO(packed))) == b"onetwo"


@given(
    st.lists(st.binary(max_size=3000), max_size=4), st.sampled_from(KINDS), st.integers(1, 700), st.integers(1, 5000)
)
def test_any_partition_into_reads_gives_the_same_content(contents, kind, step, n):
    packed = b"".join(FOREIGN[kind](content) for content in contents)
    assert all_of(decompressed(Trickle(packed, step)), n) == b"".join(contents)


@given(st.binary(max_size=2000), st.integers(1, 700), st.integers(1, 3000))
def test_plain_content_passes_through(content, step, n):
    plain = b"plain" + content
    assert all_of(decompressed(Trickle(plain, step)), n) == plain


@given(st.sampled_from(KINDS), st.binary(max_size=600))
def test_any_bytes_give_content_or_a_shard_error(kind, junk):
    head = methods.KINDS[kind].magics[0]
    with contextlib.suppress(ShardError):
        all_of(decompressed(io.BytesIO(head + junk)))


def test_read_without_a_size_gives_everything():
    assert decompressed(io.BytesIO(gzip.compress(CONTENT))).read() == CONTENT
    assert decompressed(io.BytesIO(CONTENT)).read() == CONTENT


def test_a_plain_buffered_file_is_used_as_it_is(tmp_path):
    (tmp_path / "a.tar").write_bytes(bytes(10_000))
    with (tmp_path / "a.tar").open("rb") as file:
        assert decompressed(file) is file


def test_a_plain_raw_file_is_read_directly_after_its_first_block(tmp_path):
    (tmp_path / "a.tar").write_bytes(CONTENT)
    with (tmp_path / "a.tar").open("rb", buffering=0) as file:
        stream = decompressed(file)
        first = stream.read(1 << 20)
        assert stream.read.__self__ is file
        assert first + stream.read() == CONTENT


@pytest.mark.parametrize("content", [b"", b"\x1f", b"\x1f\x8b"])
def test_too_little_to_recognise_passes_through(content):
    assert all_of(decompressed(io.BytesIO(content))) == content


@pytest.mark.parametrize(
    "name", ["BZh91AY&SY.txt", "\udc1f\udc8b\x08.txt", "\x04\x22\x4d\x18.txt", "(\udcb5/\udcfd.txt"]
)
def test_a_tar_whose_first_name_looks_compressed_is_plain(name):
    name = name.replace("\udc1f", "\x1f")
    archive = member_bytes(name, 0) + END
    assert all_of(decompressed(io.BytesIO(archive))) == archive


def test_closing_closes_the_stream_underneath():
    for content in (b"plain", gzip.compress(b"x", mtime=0)):
        source = Trickle(content, 10)
        decompressed(source).close()
        assert source.closed


def bomb(kind: str, size: int) -> bytes:
    return compress(kind, *[bytes(1 << 20)] * (size >> 20))


@pytest.mark.parametrize("kind", ["bz2", "xz", "zst"])
def test_a_bomb_is_stopped(kind):
    stream = decompressed(io.BytesIO(bomb(kind, 80 << 20)), url="a.tar")
    with pytest.raises(LimitError, match="WDS_MAX_RATIO"):
        all_of(stream, 1 << 20)


def test_a_bomb_needs_little_memory():
    packed = bomb("zst", 80 << 20)
    tracemalloc.start()
    with pytest.raises(LimitError):
        all_of_nothing(decompressed(io.BytesIO(packed)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def all_of_nothing(stream) -> None:
    while stream.read(1 << 20):
        pass


def test_the_ratio_can_be_raised():
    stream = decompressed(io.BytesIO(bomb("zst", 80 << 20)), max_ratio=1_000_000)
    assert sum(len(piece) for piece in iter(lambda: stream.read(1 << 20), b"")) == 80 << 20


def test_small_reads_of_a_large_piece_give_all_of_it():
    assert all_of(decompressed(io.BytesIO(gzip.compress(bytes(4 << 20)))), 512) == bytes(4 << 20)


def test_gunzip_gives_the_content_of_a_field():
    assert gunzip_bounded(gzip.compress(CONTENT) + gzip.compress(b"more", mtime=0)) == CONTENT + b"more"


def test_gunzip_refuses_more_than_the_limit():
    packed = gzip.compress(bytes(5000))
    assert len(gunzip_bounded(packed, max_bytes=5000)) == 5000
    with pytest.raises(LimitError, match="WDS_MAX_DECODED_BYTES"):
        gunzip_bounded(packed, max_bytes=4999)


def test_gunzip_obeys_the_environment(monkeypatch):
    monkeypatch.setenv("WDS_MAX_DECODED_BYTES", "1000")
    with pytest.raises(LimitError, match="1000"):
        gunzip_bounded(gzip.compress(bytes(5000)))


@pytest.mark.parametrize(
    "data", [b"", b"plain", gzip.compress(b"x", mtime=0)[:-1], gzip.compress(b"x", mtime=0) + b"y"]
)
def test_gunzip_refuses_what_is_not_gzip(data):
    with pytest.raises(DecodingError):
        gunzip_bounded(data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.tar", None),
        ("a.tar.gz", "gz"),
        ("a.tgz", "gz"),
        ("A.TAR.GZ", "gz"),
        ("a.tar.bz2", "bz2"),
        ("a.tbz2", "bz2"),
        ("a.tar.xz", "xz"),
        ("a.txz", "xz"),
        ("a.tar.zst", "zst"),
        ("a.tzst", "zst"),
        ("a.tar.lz4", "lz4"),
        ("a.tlz4", "lz4"),
        ("tgz", None),
        ("", None),
    ],
)
def test_names_say_how_to_compress(name, kind):
    assert compression_of_name(name) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_content_says_how_it_is_compressed(kind):
    assert kind_of_content(FOREIGN[kind](CONTENT)[:512]) == kind


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="lz4"):
        compressor(io.BytesIO(), "zip")


def test_writing_to_a_closed_compressor_is_an_error():
    stream = compressor(io.BytesIO(), "gz")
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"x")


@pytest.mark.parametrize("kind", methods.KINDS)
@pytest.mark.parametrize("level", [None, 1])
def test_every_method_gives_what_it_expands_in_bounded_pieces(kind, level):
    method = methods.KINDS[kind]
    packer = method.compressor(level)
    packed = packer.compress(CONTENT[:1000]) + packer.compress(CONTENT[1000:]) + packer.flush()
    assert packed.startswith(method.magics)
    decompressor, pieces, waiting = method.decompressor(), [], packed + b"tail"
    while not decompressor.eof:
        pieces.append(decompressor.decompress(waiting, 4096))
        waiting = b""
    assert max(map(len, pieces)) <= 4096
    assert (b"".join(pieces), decompressor.unused_data) == (CONTENT, b"tail")


def test_zlib_reads_what_isal_reads():
    for content in (b"", b"x", CONTENT, bytes(3 << 20)):
        stream = methods.ZlibDecompressor()
        packed = gzip.compress(content) + b"rest"
        out, at = [], 0
        while not stream.eof:
            data = packed[at : at + 1000] if stream.needs_input else b""
            at += len(data)
            out.append(stream.decompress(data, 4096))
        assert b"".join(out) == content
        assert (stream.unused_data + packed[at:])[-4:] == b"rest"


def test_without_optional_packages_gzip_is_read_and_written_and_others_say_what_to_install():
    code = """
import sys, io, gzip
for name in ("isal", "lz4", "backports", "zstandard"):
    sys.modules[name] = None
from webdataset.codecs.compression import compressor, decompressed
from webdataset.errors import MissingPackageError
out = io.BytesIO()
with compressor(out, "gz") as stream:
    stream.write(b"hello")
assert gzip.decompress(out.getvalue()) == b"hello"
assert decompressed(io.BytesIO(gzip.compress(b"hello" * 9999) * 2)).read() == b"hello" * 19998
for head in (b"\\x28\\xb5\\x2f\\xfd" + bytes(99), b"\\x04\\x22\\x4d\\x18" + bytes(99)):
    try:
        decompressed(io.BytesIO(head)).read()
    except MissingPackageError as error:
        assert "webdataset[compression]" in str(error)
    else:
        raise SystemExit("no error")
"""
    if sys.version_info >= (3, 14):
        code = code.replace('b"\\x28\\xb5\\x2f\\xfd" + bytes(99), ', "")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_damaged_zlib_stream_names_the_offset(monkeypatch):
    monkeypatch.setitem(methods.KINDS, "gz", methods.KINDS["gz"]._replace(decompressor=methods.ZlibDecompressor))
    packed = bytearray(gzip.compress(CONTENT))
    packed[len(packed) // 2] ^= 255
    with pytest.raises(ShardError, match="damaged") as caught:
        all_of(decompressed(io.BytesIO(bytes(packed)), url="a.tar.gz"))
    assert caught.value.url == "a.tar.gz"
    assert caught.value.offset is not None
    assert isinstance(caught.value.__cause__, zlib.error)
