"""Pickles of plain data come back as Python's own unpickler gives them; the rest is refused."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
import pickle
import uuid
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from webdataset.codecs import pickles
from webdataset.codecs.pickle.objects import registered
from webdataset.errors import UnsafePickleError

UTC = datetime.UTC
PLAIN = [
    *[None, True, False, 0, 1, -1, 300, 70_000, 2**31, -(2**63), 2**100, 1.5, float("inf"), 1j],
    *["", "é" * 300, "a\ud800", "x" * 70_000, b"", b"x", b"\xff" * 300, bytearray(b"ab"), bytearray()],
    *[[], [1, [2]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {"a": 1, (1, 2): 3}],
    *[set(), {1, 2}, frozenset([1]), frozenset(), range(3), slice(1, None, 2)],
    *[OrderedDict(a=1, b=[2]), defaultdict(int, {"a": 1}), defaultdict(list), defaultdict(None)],
    *[deque([1, 2], 3), deque([1]), Counter("aab"), int, str, list],
    *[datetime.date(2020, 1, 2), datetime.time(3, 4), datetime.timedelta(3, 4, 5)],
    *[datetime.datetime(2020, 1, 2, 3, 4, 5, 6), datetime.datetime(2020, 1, 2, tzinfo=UTC)],  # noqa: DTZ001
    *[datetime.timezone(datetime.timedelta(hours=3), "X"), datetime.time(3, tzinfo=UTC)],
    *[decimal.Decimal("1.50"), decimal.Decimal("NaN").copy_abs() is None, uuid.UUID(int=5)],
]
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
def test_plain_values_of_every_protocol_come_back(protocol):
    for value in PLAIN:
        back = pickles.loads(pickle.dumps(value, protocol=protocol))
        assert type(back) is type(value)
        assert back == value
        if isinstance(value, (defaultdict, deque)):
            assert repr(back) == repr(value)


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


@pytest.mark.parametrize("protocol", range(2, 6))
def test_tensors_come_back(protocol):
    base = torch.arange(12.0)
    values = [base, base[3:5], base.reshape(3, 4).t(), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(0)]
    values += [torch.tensor(5), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))]
    for value in values:
        back = pickles.loads(pickle.dumps(value, protocol=protocol))
        assert (type(back), back.dtype, back.stride()) == (type(value), value.dtype, value.stride())
        assert back.requires_grad == value.requires_grad
        assert torch.equal(back, value)


def test_shared_and_cyclic_values_stay_shared_and_cyclic():
    shared = [1]
    cycle: list[object] = [shared, shared]
    cycle.append(cycle)
    back = pickles.loads(pickle.dumps(cycle))
    assert back[0] is back[1]
    assert back[2] is back
    array = np.arange(3)
    one, two = pickles.loads(pickle.dumps([array, array]))
    assert one is two


def test_names_of_numpy_1_are_understood():
    data = pickle.dumps(np.arange(3), protocol=4).replace(b"\x16numpy._core.multiarray", b"\x15numpy.core.multiarray")
    assert pickles.loads(b"\x80\x04" + data[11:]).tolist() == [0, 1, 2]


def test_types_and_dtypes_are_values():
    value = {"a": np.float32, "b": np.dtype(">i8"), "c": torch.float16, "d": torch.Size([1, 2]), "e": int}
    assert pickles.loads(pickle.dumps(value)) == value


@pytest.fixture
def registry():
    before = dict(registered)
    yield registered
    registered.clear()
    registered.update(before)


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)


class Items(list):
    pass


@pytest.mark.parametrize("protocol", range(6))
def test_a_registered_class_is_built(registry, protocol):
    with pytest.raises(UnsafePickleError, match="Point"):
        pickles.loads(pickle.dumps(Point(3), protocol=protocol))
    assert pickles.register_safe_global(Point) is Point
    assert pickles.loads(pickle.dumps([Point(3)], protocol=protocol))[0].x == 3


def test_registered_classes_of_other_makes(registry):
    for cls in (fractions.Fraction, Slotted, Items):
        pickles.register_safe_global(cls)
    slotted = Slotted()
    slotted.x = 5
    assert pickles.loads(pickle.dumps(fractions.Fraction(1, 3))) == fractions.Fraction(1, 3)
    assert pickles.loads(pickle.dumps(slotted)).x == 5
    assert pickles.loads(pickle.dumps(Items([1, 2]))) == [1, 2]


def test_allow_pickle_builds_anything(monkeypatch):
    data = pickle.dumps(Point(3))
    assert pickles.loads(data, allow_pickle=True).x == 3
    monkeypatch.setenv("WDS_ALLOW_PICKLE", "1")
    assert pickles.loads(data).x == 3
    with pytest.raises(UnsafePickleError):
        pickles.loads(data, allow_pickle=False)


def test_secure_mode_refuses_every_pickle(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    monkeypatch.setenv("WDS_ALLOW_PICKLE", "1")
    for allowed in (None, True, False):
        with pytest.raises(UnsafePickleError, match="secure mode"):
            pickles.loads(pickle.dumps([1]), allow_pickle=allowed)


def test_a_refusal_names_the_object_and_the_switches():
    with pytest.raises(UnsafePickleError) as caught:
        pickles.loads(pickle.dumps(Point(3)))
    for word in (f"{Point.__module__}.Point", "allow_pickle=True", "WDS_ALLOW_PICKLE=1", "register_safe_global"):
        assert word in str(caught.value)


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.tuples(st.integers(), st.text()), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers(), max_size=4)
    ),
    max_leaves=15,
)


@given(plain_values, st.integers(0, 5))
def test_any_plain_value_comes_back(value, protocol):
    assert pickles.loads(pickle.dumps(value, protocol=protocol)) == value


@given(
    hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)), st.integers(0, 5)
)
def test_any_array_comes_back(array, protocol):
    back = pickles.loads(pickle.dumps(array, protocol=protocol))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


HARMLESS = {"builtins", "collections", "datetime", "numpy", "numpy.dtypes", "webdataset.codecs.pickle.objects"}


def modules_of(value):
    """The modules that the classes of a value and of all in it come from."""
    found, pending = {}, [value]
    while pending:
        item = pending.pop()
        if id(item) not in found:
            found[id(item)] = type(item).__module__
            pending += item.values() if isinstance(item, dict) else ()
            pending += item if isinstance(item, (list, tuple, dict, set, frozenset)) else ()
    return set(found.values())


@given(plain_values, st.data())
def test_a_damaged_pickle_is_a_value_of_plain_data_or_an_unpickling_error(value, data):
    whole = bytearray(pickle.dumps([value, np.arange(3), Counter("ab")]))
    for _ in range(3):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    for damaged in (bytes(whole), cut):
        with contextlib.suppress(pickle.UnpicklingError):
            assert modules_of(pickles.loads(damaged)) <= HARMLESS
