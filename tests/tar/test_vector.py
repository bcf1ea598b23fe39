"""Many members at once are the same as one by one."""

from __future__ import annotations

import io
import random
import sys
import tarfile

import pytest

from by_tarfile import build, by_tarfile
from webdataset.tar import reader

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def many(kit, count: int = 3000) -> bytes:
    rng = random.Random(3)
    return b"".join(kit.member(b"%06d.txt" % i, rng.randbytes(rng.randrange(1200))) for i in range(count)) + kit.END


def one_by_one(kit, monkeypatch, archive: bytes, **options: object):
    monkeypatch.setattr(reader, "ENOUGH", sys.maxsize)
    return kit.outcome(archive, **options)


def test_many_at_once_are_the_same_as_one_by_one(kit, monkeypatch):
    archive = many(kit)
    assert kit.outcome(archive) == one_by_one(kit, monkeypatch, archive)
    assert kit.outcome(archive)[0] == by_tarfile(archive)


def test_the_reader_works_without_numpy(kit, monkeypatch):
    archive = many(kit)
    expected = kit.outcome(archive)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert kit.outcome(archive) == expected


@pytest.mark.parametrize("mtime", [1.5, 1700000000.123456, 1700000000])
def test_headers_with_a_time_for_every_member_are_read_at_once(kit, monkeypatch, mtime):
    archive = build([(f"{i:06d}.txt", i % 1500, b"0", mtime) for i in range(1500)], tarfile.PAX_FORMAT)
    assert kit.outcome(archive) == one_by_one(kit, monkeypatch, archive) == (by_tarfile(archive), None, 0)


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_inside_an_archive_stays_inside(kit, format):
    inner = build([(f"inner{i}", 300, b"0", 0) for i in range(300)], format)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for i in range(8):
            for name, data in ((f"{i}.tar", inner), (f"{i}.txt", b"small")):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    assert kit.outcome(file.getvalue()) == (by_tarfile(file.getvalue()), None, 0)


def test_text_that_looks_like_a_header_is_data(kit):
    fake = kit.header(b"fake", 1)
    texts = [b"x" * 257 + b"ustar\x0000" + b"y" * 300, fake, fake + b"z" * 512, fake * 3, b"ustar" * 300]
    files = [(b"%04d" % i, texts[i % len(texts)]) for i in range(800)]
    archive = b"".join(kit.member(name, data) for name, data in files) + kit.END
    assert kit.read(archive) == [(name.decode(), data) for name, data in files]


def test_a_fake_header_that_links_up_is_still_data(kit):
    # The fake says that the next header is where the real next header is.
    archive = b"".join(kit.member(b"%04d" % i, kit.header(b"fake", 1) + b"z" * 512) for i in range(500)) + kit.END
    assert [name for name, _ in kit.read(archive)] == [f"{i:04d}" for i in range(500)]


@pytest.mark.parametrize(
    "odd",
    [
        lambda k: k.header(b"dir/", 0, b"5"),
        lambda k: k.header(b"link", 0, b"2", link=b"x"),
        lambda k: k.member(b"v7", b"data", magic=k.V7),
        lambda k: k.member(b"name", b"data", prefix=b"prefix"),
        lambda k: k.member(b"gnu", b"data", magic=k.GNU, prefix=b"no prefix"),
        lambda k: k.pax((b"path", b"long" * 50)) + k.member(b"x", b"data"),
        lambda k: k.pax((b"mtime", b"1.5"), (b"path", b"new")) + k.member(b"x", b"data"),
        lambda k: k.pax((b"mtime", b"1.5")) + k.pax((b"path", b"new")) + k.member(b"x", b"data"),
        lambda k: k.pax((b"path", b"new")) + k.pax((b"mtime", b"1.5")) + k.member(b"x", b"data"),
        lambda k: k.pax((b"mtime", b"1.5"), (b"atime", b"1.5"), (b"ctime", b"1.5")) + k.member(b"x", b"data"),
        lambda k: k.pax((b"size", b"4")) + k.header(b"x", 0) + k.padded(b"data"),
        lambda k: k.pax((b"comment", b"x"), type=b"g") + k.member(b"x", b"data"),
        lambda k: k.pax((b"mtime", b"1.5")) + k.header(b"dir/", 0, b"5"),
        lambda k: k.long(b"long" * 50) + k.member(b"x", b"data", magic=k.GNU),
        lambda k: k.member(b"slash/", b""),
        lambda k: k.member(b"a\0b", b"data"),
        lambda k: k.member(b"", b"data"),
        lambda k: k.member(b"256", b"data", size=b"\x80" + (4).to_bytes(11, "big"), magic=k.GNU),
        lambda k: k.member(b"caf\xe9", b"data", signed=True),
        lambda k: k.member(b"big", b"d" * 100_000),
        lambda k: bytes(512),
        lambda k: bytes(10240),
        lambda k: k.member(b"full" * 25, b"data"),
        lambda k: k.member(b"old", b"data", type=b"\0"),
        lambda k: k.member(b"spaces", b"data", size=b"         4 "),
    ],
)
def test_an_odd_member_among_many_is_read_in_its_place(kit, monkeypatch, odd):
    plain = [kit.member(b"%06d" % i, b"x" * (i % 700)) for i in range(600)]
    archive = b"".join(plain[:300]) + odd(kit) + b"".join(plain[300:450]) + odd(kit) + b"".join(plain[450:]) + kit.END
    at_once = kit.outcome(archive, concatenated=True)
    assert at_once == one_by_one(kit, monkeypatch, archive, concatenated=True)
    assert at_once[1:] == (None, 0)
    alone = [(name, data) for name, _, data in kit.outcome(odd(kit) + kit.END)[0]]
    others = [(f"{i:06d}", b"x" * (i % 700)) for i in range(600)]
    expected = others[:300] + alone + others[300:450] + alone + others[450:]
    assert [(name, data) for name, _, data in at_once[0]] == expected
