import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from webdataset.base.reports import Report
from webdataset.filters import (
    BatchError,
    batched,
    combine_values,
    default_collation_fn,
    dict2tuple,
    listed,
    tuple2dict,
    unbatched,
    unlisted,
)
from webdataset.handlers import ignore_and_continue


def plain(value):
    """Arrays and tensors as (type, dtype, list), to compare them."""
    if isinstance(value, (numpy.ndarray, torch.Tensor)):
        return type(value).__name__, str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return type(value)(plain(part) for part in value) if isinstance(value, (tuple, list)) else value


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1, 2], ("ndarray", "int64", [1, 2])),
        ([1.5, 2], ("ndarray", "float64", [1.5, 2.0])),
        ([True, False], ("ndarray", "bool", [True, False])),
        ([1, numpy.int64(2)], ("ndarray", "int64", [1, 2])),
        (["a", "b"], ["a", "b"]),
        ([b"a", b"b"], [b"a", b"b"]),
        ([None, None], [None, None]),
        ([(1, 2), (3, 4)], [(1, 2), (3, 4)]),
        ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 2}]),
        ([1, "a"], [1, "a"]),
        ([1, None], [1, None]),
        ([numpy.float32(1), numpy.float32(2)], [1.0, 2.0]),
        ([numpy.zeros(2, "f4"), numpy.ones(2, "f4")], ("ndarray", "float32", [[0, 0], [1, 1]])),
        ([numpy.array(1), numpy.array(2)], ("ndarray", "int64", [1, 2])),
        ([torch.zeros(2), torch.ones(2)], ("Tensor", "torch.float32", [[0, 0], [1, 1]])),
    ],
    ids=str,
)
def test_columns_become_what_they_should(column, expected):
    assert plain(combine_values(column)) == expected
    assert plain(default_collation_fn([(value,) for value in column])) == (expected,)
    assert plain(default_collation_fn([{"f": value} for value in column])) == {"f": expected}


def test_combining_can_be_switched_off():
    samples = [(numpy.zeros(2), 1), (numpy.zeros(3), 2)]
    assert isinstance(default_collation_fn(samples, combine_tensors=False)[0], list)
    assert default_collation_fn([("a", 1), ("b", 2)], combine_scalars=False) == (["a", "b"], [1, 2])


def test_lists_are_samples_like_tuples():
    assert plain(default_collation_fn([["a", 1], ["b", 2]])) == (["a", "b"], ("ndarray", "int64", [1, 2]))


def test_a_batch_of_dicts_keeps_the_order_of_the_fields():
    assert list(default_collation_fn([{"b": 1, "a": 2}, {"a": 3, "b": 4}])) == ["b", "a"]


@pytest.mark.parametrize("make", [numpy.zeros, torch.zeros])
def test_images_of_different_sizes_are_an_error_that_names_the_shapes_and_the_cure(make):
    samples = [(make((2, 3)),), (make((2, 3)),), (make((4, 3)),)]
    for kind in (ValueError, AssertionError):
        with pytest.raises(kind, match=r"\(2, 3\), \(4, 3\).*collation_fn="):
            list(batched(3)(samples))


def test_arrays_mixed_with_other_values_are_an_error():
    with pytest.raises(ValueError, match="int and ndarray"):
        default_collation_fn([(numpy.zeros(2),), (1,)])


def test_samples_of_different_lengths_or_fields_are_an_error():
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        default_collation_fn([(1, 2), (3,)])
    with pytest.raises(BatchError, match="b, c") as raised:
        default_collation_fn([{"__key__": "j", "b": 1}, {"__key__": "k", "c": 1}])
    assert raised.value.key == "k"


def test_scalars_are_no_samples():
    for sample in (1, "text", b"bytes", numpy.zeros(2)):
        with pytest.raises(TypeError, match="collation_fn=None"):
            default_collation_fn([sample, sample])


def test_no_samples_are_no_batch():
    with pytest.raises(ValueError, match="one"):
        default_collation_fn([])


@pytest.mark.parametrize(("partial", "expected"), [(True, [[0, 1], [2, 3], [4]]), (False, [[0, 1], [2, 3]])])
def test_the_last_batch_may_be_partial(partial, expected):
    assert [batch[0].tolist() for batch in batched(2, partial=partial)([(i,) for i in range(5)])] == expected
    assert list(listed(2, partial=partial)(range(5))) == expected
    assert list(batched(2, collation_fn=None, partial=partial)(range(5))) == expected


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_a_batch_holds_a_whole_number_of_samples(size):
    for filter in (batched, listed):
        with pytest.raises(ValueError, match="batchsize"):
            filter(size)([])


def test_a_failed_batch_counts_all_its_samples():
    samples = [(numpy.zeros(n),) for n in (1, 1, 1, 2, 2, 2)]
    report = Report(strict=False)
    with report.in_force():
        assert len(list(batched(2, handler=ignore_and_continue)(samples))) == 2
    assert report.as_dict()["samples_dropped"] == 2


def test_a_batch_takes_no_more_than_it_needs():
    source = iter([(i,) for i in range(10)])
    batches = batched(3)(source)
    next(batches)
    assert next(source) == (3,)


values = st.one_of(st.integers(-(2**40), 2**40), st.text(), st.binary(), st.tuples(st.integers(), st.text()))


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.text(), values)), st.integers(1, 7))
def test_batching_tuples_and_unbatching_is_the_identity(samples, size):
    assert list(unbatched()(batched(size)(samples))) == samples


@given(
    st.lists(st.fixed_dictionaries({"__key__": st.text(), "cls": st.floats(allow_nan=False), "x": values})),
    st.integers(1, 7),
)
def test_batching_dicts_and_unbatching_is_the_identity(samples, size):
    assert list(unbatched()(batched(size)(samples))) == samples


@given(st.lists(st.integers()), st.integers(1, 7))
def test_listing_and_unlisting_is_the_identity(samples, size):
    assert list(unlisted()(listed(size)(samples))) == samples


def test_columns_of_different_lengths_cannot_be_unbatched():
    for batch in (([1], [1, 2]), ([1, 2], [1]), {"a": [1], "b": []}):
        with pytest.raises(ValueError, match="lengths"):
            list(unbatched()([batch]))


def test_what_is_no_batch_cannot_be_unbatched():
    for batch in (5, "ab", (), {}):
        with pytest.raises(ValueError, match="unbatched"):
            list(unbatched()([batch]))
    with pytest.raises(ValueError, match="tuple"):
        list(unlisted()([(1, 2)]))


def test_tuple2dict_and_dict2tuple():
    assert tuple2dict(("a", "b")) == {0: "a", 1: "b"}
    assert dict2tuple({1: "b", 0: "a"}) == ("a", "b")
