"""Data that ended the process, or nearly: each is read in a process of its own, and must be refused there.

A crash (SIGSEGV, SIGFPE, SIGBUS) cannot be caught by a handler, and neither can a loop that never ends.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warm

LIMITS = {"RLIMIT_AS": 4 << 30, "RLIMIT_CPU": 30}

READ = """
import sys, warnings
from webdataset.autodecode import Decoder
from webdataset.errors import DecodingError
warnings.simplefilter("ignore")
field, path = sys.argv[1:]
try:
    sample = Decoder([])({"__key__": "a", field: open(path, "rb").read()})
except DecodingError as exn:
    print("refused:", exn)
else:
    print("read:", type(sample[field]))
    del sample
"""


def read_in_a_process(folder: Path, field: str, data: bytes) -> str:
    """What a process says that decodes the field; its death is a failure."""
    path = folder / "field"
    path.write_bytes(data)
    child = warm.run("-c", READ, field, path, limits=LIMITS)
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
