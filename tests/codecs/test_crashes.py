"""Data that ended the process, or nearly: each is read in a process of its own, and must be refused there.

A crash (SIGSEGV, SIGFPE, SIGBUS) cannot be caught by a handler, and neither can a loop that never ends.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests_support import python
from webdataset.autodecode import Decoder
from webdataset.errors import DecodingError

LIMITS = {"as": 4 << 30, "cpu": 30}
CPU_SECONDS = {"cpu": 20}
ROOM = 1 << 30
"""Bytes that a field may take besides the modules that are imported, which are larger in some releases of torch."""

READ = """
import resource, sys, warnings
import webdataset as wds
from webdataset.autodecode import Decoder
from webdataset.errors import DecodingError
warnings.simplefilter("ignore")
room, field, path, *how = sys.argv[1:]
if int(room):
    used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + int(room), resource.RLIM_INFINITY))
try:
    sample = Decoder([eval(spec) for spec in how])({"__key__": "a", field: open(path, "rb").read()})
except DecodingError as exn:
    if isinstance(exn.__cause__, MemoryError):
        raise
    print("refused:", exn)
else:
    print("read:", type(sample[field]))
    del sample
"""


def read_in_a_process(
    folder: Path, field: str, data: bytes, *how: str, limits: dict[str, int] = LIMITS, room: int = 0
) -> str:
    """What a process says that decodes the field; its death is a failure, and so is too little memory."""
    path = folder / "field"
    path.write_bytes(data)
    child = python("-c", READ, room, field, path, *how, limits=limits)
    assert child.returncode == 0, (child.returncode, child.stderr[-500:])
    return child.stdout


# -- arrays ----------------------------------------------------------------------------------------


def npy(description: str, shape: str = "(1,)", data: bytes = bytes(64)) -> bytes:
    header = f"{{'descr': {description}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x02\0" + len(header).to_bytes(4, "little") + header + data


def npz(member: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.npy", member)
    return stream.getvalue()


def lying_zip(name: str) -> bytes:
    """An archive that says of a file that it has 100 bytes, though it expands to more than a gigabyte."""
    packer = zlib.compressobj(9, wbits=-15)
    packed = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)) * 1200 + packer.flush()
    facts = struct.pack("<HHHHIIIH", 0, zipfile.ZIP_DEFLATED, 0, 0, 0, len(packed), 100, len(name))
    first = b"PK\3\4" + struct.pack("<H", 20) + facts + bytes(2) + name.encode() + packed
    listed = b"PK\1\2" + struct.pack("<HH", 20, 20) + facts + bytes(16) + name.encode()
    return first + listed + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(listed), len(first), 0)


def dtype_by_divisor(unit: str) -> bytes:
    honest = pickle.dumps(np.dtype("M8[s]"), 2)
    letters = f"M8[{unit}]".encode()
    return honest.replace(b"X\x02\0\0\0M8", b"X" + len(letters).to_bytes(4, "little") + letters)


def nested_dtype(levels: int) -> bytes:
    dtype = np.dtype("f4")
    for _ in range(levels):
        dtype = np.dtype([("a", dtype)])
    return pickle.dumps(dtype)


def nested_list(levels: int) -> str:
    return "[('a'," * levels + "'<f4'" + ")]" * levels


ARRAYS: dict[str, tuple[str, bytes]] = {
    "npy: a unit divided by zero": ("npy", npy("'<M8[Y/0]'")),
    "npy: a unit divided": ("npy", npy("'<m8[s/7]'")),
    "npy: divided, inside a field": ("npy", npy("[('a', '<M8[D/0]')]")),
    "npy: divided, inside a shape": ("npy", npy("[('a', ('<M8[h/0]', (2,)))]")),
    "npz: a unit divided by zero": ("npz", npz(npy("'<M8[Y/0]'"))),
    "pickle: a unit divided by zero": ("pyd", dtype_by_divisor("Y/0")),
    "npy: items without bytes, 2^40 of them": ("npy", npy("'|S0'", "(1099511627776,)")),
    "npy: rows without items, 2^40 of them": ("npy", npy("'<f4'", "(1099511627776, 0)")),
    "npy: fields within fields": ("npy", npy(nested_list(60))),
    "npy: a negative shape": ("npy", npy("'<f4'", "(-1,)")),
    "npy: a header that is no dict": ("npy", b"\x93NUMPY\x01\0\x02\0[]"),
    "npy: a type that is code": ("npy", npy("'O'")),
    "pickle: a dtype of 40 levels": ("pyd", nested_dtype(40)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_lies_is_refused(name: str, tmp_path: Path) -> None:
    assert read_in_a_process(tmp_path, *ARRAYS[name]).startswith("refused: ")


IN_ZIP = [("npz", "a.npy"), ("npz", "a.txt"), ("pth", "archive/data.pkl")]


@pytest.mark.parametrize(("field", "name"), IN_ZIP)
def test_a_zip_archive_that_lies_about_its_files_takes_no_memory(field: str, name: str, tmp_path: Path) -> None:
    assert read_in_a_process(tmp_path, field, lying_zip(name), room=ROOM).startswith("refused: ")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize(("field", "name"), IN_ZIP)
def test_what_python_expands_as_a_whole_is_refused(field: str, name: str, method: int) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr(name, b"")
    with pytest.raises(DecodingError, match="deflate"):
        Decoder([])({"__key__": "a", field: stream.getvalue()})


# -- containers within each other ------------------------------------------------------------------

LEVELS = 100_000
DEQUE = b"ccollections\ndeque\n"
DEFAULTDICT = b"ccollections\ndefaultdict\n)R"
ARRAY = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
OBJECT = b"cnumpy\ndtype\nU\x02O8\x89\x88\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"


def top_down() -> bytes:
    return DEQUE + b")R" + (DEQUE + b")Rq\x02a0h\x02") * LEVELS


DEEP: dict[str, Callable[[], bytes]] = {
    "lists": lambda: b"]" * LEVELS + b"a" * (LEVELS - 1),
    "tuples": lambda: b"]" + b"\x85" * LEVELS,
    "deques": lambda: (DEQUE + b"(]") * LEVELS + b"N" + b"atR" * LEVELS,
    "deques, from the outside in": lambda: b"]q\x00" + top_down(),
    "deques, thrown away": lambda: (DEQUE + b"(]") * LEVELS + b"N" + b"atR" * LEVELS + b"0N",
    "deques, before an error": lambda: b"]q\x00" + top_down() + b"cos\nsystem\n",
    "defaultdicts": lambda: (DEFAULTDICT + b"K\x01") * LEVELS + b"N" + b"s" * LEVELS,
    "arrays of objects": lambda: (
        OBJECT + b"q\x050" + (ARRAY + b"(K\x01K\x01\x85h\x05\x89]") * LEVELS + b"N" + b"atb" * LEVELS
    ),
}


@pytest.mark.parametrize("name", DEEP)
def test_containers_too_deep_within_each_other_are_refused(name: str, tmp_path: Path) -> None:
    assert read_in_a_process(tmp_path, "pyd", b"\x80\x04" + DEEP[name]() + b".").startswith("refused: ")


def test_a_cbor_value_too_deep_is_refused(tmp_path: Path) -> None:
    assert read_in_a_process(tmp_path, "cbor", b"\x81" * LEVELS + b"\x00").startswith("refused: ")


# -- keys that collide -----------------------------------------------------------------------------

PRIME = 2**61 - 1


def colliding_tuples(count: int) -> list[tuple[int, int]]:
    """Pairs of integers of one hash: the second one undoes what the first did (xxHash, as CPython has it)."""
    size, first, second, start = 2**64, 11400714785074694791, 14029467366897019727, 2870177450012600261
    undo, pairs = pow(second, -1, size), []
    for number in range(8 * count):
        state = (start + number * second) % size
        state = (state << 31 | state >> 33) * first % size
        lane = -state * undo % size
        if lane < PRIME:
            pairs.append((number, lane))
    assert len({hash(pair) for pair in pairs}) == 1
    return pairs[:count]


COLLIDING: dict[str, Callable[[], list[Any]]] = {
    "integers": lambda: [number * PRIME for number in range(50_000)],
    "tuples": lambda: colliding_tuples(50_000),
    "complex numbers": lambda: [complex(-1000003.0 * number, float(number)) for number in range(50_000)],
}


@pytest.mark.parametrize("name", COLLIDING)
def test_a_pickle_of_keys_that_collide_is_refused(name: str, tmp_path: Path) -> None:
    pairs = b"".join(pickle.dumps(key, 2)[2:-1] + b"N" for key in COLLIDING[name]())
    assert "collide" in read_in_a_process(tmp_path, "pyd", b"\x80\x02}(" + pairs + b"u.")


def pth(pickle_bytes: bytes) -> bytes:
    """A file as torch.save writes it, with this pickle in it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle_bytes)
        archive.writestr("archive/version", b"3\n")
    return stream.getvalue()


def legacy_pth(pickle_bytes: bytes) -> bytes:
    """A file as torch wrote it before version 1.6."""
    facts = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    first = (0x1950A86A20F9469CFC6C, 1001, facts)
    return b"".join(pickle.dumps(value, 2) for value in first) + pickle_bytes + pickle.dumps([], 2)


@pytest.mark.parametrize("written", [pth, legacy_pth])
@pytest.mark.parametrize("name", COLLIDING)
def test_a_torch_file_of_keys_that_collide_is_refused(
    name: str, written: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    pairs = b"".join(pickle.dumps(key, 2)[2:-1] + b"N" for key in COLLIDING[name]())
    assert "collide" in read_in_a_process(tmp_path, "pth", written(b"\x80\x02}(" + pairs + b"u."))


@pytest.mark.parametrize("written", [pth, legacy_pth])
def test_a_torch_file_of_many_ordinary_keys_is_read(written: Callable[[bytes], bytes], tmp_path: Path) -> None:
    value = {**{i: (i, str(i), 0.5) for i in range(2000)}, **{(i, -i): [i, {2**70 + i: None}] for i in range(2000)}}
    assert "read: <class 'dict'>" in read_in_a_process(tmp_path, "pth", written(pickle.dumps(value, 2)))


def test_a_cbor_map_of_keys_that_collide_is_refused(tmp_path: Path) -> None:
    keys = [(number * PRIME).to_bytes(16, "big") for number in range(1, 50_000)]
    pairs = b"".join(b"\xc2\x50" + key + b"\x00" for key in keys)
    assert "collide" in read_in_a_process(tmp_path, "cbor", b"\xbf" + pairs + b"\xff")


def test_the_same_keys_in_many_containers_do_not_collide() -> None:
    from webdataset.codecs import pickles

    value = [{(1, 2): 0.5, 2**70: 1, "a": {(1, 2), 3}} for _ in range(1000)] + [frozenset([(1, 2)]) for _ in range(500)]
    for protocol in range(2, 6):
        assert pickles.loads(pickle.dumps(value, protocol)) == value


# -- values that crash when they are used ----------------------------------------------------------


@pytest.mark.parametrize("day", [b"\x00\x00\x01\x01", b"\x07\xe4\x00\x01", b"\x07\xe4\x02\x1e", b"\x07\xe4\x01\x00"])
def test_a_date_that_does_not_exist_is_refused(day: bytes, tmp_path: Path) -> None:
    data = pickle.dumps(datetime(2020, 1, 1)).replace(b"\x07\xe4\x01\x01", day)  # noqa: DTZ001 - what a program pickles
    assert read_in_a_process(tmp_path, "pyd", data).startswith("refused: ")


def torch_file(make: Callable[[Any], Any]) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(make(torch), stream)
    return stream.getvalue()


def sparse(torch: Any) -> Any:
    return torch.sparse_coo_tensor(torch.tensor([[0, 10**9]]), torch.ones(2), (3,), check_invariants=False)


def compressed(torch: Any) -> Any:
    return torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2]), torch.tensor([0, 10**9]), torch.ones(2), (2, 3), check_invariants=False
    )


def stretched(torch: Any) -> Any:
    return torch.zeros(1).expand(1 << 40)


def larger_than_its_file(data: bytes) -> bytes:
    """A tensor of four floats that says it has a hundred million."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    name = next(name for name in members if name.endswith("data.pkl"))
    assert members[name].count(b"K\x04\x85") == 1
    members[name] = members[name].replace(b"K\x04\x85", b"J" + (100_000_000).to_bytes(4, "little") + b"\x85")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return stream.getvalue()


def bomb(torch: Any) -> bytes:
    """A compressed record of a gigabyte of zeros."""
    plain = torch_file(lambda torch: torch.zeros(1 << 18))
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(plain)) as archive,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, True, 9) as evil,
    ):
        for member in archive.infolist():
            data = bytes(1 << 30) if member.filename.endswith("/data/0") else archive.read(member)
            evil.writestr(member.filename, data)
    return stream.getvalue()


TENSORS: dict[str, Callable[[], bytes]] = {
    "an index outside a sparse tensor": lambda: torch_file(sparse),
    "a column outside a compressed tensor": lambda: torch_file(compressed),
    "in a dict": lambda: torch_file(lambda torch: {"a": [1, (sparse(torch),)]}),
    "2^40 elements out of one": lambda: torch_file(stretched),
    "more elements than bytes": lambda: larger_than_its_file(torch_file(lambda torch: torch.zeros(4))),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_that_lies_is_refused(name: str, tmp_path: Path) -> None:
    assert read_in_a_process(tmp_path, "pth", TENSORS[name]()).startswith("refused: ")


def test_a_torch_file_that_expands_too_far_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_MAX_DECODED_BYTES", str(512 << 20))
    assert "WDS_MAX_DECODED_BYTES" in read_in_a_process(tmp_path, "pth", bomb(None))


def test_honest_tensors_are_read() -> None:
    import torch

    from webdataset.codecs.pickle.torchfiles import decode_pth

    shared = torch.arange(10.0)
    value = {
        "a": shared,
        "b": shared[2:5],
        "s": torch.eye(3).to_sparse(),
        "e": torch.zeros(2, 1).expand(2, 50),
        "n": [1],
    }
    read = decode_pth(torch_file(lambda torch: value))
    assert torch.equal(read["b"], shared[2:5])
    assert torch.equal(read["s"].to_dense(), torch.eye(3))
    assert read["e"].shape == (2, 50)


# -- images, films and sounds that claim more than they have -----------------------------------------


def tiff(tags: dict[int, Any], body: bytes = b"") -> bytes:
    """A TIFF of these tags, whose values are whole numbers, and these bytes from the eighth on."""
    start, entries, values = 8 + len(body), [], b""
    for tag, numbers in sorted(tags.items()):
        raw = np.asarray(numbers, "<u4").tobytes()
        length = len(raw) // 4
        if length > 1:
            values, raw = values + raw, struct.pack("<I", start + 2 + 12 * len(tags) + 4 + len(values))
        entries.append(struct.pack("<HHI", tag, 4, length) + raw)
    return (
        b"II*\0"
        + struct.pack("<I", start)
        + body
        + struct.pack("<H", len(tags))
        + b"".join(entries)
        + bytes(4)
        + values
    )


def tags_that_share_bytes() -> bytes:
    """A picture of one pixel, and 4000 tags each of which is all of the same 260 KB."""
    shared = bytes(260_000)
    picture = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8 + 2 + 48_112, 277: 1, 278: 1, 279: 1}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in picture.items())
    entries += b"".join(struct.pack("<HHII", 1000 + tag, 3, len(shared) // 2, 8 + 2 + 48_112) for tag in range(4000))
    return b"II*\0" + struct.pack("<IH", 8, 4009) + entries + bytes(4) + shared


def tags_of_tags_that_share_bytes() -> bytes:
    """The same, where the tags are in a second directory, that of Exif."""
    picture = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 1, 34665: 8 + 2 + 120 + 4}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in picture.items())
    inner = b"".join(struct.pack("<HHII", 1000 + tag, 1, 300_000, 8) for tag in range(20_000))
    return b"II*\0" + struct.pack("<IH", 8, 10) + entries + bytes(4) + struct.pack("<H", 20_000) + inner + bytes(70_000)


def exif_that_shares_bytes() -> bytes:
    """A JPEG whose segments together have those tags."""
    stream = io.BytesIO()
    Image.new("RGB", (16, 16)).save(stream, "JPEG")
    jpeg, tags = stream.getvalue(), tags_that_share_bytes()
    parts = [b"Exif\0\0" + tags[start : start + 65_000] for start in range(0, len(tags), 65_000)]
    segments = b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 2) + part for part in parts)
    return jpeg[:2] + segments + jpeg[4 + int.from_bytes(jpeg[4:6], "big") :]


def scans_of_a_blp() -> bytes:
    """A file that has the header of a JPEG, and its scans elsewhere, with a JPEG without any before them."""
    jpeg = many_scans()
    start = jpeg.index(b"\xff\xda")
    facts = struct.pack("<i4sIIii", 0, b"\xff\xd8\xff\xd9", 4000, 4000, 0, 0)
    places = struct.pack("<32I", 160 + start, *[0] * 15, len(jpeg) - start, *[0] * 15)
    return b"BLP1" + facts + places + struct.pack("<I", start) + jpeg


def gzipped_fits() -> bytes:
    """A picture of one pixel, whose compressed data expands to a gigabyte."""
    packer = zlib.compressobj(9, wbits=31)
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1 << 10)) + packer.flush()
    first = {"SIMPLE": "T", "BITPIX": 8, "NAXIS": 0}
    table = {"XTENSION": "'BINTABLE'", "BITPIX": 8, "NAXIS": 2, "NAXIS1": 8, "NAXIS2": 1, "PCOUNT": len(data)}
    table |= {"ZIMAGE": "T", "ZCMPTYPE": "'GZIP_1  '", "ZBITPIX": 8, "ZNAXIS": 2, "ZNAXIS1": 1, "ZNAXIS2": 1}
    headers = [
        b"".join(f"{name:8}= {value}".encode().ljust(80) for name, value in facts.items()) + b"END"
        for facts in (first, table)
    ]
    return b"".join(header.ljust(2880) for header in headers) + bytes(8) + data


def samples_of_a_film(*, fragmented: bool, count: int = 80_000_000) -> bytes:
    """A film of three frames in a kilobyte, whose header says that there are so many."""
    import av

    stream = io.BytesIO()
    how = {"movflags": "frag_keyframe+empty_moov"} if fragmented else {}
    with av.open(stream, "w", format="mp4", options=how) as container:
        video = container.add_stream("mpeg4", rate=10)
        video.width, video.height, video.pix_fmt = 16, 16, "yuv420p"
        for _ in range(3):
            container.mux(video.encode(av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")))
        container.mux(video.encode())
    data = bytearray(stream.getvalue())
    if fragmented:
        place = data.index(b"trun") + 4
        data[place : place + 8] = struct.pack(">II", 0, count)
        return bytes(data)
    for name, at, fact in ((b"stsz", 8, 1), (b"stsz", 12, count), (b"stsc", 16, 1 << 30), (b"stts", 12, 1 << 30)):
        place = data.index(name) + at
        data[place : place + 4] = struct.pack(">I", fact)
    return bytes(data)


def many_planes(compression: int, count: int = 30_000) -> bytes:
    """One pixel of that many channels, each stored by itself, and megabytes that are not used."""
    one = bytes([7]) if compression == 1 else zlib.compress(bytes([7]))
    places, sizes = 8 + len(one) * np.arange(count), np.full(count, len(one))
    sizes_and_numbers = {256: 1, 257: 1, 258: 8, 259: compression, 262: 1, 277: count, 278: 1, 284: 2}
    return tiff(sizes_and_numbers | {273: places, 279: sizes}, one * count + bytes(4_000_000))


def many_scans(count: int = 2000) -> bytes:
    """A progressive JPEG of 16 million pixels whose last scan comes again and again."""
    stream = io.BytesIO()
    Image.new("L", (4000, 4000), 128).save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    scan = data.rindex(b"\xff\xda")
    table = data.rindex(b"\xff\xc4", 0, scan)
    return data[:-2] + data[table:-2] * count + data[-2:]


def deep_png(width: int = 8000, height: int = 5000) -> bytes:
    """A quarter of a megabyte that holds 40 million black pixels of 48 bits."""
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + 6 * width)) for _ in range(height)) + packer.flush()
    start = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    chunks = [(b"IHDR", start), (b"IDAT", rows), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def long_film(seconds: float) -> bytes:
    """A film of a single frame that says it lasts so long."""
    import av

    stream = io.BytesIO()
    with av.open(stream, "w", format="webm") as container:
        video = container.add_stream("libvpx", rate=10)
        video.width, video.height, video.pix_fmt = 16, 16, "yuv420p"
        container.mux(video.encode(av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")))
        container.mux(video.encode())
    data = stream.getvalue()
    place = data.index(b"\x44\x89\x88") + 3
    return data[:place] + struct.pack(">d", 1000 * seconds) + data[place + 8 :]


def long_sound(samples: int = 1 << 29) -> bytes:
    """A tenth of a second that says it has so many samples."""
    import soundfile

    stream = io.BytesIO()
    soundfile.write(stream, np.zeros(1600), 16000, format="FLAC")
    data = stream.getvalue()
    facts = int.from_bytes(data[18:26], "big") >> 36 << 36 | samples
    return data[:18] + facts.to_bytes(8, "big") + data[26:]


VIEW = "lambda key, data: __import__('webdataset.display.rasters').display.rasters.image_picture('a.png', data, 100)"
MEDIA: dict[str, tuple[str, Callable[[], bytes], list[str], str]] = {
    "tags that share bytes": ("tif", tags_that_share_bytes, ["'pixels'", "'rgb8'", "'pil'", VIEW], "refused: "),
    **{
        f"tags that share bytes behind {magic!r}": (
            "tif",
            lambda magic=magic: magic + tags_that_share_bytes()[4:],
            ["'pil'"],
            "refused: ",
        )
        for magic in (b"II\0*", b"II+\0")
    },
    "tags of tags that share bytes": ("tif", tags_of_tags_that_share_bytes, ["'rgb8'", "'pil'"], "refused: "),
    "Exif tags that share bytes": ("jpg", exif_that_shares_bytes, ["'pil'", "'rgba8'"], "refused: "),
    "scans of a BLP": ("blp", scans_of_a_blp, ["'pil'", "'rgb8'"], "refused: "),
    "a gzipped FITS": ("fits", gzipped_fits, ["'pil'"], "refused: "),
    "samples of a film": (
        "mp4",
        lambda: samples_of_a_film(fragmented=False),
        ["wds.video(frames=2)", "wds.torch_video"],
        "refused: ",
    ),
    "samples of a fragment": ("mp4", lambda: samples_of_a_film(fragmented=True), ["wds.video(fps=4)"], "refused: "),
    "planes that are not compressed": ("tif", lambda: many_planes(1), ["'pixels'"], "read: "),
    "planes that are compressed": ("tif", lambda: many_planes(8), ["'pixels'"], "read: "),
    "scans of a JPEG": (
        "jpg",
        many_scans,
        [
            "'rgb8'",
            "'rgba8'",
            "'pil'",
            "wds.images.train(224)",
            "wds.images.pipeline(wds.images.crop(0, 0, 9, 9))",
            VIEW,
        ],
        "refused: ",
    ),
    "numbers behind a plain PGM": ("pgm", lambda: b"P2 1 1 100\n" + b"10 " * 22_000_000, ["'pixels'"], "read: "),
    "comments in a plain PGM": (
        "pgm",
        lambda: b"P2 1 2 100\n7 " + b"#\n" * 15_000_000 + b"#" * 3_000_000 + b" 8\n9",
        ["'pixels'"],
        "read: ",
    ),
    "blanks in a PGM": ("pgm", lambda: b"P5" + b" " * 20_000_000 + b"1 1 65535 ab", ["'pixels'"], ""),
    "a PNG of 16 bits": ("png", deep_png, ["'rgb8'", "'pil'", "'torchl8'"], "read: "),
    "seconds of a film": ("webm", lambda: long_film(6e7), ["wds.video(fps=4)", "wds.video()"], "refused: "),
    "samples of a sound": ("flac", long_sound, ["wds.audio()", "wds.audio(seconds=20_000)"], "read: "),
}


@pytest.mark.parametrize(
    ("name", "how"), [(name, how) for name, (_, _, all_of_them, _) in MEDIA.items() for how in all_of_them]
)
def test_what_a_header_claims_takes_no_memory_and_no_time(name: str, how: str, tmp_path: Path) -> None:
    field, make, _, answer = MEDIA[name]
    assert read_in_a_process(tmp_path, field, make(), how, limits=CPU_SECONDS, room=ROOM).startswith(answer)


def test_the_copies_that_are_made_of_a_deep_image_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_MAX_DECODED_BYTES", str(300 << 20))  # it has 229 MiB
    assert "WDS_MAX_DECODED_BYTES" in read_in_a_process(tmp_path, "png", deep_png(), "'pixels'")


def test_a_film_that_lasts_a_little_longer_than_its_frames_is_read(tmp_path: Path) -> None:
    assert read_in_a_process(tmp_path, "webm", long_film(60), "wds.video(fps=4)").startswith("read: ")


# -- databases -------------------------------------------------------------------------------------

SERVE = """
import sys
import webdataset as wds
from webdataset.errors import StorageError
samples = ({"__key__": str(i), "x": bytes(2000)} for i in range(200))
try:
    print(len(list(wds.LMDBCached(sys.argv[1], map_size=1 << 26).run(samples))))
except StorageError as exn:
    print("refused:", exn)
"""


def served(folder: Path) -> str:
    child = subprocess.run([sys.executable, "-c", SERVE, str(folder)], capture_output=True, text=True, check=False)
    assert child.returncode == 0, (child.returncode, child.stderr[-500:])
    return child.stdout


def test_a_database_that_was_cut_is_refused(tmp_path: Path) -> None:
    assert served(tmp_path / "cache") == served(tmp_path / "cache") == "200\n"
    os.truncate(tmp_path / "cache" / "data.mdb", 20_000)
    assert "cut short" in served(tmp_path / "cache")


@pytest.mark.parametrize("content", [b"not a database at all", bytes(100_000), os.urandom(100_000)])
def test_a_file_that_is_no_database_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "data.mdb").write_bytes(content)
    assert served(tmp_path / "cache").startswith("refused: ")


def test_a_fifo_in_place_of_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    os.mkfifo(tmp_path / "cache" / "data.mdb")
    assert served(tmp_path / "cache").startswith("refused: ")


LARGE = """
import sys
import webdataset as wds
samples = ({"__key__": str(i), "x": bytes(16 << 20)} for i in range(24))
print(sum(1 for _ in wds.LMDBCached(sys.argv[1], map_size=1 << 30, chunksize=int(sys.argv[2])).run(samples)))
"""


def test_a_database_of_large_samples_is_served_a_few_at_a_time(tmp_path: Path) -> None:
    for chunksize in (1, 500):
        limits = {"data": 300 << 20}
        child = python("-c", LARGE, tmp_path / "cache", chunksize, limits=limits)
        assert (child.returncode, child.stdout) == (0, "24\n"), child.stderr[-300:]
