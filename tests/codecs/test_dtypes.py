"""Data types and shapes out of files are checked before numpy sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webdataset.codecs.dtypes import depth, dtype_from, fits, is_dtype_string, is_shape
from webdataset.errors import DecodingError

DTYPES: list[Any] = [
    np.float16,
    ">i8",
    "S7",
    "U3",
    "<M8[25s]",
    "m8[ns]",
    [("a", "u1"), ("b", "<f4", (2, 3))],
    [(("title", "a"), "i2")],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_what_numpy_writes_is_understood(dtype: Any) -> None:
    dtype = np.dtype(dtype)
    assert dtype_from(np.lib.format.dtype_to_descr(dtype)) == dtype


@pytest.mark.parametrize("text", ["<M8[Y/0]", "<M8[0s]", "f4,f4", "(2,)f4", "<f4 ", "T", "", "O8junk", 3, None])
def test_other_forms_are_refused(text: Any) -> None:
    assert not is_dtype_string(text)
    with pytest.raises(DecodingError, match="form"):
        dtype_from(text)


def test_types_nested_too_deeply_or_too_large_are_refused() -> None:
    nested: Any = "<f4"
    for _ in range(40):
        nested = [("a", nested)]
    with pytest.raises(DecodingError, match="form"):
        dtype_from(nested)
    with pytest.raises(DecodingError, match="bytes"):
        dtype_from("S999999999")


def test_depth_counts_levels_and_shared_types_once() -> None:
    dtype = np.dtype("f4")
    for _ in range(20):
        dtype = np.dtype([("a", dtype), ("b", dtype)])
    assert depth(dtype) == 21


@pytest.mark.parametrize("shape", [[2], (-1,), (True,), (1.0,), (1,) * 65])
def test_what_is_no_shape(shape: Any) -> None:
    assert not is_shape(shape)


def test_an_array_must_fit_the_bytes_that_are_there() -> None:
    assert fits((0, 5), 8, 0)
    assert not fits((2, 3), 8, 47)
    assert not fits((1 << 30,), 0, 100)
