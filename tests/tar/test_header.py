"""The header block: numbers, checksums, names, and what is no header at all."""

from __future__ import annotations

import pytest

from webdataset.tar.header import decoded, is_header, number, parse_header, until_nul
from webdataset.tar.pax import interpret, parse_records
from webdataset.tar.sniff import looks_like


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"00000000644\0", 420),
        (b"00000000644 ", 420),
        (b"        644 ", 420),
        (b"644\0garbage!", 420),
        (b"777777777777", 8**12 - 1),
        (b"\0" * 12, 0),
        (b"\x00644        ", 420),
        (b"\x80" + bytes(7) + b"\x02\0\0\0", 2 << 24),
        (b"\x80" + (2**40).to_bytes(11, "big"), 2**40),
        (b"\xff" * 12, -1),
        (b"\xff" * 8 + (-(2**31)).to_bytes(4, "big", signed=True), -(2**31)),
    ],
)
def test_a_number_is_read_as_gnu_tar_reads_it(field, value):
    assert number(field) == value


@pytest.mark.parametrize(
    "field",
    [
        b" " * 12,
        b"0000000064x\0",
        b"00000000 8\0"[:3] + b"9" * 9,
        b"0x0000000064",
        b"0_644      \0",
        b"-1\0\0\0\0",
        b"\x81\0\0",
    ],
)
def test_what_is_no_number_is_refused(field):
    with pytest.raises(ValueError, match="number"):
        number(field)


def test_a_base_256_number_beyond_64_bits_is_refused():
    with pytest.raises(ValueError, match="range"):
        number(b"\x80" + b"\xff" * 11)


def test_a_header_with_an_unsigned_checksum_is_valid(kit):
    assert parse_header(kit.header("caf\u00e9".encode())).name == "caf\u00e9".encode()


def test_a_header_with_a_signed_checksum_is_valid(kit):
    assert parse_header(kit.header(b"caf\xe9", signed=True)).name == b"caf\xe9"


@pytest.mark.parametrize("checksum", [b"000000\0 ", b"777777\0 ", b"        ", b"xxxxxx\0 ", bytes(8)])
def test_a_wrong_checksum_is_refused(kit, checksum):
    with pytest.raises(ValueError, match="checksum"):
        parse_header(kit.header(b"a", checksum=checksum))


def test_a_checksum_may_be_written_in_other_ways(kit):
    total = sum(kit.header(b"a", checksum=b" " * 8))
    for style in (b"%07o\0", b"%6o\0 ", b"%6o  ", b"%o\0\0\0\0"):
        assert is_header(kit.header(b"a", checksum=(style % total)[:8]))


def test_every_single_changed_bit_of_a_header_is_noticed_or_harmless(kit):
    header = kit.header(b"name.txt", 5)
    for bit in range(512 * 8):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        # The checksum's own leading zero and terminators can change without changing what it says.
        assert not is_header(bytes(damaged)) or bit // 8 in (148, 154, 155)


def test_a_negative_size_is_refused(kit):
    with pytest.raises(ValueError, match="negative"):
        parse_header(kit.header(b"a", b"\xff" * 12))


def test_a_size_that_is_no_number_is_refused(kit):
    with pytest.raises(ValueError, match="size"):
        parse_header(kit.header(b"a", b"abcdefghijk\0"))


def test_the_prefix_counts_in_posix_headers_only(kit):
    assert parse_header(kit.header(b"b", prefix=b"a")).name == b"a/b"
    assert parse_header(kit.header(b"b", prefix=b"a", magic=kit.GNU)).name == b"b"
    assert parse_header(kit.header(b"b", prefix=b"a", magic=kit.V7)).name == b"b"


def test_a_name_may_fill_its_field(kit):
    name, prefix = b"n" * 100, b"p" * 155
    assert parse_header(kit.header(name, prefix=prefix)).name == prefix + b"/" + name


def test_mode_and_mtime_are_read_and_forgiven(kit):
    header = parse_header(kit.header(b"a", put={136: b"\xff" * 11 + b"\xfe"}))
    assert (header.mode, header.mtime) == (0o644, -2)
    assert parse_header(kit.header(b"a", put={136: b"x" * 12})).mtime == 0


def test_text_ends_at_the_first_nul_and_keeps_any_bytes():
    assert until_nul(b"a\0b") == b"a"
    assert decoded(b"\xff\xfe").encode("utf-8", "surrogateescape") == b"\xff\xfe"


@pytest.mark.parametrize(
    "data",
    [
        b"path=x\n",
        b"99 path=x\n",
        b"8path=x\n",
        b"7 path\n",
        b"10 path=xy",
        b"3 path=x\n",
        b"0 path=x\n",
        b"99999999999999999999 a=b\n",
        b"11 p\0th=x\n\n",
    ],
)
def test_a_malformed_record_is_refused(data):
    with pytest.raises(ValueError, match="malformed"):
        parse_records(data)


def test_records_may_be_followed_by_nuls():
    assert parse_records(b"10 path=x\n\0\0\0") == [(b"path", b"x")]


def test_a_record_may_hold_newlines_and_equal_signs():
    assert parse_records(b"14 a=1\nb=2=3 \n") == [(b"a", b"1\nb=2=3 ")]


@pytest.mark.parametrize("value", [b"-1", b"+1", b"1x", b"", b"1_0", b"9" * 30, b" 1"])
def test_a_size_record_that_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="size"):
        interpret([(b"size", value)])


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"PK\x03\x04" + bytes(100), "zip"),
        (b"\x1f\x8b\x08" + bytes(100), "gzip"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"\n  <html lang=en>", "HTML"),
        (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "XML"),
        (b'{"error": 404}', "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
        (b"Not Found: no such object here", "text"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
    ],
)
def test_what_is_no_archive_is_recognised(head, kind):
    assert kind in looks_like(head)


def test_noise_is_not_recognised():
    assert looks_like(bytes(range(256))) is None
