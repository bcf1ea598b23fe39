"""Pickles of plain data come back as Python's own unpickler gives them; the rest is refused."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import pickle
import uuid
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.codecs import pickles
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


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_of_every_protocol_come_back(protocol):
    for value in PLAIN:
        back = pickles.loads(pickle.dumps(value, protocol=protocol))
        assert type(back) is type(value)
        assert back == value
        if isinstance(value, (defaultdict, deque)):
            assert repr(back) == repr(value)


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


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


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
        with pytest.raises(UnsafePickleError, match="secure"):
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


def test_a_value_is_freed_with_its_last_reference():
    import gc
    import weakref

    data = pickle.dumps({"x": np.zeros(10)})
    gc.collect()
    gc.disable()
    try:
        array = pickles.loads(data)["x"]
        freed = weakref.ref(array)
        del array
        assert freed() is None
    finally:
        gc.enable()
