"""Batches as messages: what goes in comes out, and what is damaged is an error before any memory is taken for it."""

from __future__ import annotations

import sys
from collections import namedtuple

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import webdataset as wds
from webdataset.remote import wire
from webdataset.remote.wire import Incoming, in_parts, packed, packed_batch, unpacked, unpacked_batch


def there_and_back(value):
    header, *frames = packed_batch([value], id=1)
    message, [found] = unpacked_batch(header, [bytearray(frame) for frame in frames])
    assert message["kind"] == "batch"
    assert message["id"] == 1
    return found


def same(left, right) -> bool:
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    return type(left) is type(right) and (left == right or np.isnan(left))


DTYPES = ["?", "i1", "u1", "<i2", ">u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", ">f8", "<c8", "<c16", "S3", "<U2"]
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3000)
ARRAYS = st.sampled_from([*DTYPES, "<M8[ns]", "<m8[s]"]).flatmap(
    lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
)
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(-9, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_plain_values_and_arrays_come_back_as_they_were(value) -> None:
    assert same(there_and_back(value), value)


def test_numbers_of_numpy_and_structured_arrays_come_back() -> None:
    for value in (np.float32(1.5), np.int64(-3), np.bool_(True), np.datetime64("2020-01-01")):
        found = there_and_back(value)
        assert found == value
        assert found.dtype == value.dtype
    records = np.zeros(300, [("a", "<f4", (2,)), ("b", "<M8[ns]"), ("c", "S5")])
    assert same(there_and_back(records), records)


def test_arrays_that_do_not_lie_side_by_side_come_back() -> None:
    array = np.arange(10_000).reshape(100, 100)[::3, ::-2]
    assert same(there_and_back(array), array)


def test_ragged_arrays_come_back_as_an_array_of_objects() -> None:
    ragged = np.empty(2, object)
    ragged[:] = [np.arange(3), np.arange(2000)]
    found = there_and_back((ragged, [np.ones(3), np.ones(5)]))
    assert found[0].dtype == object
    assert [row.tolist() for row in found[0]] == [row.tolist() for row in ragged]
    assert [row.shape for row in found[1]] == [(3,), (5,)]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float16", "float32", "bool", "int64", "complex64"])
@pytest.mark.parametrize("size", [3, 3000])
def test_tensors_come_back_as_tensors(name: str, size: int) -> None:
    torch = pytest.importorskip("torch")
    tensor = (torch.arange(2 * size).reshape(2, size) % 7).to(getattr(torch, name))
    found = there_and_back([tensor, tensor[:, ::2]])
    assert [one.dtype for one in found] == [tensor.dtype] * 2
    assert torch.equal(found[0].to(torch.complex64), tensor.to(torch.complex64))
    assert found[1].shape == tensor[:, ::2].shape


def test_without_torch_tensors_are_arrays_and_bfloat16_says_what_is_missing(monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    header, *frames = packed_batch([torch.ones(4)], id=0)
    brain = packed_batch([torch.ones(4, dtype=torch.bfloat16)], id=0)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    _, [found] = unpacked_batch(header, frames)
    assert isinstance(found, np.ndarray)
    with pytest.raises(wds.MissingPackageError, match="bfloat16") as raised:
        unpacked_batch(brain[0], brain[1:])
    assert "ml_dtypes" in raised.value.hint


def test_received_arrays_can_be_written_to() -> None:
    found = there_and_back([np.zeros(2), np.zeros(5000)])
    for array in found:
        array += 1
        assert array.sum() == len(array)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (object(), r"item 0 .*builtins\.object"),
        ({"a": [1, {2}]}, r"item 0\['a'\]\[1\] .*builtins\.set"),
        ({(1, 2): 3}, "item 0 .*tuple"),
        (lambda: 0, "item 0 .*function"),
        (np.zeros(2, [("a", object)]), r"item 0 .*numpy\.ndarray"),
    ],
)
def test_what_is_no_plain_data_is_refused_with_its_place(value, match: str) -> None:
    with pytest.raises(wds.EncodingError, match=match):
        packed_batch([value], id=0)


def test_values_nested_too_deeply_are_refused_on_both_sides() -> None:
    value: list = []
    for _ in range(60):
        value = [value]
    with pytest.raises(wds.EncodingError, match="nested"):
        packed_batch([value], id=0)
    node: list = ["l", []]
    for _ in range(60):
        node = ["l", [node]]
    with pytest.raises(wds.SampleError, match="nested"):
        unpacked_batch(packed({"kind": "batch", "items": [node], "sizes": []}), [])


def test_a_named_tuple_arrives_as_a_tuple() -> None:
    assert there_and_back(namedtuple("Pair", "a b")(1, 2)) == (1, 2)


DAMAGED = [
    ([["a", "<f4", [1 << 40]]], [bytes(16)]),
    ([["a", "<f4", [3]]], [bytes(16)]),
    ([["a", "<f4", [-4]]], [bytes(16)]),
    ([["a", "|O", [2]]], [bytes(16)]),
    ([["a", "<M8[Y/0]", [2]]], [bytes(16)]),
    ([["a", [["a", "|O"]], [2]]], [bytes(16)]),
    ([["a", "<f4", [4]]], []),
    ([["a", "<f4", [4] * 50]], [bytes(16)]),
    ([["x", "bfloat16", [99]]], [bytes(16)]),
    ([["o", [2], [1]]], []),
    ([["o", [1 << 50], []]], []),
    ([["n", "<f8", b"123"]], []),
    ([["d", ["a", "b"], [1]]], []),
    ([["d", [["x"]], [1]]], []),
    ([["z"]], []),
    ([[]], []),
    ([{"a": 1}], []),
    ([["i", "12x"]], []),
    ([["t"]], []),
    ("items", []),
]


@pytest.mark.parametrize(("items", "frames"), DAMAGED)
def test_damaged_batches_are_errors(items, frames) -> None:
    header = packed({"kind": "batch", "items": items, "sizes": [len(frame) for frame in frames]})
    with pytest.raises(wds.SampleError, match="damaged"):
        unpacked_batch(header, frames)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.integers(1, 50))
def test_frames_that_are_cut_into_parts_are_put_together_again(frames, most: int) -> None:
    parts = list(in_parts(frames, most))
    assert all(sum(map(len, part)) <= most for part in parts)
    incoming = Incoming([len(frame) for frame in frames], largest=60)
    assert [incoming.add(part) for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [bytes(frame) for frame in incoming.frames] == frames


@pytest.mark.parametrize("sizes", [None, [], 7, "ab", [-1], [1.5], [True], ["9"], [101], [1 << 70], [1] * (1 << 17)])
def test_sizes_that_cannot_be_are_told_before_memory_is_taken(sizes) -> None:
    with pytest.raises(wds.SampleError, match=r"damaged|too large"):
        Incoming(sizes, largest=100)


def test_more_than_was_announced_is_an_error() -> None:
    for part in ([b"1234", b"5"], [b"12345"], [b"12", b"345"]):
        with pytest.raises(wds.SampleError, match="announced"):
            Incoming([4], largest=100).add(map(memoryview, part))


def test_frames_must_be_those_that_the_header_announces() -> None:
    header, *frames = packed_batch([np.zeros(5000)], id=0)
    for wrong in ([], [frames[0][:-1]], [*frames, b""]):
        with pytest.raises(wds.SampleError, match="announces"):
            unpacked_batch(header, wrong)


@pytest.mark.parametrize(
    "frame", [b"", b"\xc1", b"\x01", msgpack.packb({"a": 1}), msgpack.packb({"kind": 3}), bytes(9)]
)
def test_what_is_no_message_is_an_error(frame: bytes) -> None:
    with pytest.raises(wds.SampleError, match="message"):
        unpacked(frame)


def test_a_request_is_bounded() -> None:
    with pytest.raises(wds.SampleError, match="too large"):
        unpacked(packed({"kind": "get", "x": bytes(wire.MAX_REQUEST_BYTES)}))
