"""Tenbin: the format byte for byte, and hostile input."""

from __future__ import annotations

import contextlib
import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from webdataset import tenbin

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
ABC = bytes.fromhex(
    "7e54656e42696e7e2800000000000000663400000000000061626300000000000200000000000000020000000000000003"
    "00000000000000"
    + "00" * 24
    + "7e54656e42696e7e1800000000000000000000000000803f0000004000004040000080400000a040"
    + "00" * 40
)


def floats() -> np.ndarray:
    return np.arange(6, dtype="f4").reshape(2, 3)


def test_the_bytes_are_those_of_the_format():
    assert tenbin.encode_buffer([floats()], infos=["abc"]) == ABC
    assert len(ABC) == 160


def test_infos_come_back_when_asked():
    arrays, infos = tenbin.decode_buffer(ABC, infos=True)
    assert infos == ["abc"]
    assert np.array_equal(arrays[0], floats())


def test_required_infos_are_compared():
    assert len(tenbin.decode_buffer(ABC, infos=["abc"])) == 1
    with pytest.raises(ValueError, match="required"):
        tenbin.decode_buffer(ABC, infos=["xyz"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back(dtype):
    array = np.arange(5, dtype=dtype)
    (back,) = tenbin.decode_buffer(tenbin.encode_buffer([array]))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


@given(
    st.lists(
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
        ),
        max_size=4,
    )
)
def test_any_list_of_arrays_comes_back(arrays):
    data = tenbin.encode_buffer(arrays)
    assert len(data) % 16 == 0
    back = tenbin.decode_buffer(bytes(data))
    assert [(a.shape, a.dtype, a.tobytes()) for a in back] == [(a.shape, a.dtype, a.tobytes()) for a in arrays]


def test_other_byte_orders_and_layouts_are_stored_as_native_c_order():
    odd = [floats().astype(">f4"), np.asfortranarray(floats()), np.arange(12, dtype="f4").reshape(2, 6)[:, ::2]]
    for array, back in zip(odd, tenbin.decode_buffer(tenbin.encode_buffer(odd)), strict=True):
        assert np.array_equal(array, back)


def test_decoded_arrays_are_views_of_the_buffer():
    buffer = tenbin.encode_buffer([floats()])
    assert tenbin.decode_buffer(buffer)[0].flags.writeable
    assert not tenbin.decode_buffer(bytes(buffer))[0].flags.writeable


def test_streams_and_files(tmp_path):
    stream = io.BytesIO()
    tenbin.write(stream, [floats(), floats()], infos=["a", "b"])
    stream.seek(0)
    assert len(tenbin.read(stream, 1)) == 1
    assert tenbin.read(stream, infos=True)[1] == ["b"]
    assert tenbin.read_chunk(stream) is None
    name = str(tmp_path / "x.ten")
    tenbin.save(name, floats(), floats())
    assert len(tenbin.load(name)) == 2
    with pytest.raises(ValueError, match=r"\.ten"):
        tenbin.save(str(tmp_path / "x.foo"), floats())


@pytest.mark.parametrize("array", [np.zeros(2, "?"), np.zeros(2, "c8"), np.zeros(2, "O"), np.zeros([1] * 10)])
def test_what_the_format_cannot_hold_is_an_error(array):
    with pytest.raises(ValueError, match=r"type|dimensions"):
        tenbin.encode_buffer([array])


def header(*words: int) -> bytes:
    return struct.pack(f"@8s8s{len(words)}q", b"f4", b"", *words)


def chunk(payload: bytes, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return b"~TenBin~" + struct.pack("@q", size) + payload + bytes(-len(payload) % 64)


@pytest.mark.parametrize(
    "data",
    [
        ABC[:100],
        ABC[:80],
        ABC[:5],
        ABC + b"xx",
        b"x" * 160,
        chunk(b"abc", 1 << 60),
        chunk(b"abc", -1),
        chunk(header(2, -1, -1)) + chunk(b"1234"),
        chunk(header(2, 1 << 40, 1 << 40)) + chunk(b"1234"),
        chunk(header(1, 2)) + chunk(b"1234"),
        chunk(header(-1)) + chunk(b""),
        chunk(header(60, *[1] * 60)) + chunk(b"1234"),
        chunk(b"f4") + chunk(b""),
        chunk(struct.pack("@8s8sq", b"O8", b"", 0)) + chunk(b"12345678"),
        chunk(struct.pack("@8s8sq", b"\xff4", b"", 0)) + chunk(b"1234"),
    ],
)
def test_lengths_and_headers_that_lie_are_errors(data):
    with pytest.raises(ValueError):  # noqa: PT011 every message says something else
        tenbin.decode_buffer(data)
    with pytest.raises(ValueError):  # noqa: PT011
        tenbin.read(io.BytesIO(data))


@given(st.binary(max_size=200), st.integers(0, 159))
def test_damage_gives_arrays_or_a_value_error(junk, position):
    damaged = ABC[:position] + junk + ABC[position + len(junk) :]
    for data in (junk, damaged):
        with contextlib.suppress(ValueError):
            tenbin.decode_buffer(data)


def test_the_small_helpers():
    assert (tenbin.bytelen(floats()), tenbin.bytelen(b"abc")) == (24, 3)
    assert tenbin.decode_header(tenbin.encode_header(floats(), "abc")) == ((2, 3), np.dtype("f4"), "abc")
    with pytest.raises(ValueError, match="64 bit"):
        tenbin.check_acceptable_input_type([np.zeros(2)], allow64=False)
    tenbin.check_acceptable_input_type([np.zeros(2, "u4")], allow64=False)
    with pytest.raises(ValueError, match="8"):
        tenbin.encode_buffer([floats()], infos=["123456789"])
    with pytest.raises(ValueError, match="info"):
        tenbin.encode_buffer([floats()], infos="abc")
