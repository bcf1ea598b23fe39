"""numpy's part of pickles: arrays, dtypes and scalars."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from webdataset.codecs import pickles

ARRAYS = [
    *[np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">f4")],
    *[np.array(["a", "bcd"]), np.array([b"a", b"b"], dtype="S5"), np.zeros((0, 3)), np.array(5), np.zeros(3, "V5")],
    *[np.zeros(2, "?"), np.zeros(3, "G"), np.array(["2020-01-01"], dtype="M8[ns]"), np.zeros(2, "m8[25s]")],
    *[np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", ">f8")]), np.zeros(2, "M8")],
    np.array([(1, [2.0, 3])], dtype=np.dtype([("a", "i1"), ("b", "f8", (2,))], align=True)),
    np.zeros(2, np.dtype({"names": ["x"], "formats": ["i4"], "offsets": [4], "itemsize": 16})),
    *[np.float32(3), np.int64(4), np.bool_(True), np.str_("abc"), np.bytes_(b"abc"), np.datetime64("2020-01-01")],
]


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_of_every_protocol_come_back(protocol):
    for value in ARRAYS:
        back = pickles.loads(pickle.dumps(value, protocol=protocol))
        assert type(back) is type(value)
        assert (back.dtype, back.shape, back.tobytes()) == (value.dtype, value.shape, value.tobytes())
        assert back.dtype.isalignedstruct == value.dtype.isalignedstruct
        if isinstance(back, np.ndarray):
            assert back.flags.writeable
            assert back.flags.f_contiguous == value.flags.f_contiguous


@pytest.mark.parametrize("protocol", range(2, 6))
def test_arrays_of_objects_come_back(protocol):
    value = np.array([1, "a", None, [1], {"x": np.arange(2)}, 2.5], dtype=object).reshape(2, 3)
    back = pickles.loads(pickle.dumps(value, protocol=protocol))
    assert (back.shape, repr(back.tolist())) == (value.shape, repr(value.tolist()))


def test_names_of_numpy_1_are_understood():
    data = pickle.dumps(np.arange(3), protocol=4).replace(b"\x16numpy._core.multiarray", b"\x15numpy.core.multiarray")
    assert pickles.loads(b"\x80\x04" + data[11:]).tolist() == [0, 1, 2]


def test_types_and_dtypes_are_values():
    value = {"a": np.float32, "b": np.dtype(">i8"), "c": torch.float16, "d": torch.Size([1, 2]), "e": int}
    assert pickles.loads(pickle.dumps(value)) == value


@given(
    hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)), st.integers(0, 5)
)
def test_any_array_comes_back(array, protocol):
    back = pickles.loads(pickle.dumps(array, protocol=protocol))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
