"""Attacks by data: whatever a field holds, no code of its choice runs and memory stays bounded."""

from __future__ import annotations

import builtins
import functools
import gzip
import io
import operator
import os
import pickle
import struct
import subprocess
import types
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests_support import tar_bytes
from webdataset.autodecode import Decoder
from webdataset.codecs import pickles
from webdataset.errors import DecodingError, UnsafePickleError


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that an attack that succeeds creates; nothing may ever create it."""
    path = tmp_path / "canary"
    monkeypatch.chdir(tmp_path)
    yield path
    assert not path.exists()


def code(path: Any) -> str:
    return f"open({str(path)!r}, 'w').close()"


CALLS: dict[str, Callable[[Any], Any]] = {
    "os.system": lambda path: Call(os.system, f"touch {path}"),
    "os.popen": lambda path: Call(os.popen, f"touch {path}"),
    "os.open": lambda path: Call(os.open, str(path), os.O_CREAT),
    "os.mkdir": lambda path: Call(os.mkdir, str(path)),
    "subprocess": lambda path: Call(subprocess.check_output, ["touch", str(path)]),
    "eval": lambda path: Call(eval, code(path)),
    "exec": lambda path: Call(exec, code(path)),
    "open": lambda path: Call(open, str(path), "w"),
    "compile": lambda path: Call(compile, code(path), "x", "exec"),
    "import": lambda path: Call(builtins.__import__, "antigravity"),
    "getattr": lambda path: Call(Call(getattr, os, "system") if False else getattr, Counter, "__init__"),
    "partial": lambda path: functools.partial(os.system, f"touch {path}"),
    "partial called": lambda path: Call(functools.partial(os.system, f"touch {path}")),
    "attrgetter": lambda path: operator.attrgetter("system"),
    "methodcaller": lambda path: operator.methodcaller("system", f"touch {path}"),
    "map": lambda path: Call(map, os.system, [f"touch {path}"]),
    "reduce": lambda path: Call(functools.reduce, os.system, [f"touch {path}"]),
    "type": lambda path: Call(type, "X", (object,), {}),
    "pickle.loads": lambda path: Call(pickle.loads, pickle.dumps(Call(os.system, f"touch {path}"))),
    "torch.load": lambda path: Call(torch.load, str(path)),
    "numpy.load": lambda path: Call(np.load, str(path)),
    "numpy.save": lambda path: Call(np.save, str(path), [1]),
    "numpy.fromfile": lambda path: Call(np.fromfile, "/etc/passwd"),
    "storage": lambda path: Call(
        torch.storage._load_from_bytes, pickle.dumps(Call(os.system, f"touch {path}"), protocol=2)
    ),
    "storage, in torch's format": lambda path: Call(
        torch.storage._load_from_bytes, saved(Call(os.system, f"touch {path}"), zipped=False)
    ),
    "storage, in torch's zip format": lambda path: Call(
        torch.storage._load_from_bytes, saved(Call(os.system, f"touch {path}"), zipped=True)
    ),
    "defaultdict": lambda path: defaultdict(os.getcwd, {}),
    "in a list": lambda path: [1, {"a": (Call(os.system, f"touch {path}"),)}],
    "as a key": lambda path: {(1, (2, Call(os.system, f"touch {path}"))): 1},
    "in an object array": lambda path: np.array([Call(os.system, f"touch {path}"), None], dtype=object),
    "in an array in an array": lambda path: np.array([np.array([Call(os.system, "x")], dtype=object)], dtype=object),
    "in an OrderedDict": lambda path: OrderedDict(a=Call(os.system, f"touch {path}")),
    "as state": lambda path: Call(Counter, state={"x": Call(os.system, f"touch {path}")}),
    "a class": lambda path: subprocess.Popen,
    "a module's function": lambda path: os.system,
    "an exception": lambda path: OSError("x"),
    "SimpleNamespace": lambda path: types.SimpleNamespace(a=1),
}


def saved(value: Any, *, zipped: bool) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("protocol", range(6))
def test_a_call_in_a_pickle_is_refused(canary, name, protocol):
    data = pickle.dumps(CALLS[name](canary), protocol=protocol)
    with pytest.raises((UnsafePickleError, pickle.UnpicklingError, RuntimeError)):
        pickles.loads(data)


@pytest.mark.parametrize("field", ["pyd", "pkl", "pickle", "pyd.gz", "a.b.pickle"])
def test_a_call_in_any_pickled_field_is_refused(canary, field):
    data = pickle.dumps(Call(os.system, f"touch {canary}"))
    data = gzip.compress(data) if field.endswith("gz") else data
    with pytest.raises(DecodingError, match=r"posix\.system") as caught:
        Decoder([])({"__key__": "k", "__url__": "u", field: data})
    assert isinstance(caught.value, UnsafePickleError)
    assert isinstance(caught.value.__cause__, UnsafePickleError)
    assert (caught.value.key, caught.value.field, caught.value.url) == ("k", field, "u")
    assert "allow_pickle=True" in str(caught.value)


# -- numpy, whose own unpickling believes everything ----------------------------------------------


core = np._core if hasattr(np, "_core") else np.core  # its name since numpy 2, and before


def dtype_state(*state: Any, letters: str = "V8") -> Any:
    return Call(np.dtype, letters, False, True, state=state)


def array_of(dtype: Any, shape: tuple[int, ...], data: Any, cls: Any = np.ndarray) -> Any:
    return Call(core.multiarray._reconstruct, cls, (0,), b"b", state=(1, shape, dtype, False, data))


F8 = np.dtype("f8")
OBJECT = np.dtype("O")
LYING_ARRAYS = {
    "a field outside the item": lambda: array_of(
        dtype_state(3, "|", None, ("a",), {"a": (F8, 100_000)}, 8, 1, 0), (1,), bytes(8)
    ),
    "a field before the item": lambda: array_of(
        dtype_state(3, "|", None, ("a",), {"a": (F8, -8)}, 8, 1, 0), (1,), bytes(8)
    ),
    "pointers in bytes": lambda: array_of(
        dtype_state(3, "|", None, ("a",), {"a": (OBJECT, 0)}, 8, 1, 0), (1,), struct.pack("Q", 0x4141414141414141)
    ),
    "pointers in bytes of a subarray": lambda: array_of(
        dtype_state(3, "|", (OBJECT, (1,)), None, None, 8, 1, 0), (1,), struct.pack("Q", 0x4141414141414141)
    ),
    "an object array of bytes": lambda: array_of(OBJECT, (1,), struct.pack("Q", 0x4141414141414141)),
    "an object scalar": lambda: Call(core.multiarray.scalar, OBJECT, struct.pack("Q", 0x4141414141414141)),
    "fewer bytes than the shape": lambda: array_of(F8, (1000,), bytes(8)),
    "more bytes than the shape": lambda: array_of(F8, (1,), bytes(800)),
    "a negative shape": lambda: array_of(F8, (-1,), b""),
    "an overflowing shape": lambda: array_of(F8, (1 << 62, 1 << 62), b""),
    "a huge item": lambda: array_of(dtype_state(3, "|", None, None, None, 1 << 40, 1, 0, letters="S"), (0,), b""),
    "a huge subarray": lambda: array_of(dtype_state(3, "|", (F8, (1 << 30, 1 << 30)), None, None, 8, 1, 0), (0,), b""),
    "a class of its own": lambda: array_of(F8, (1,), bytes(8), np.matrix),
    "a class that is none": lambda: array_of(F8, (1,), bytes(8), Counter),
    "a state that is none": lambda: Call(core.multiarray._reconstruct, np.ndarray, (0,), b"b", state={"a": 1}),
    "a dtype of nothing": lambda: Call(np.dtype, ("f8", (1 << 40,)), False, True),
    "a dtype that is a list": lambda: Call(np.dtype, [("a", "O")], False, True),
    "a dtype without state": lambda: Call(np.dtype, "f8", False, True),
    "a buffer of another thing": lambda: Call(core.numeric._frombuffer, [1, 2], F8, (2,), "C"),
    "object fields in a list": lambda: array_of(
        dtype_state(3, "|", None, ("a",), {"a": (OBJECT, 0)}, 8, 1, 63), (1,), [(1,)]
    ),
}


@pytest.mark.parametrize("name", LYING_ARRAYS)
def test_arrays_and_dtypes_that_lie_are_refused(name):
    with pytest.raises((UnsafePickleError, pickle.UnpicklingError, ValueError)):
        pickles.loads(pickle.dumps(LYING_ARRAYS[name](), protocol=4))


def test_an_array_cannot_be_used_before_it_is_complete():
    start = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    for data in (start + b".", start + b"p1\n0g1\n.", start + b"2.", start + b"\x85."):
        with pytest.raises(pickle.UnpicklingError):
            pickles.loads(data)


# -- the other containers of pickles --------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_call_in_a_pth_field_is_refused(canary, zipped, protocol):
    stream = io.BytesIO()
    attack = {"weights": torch.zeros(2), "x": Call(os.system, f"touch {canary}")}
    torch.save(attack, stream, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    for data, field in ((stream.getvalue(), "pth"), (gzip.compress(stream.getvalue()), "pth.gz")):
        with pytest.raises(DecodingError, match="allow_pickle=True") as caught:
            Decoder([])({"__key__": "k", field: data})
        if protocol == 2:  # torch stops at the instructions of later protocols before it sees the name
            assert isinstance(caught.value, UnsafePickleError)
            assert "posix.system" in str(caught.value)


def test_a_tar_archive_in_a_pth_field_is_refused(canary):
    """torch of old wrote such files; before 2.6 it reads them, if they are files, whatever weights_only says."""
    attack = pickle.dumps(Call(os.system, f"touch {canary}"), protocol=2)
    data = tar_bytes([(name, attack) for name in ("storages", "tensors", "pickle")])
    with pytest.raises(DecodingError):
        Decoder([])({"__key__": "k", "pth": data})


def test_a_plain_pickle_in_a_pth_field_is_refused(canary):
    for protocol in range(6):
        with pytest.raises(DecodingError):
            Decoder([])({"__key__": "k", "pth": pickle.dumps(Call(os.system, f"touch {canary}"), protocol=protocol)})


def npy(value: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([value], dtype=object), allow_pickle=True)
    return stream.getvalue()


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def test_a_call_in_an_array_file_is_refused(canary):
    attack = npy(Call(os.system, f"touch {canary}"))
    plain = pickle.dumps(Call(os.system, f"touch {canary}"))
    for field, data in (("npy", attack), ("npy", plain), ("npz", attack), ("npz", plain)):
        with pytest.raises(DecodingError):
            Decoder([])({"__key__": "k", field: data})
    with pytest.raises(DecodingError, match="Python objects"):
        Decoder([])({"__key__": "k", "npz": zipped(**{"a.npy": attack})})
    with pytest.raises(DecodingError):
        Decoder([])({"__key__": "k", "npz": zipped(**{"a.npy": plain})})


def test_secure_mode_refuses_pickles_and_torch_files(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    for field, data in (("pyd", pickle.dumps(1)), ("pth", saved(1, zipped=True))):
        for decoder in (Decoder([]), Decoder([], allow_pickle=True)):
            with pytest.raises(DecodingError, match="secure mode"):
                decoder({"__key__": "k", field: data})


# -- memory and time ------------------------------------------------------------------------------


ARRAY_BOMBS = {
    "npy of terabytes": b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117)
    + b"\n"
    + bytes(64),
    "npy of negative size": b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -8), }".ljust(117)
    + b"\n"
    + bytes(64),
    "npy with a huge item": b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': ('<f8', (100000, 100000)), 'fortran_order': False, 'shape': (1,), }".ljust(117)
    + b"\n"
    + bytes(64),
    "npy with a huge header": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + b"{" * 100_000,
    "npy with a nested header": b"\x93NUMPY\x01\x00\x00\x20" + b"(" * 0x2000,
    "npy 3 with a huge header": b"\x93NUMPY\x03\x00\xff\xff\xff\x7f" + b"{" * 100_000,
    "npy of an unknown version": b"\x93NUMPY\x09\x00v\x00" + bytes(200),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ARRAY_BOMBS)
def test_an_array_file_cannot_take_much_memory(name):
    data = ARRAY_BOMBS[name]
    for field, content in (("npy", data), ("npz", zipped(**{"a.npy": data}))):
        with pytest.raises(DecodingError):
            Decoder([])({"__key__": "k", field: content})


def test_a_zip_bomb_is_refused():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for index in range(4):
            archive.writestr(f"{index}.npy", bytes(40 << 20))
    with pytest.raises(DecodingError, match="expand"):
        Decoder([])({"__key__": "k", "npz": stream.getvalue()})


def test_a_large_but_allowed_array_file_needs_the_limit_raised(monkeypatch):
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(100_000, np.uint8))
    assert len(Decoder([])({"npz": stream.getvalue()})["npz"]["a"]) == 100_000
    monkeypatch.setenv("WDS_MAX_DECODED_BYTES", "50000")
    with pytest.raises(DecodingError, match="WDS_MAX_DECODED_BYTES"):
        Decoder([])({"npz": stream.getvalue()})
