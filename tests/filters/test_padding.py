"""Padding: a collation for samples whose arrays differ in size."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from webdataset.filters import BatchError


def batch_of(samples: list[Any], **options: Any) -> Any:
    (batch,) = wds.batched(len(samples), collation_fn=wds.pad(**options))(samples)
    return batch


def image(height: int, width: int) -> Any:
    return np.full((height, width, 3), 7, np.uint8)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5))
def test_every_array_is_there_and_the_rest_is_the_value(sizes: list[tuple[int, int]]) -> None:
    arrays = [np.arange(height * width).reshape(height, width) for height, width in sizes]
    (batch,) = batch_of([(array,) for array in arrays], value=-1)
    assert batch.shape == (len(sizes), max(h for h, _ in sizes), max(w for _, w in sizes))
    for (height, width), array, row in zip(sizes, arrays, batch, strict=True):
        assert row[:height, :width].tolist() == array.tolist()
        assert (row == -1).sum() == row.size - array.size


def test_images_keep_their_type_and_labels_are_collated_as_ever() -> None:
    images, labels = batch_of([(image(2, 3), 5), (image(4, 1), 6)])
    assert (images.shape, images.dtype, labels.tolist()) == ((2, 4, 3, 3), np.uint8, [5, 6])


def test_tensors_become_a_tensor() -> None:
    batch = batch_of([{"x": torch.ones(2, 1)}, {"x": torch.ones(1, 3)}], value=9)
    assert torch.equal(batch["x"], torch.tensor([[[1.0, 9, 9], [1, 9, 9]], [[1.0, 1, 1], [9, 9, 9]]]))


def test_values_may_differ_by_field_or_place() -> None:
    assert batch_of([{"a": [1], "b": [1]}, {"a": [1, 2], "b": []}], value={"b": -100})["b"].tolist() == [[1], [-100]]
    assert batch_of([([1], [2.5]), ([], [1.5, 2.5])], value={1: 0.5})[1].tolist() == [[2.5, 0.5], [1.5, 2.5]]


def test_sizes_are_set_or_rounded_up() -> None:
    assert batch_of([([1],), ([1, 2, 3],)], to=5)[0].shape == (2, 5)
    assert batch_of([([1],), ([1, 2, 3],)], multiple=4)[0].shape == (2, 4)
    assert batch_of([(image(30, 20),), (image(10, 33),)], multiple=(32, 32))[0].shape == (2, 32, 64, 3)


def test_lengths_come_with_what_was_padded() -> None:
    tokens, lengths, labels = batch_of([([1, 2], 0), ([1], 1)], lengths=True)
    assert (tokens.shape, lengths.tolist(), labels.tolist()) == ((2, 2), [2, 1], [0, 1])
    assert batch_of([{"t": [1, 2]}, {"t": [1]}], lengths=True)["t_lengths"].tolist() == [2, 1]


def test_what_cannot_be_padded_is_named() -> None:
    with pytest.raises(BatchError, match="'x' of a, b"):
        batch_of([{"__key__": "a", "x": np.ones(2)}, {"__key__": "b", "x": np.ones((2, 2))}])
    with pytest.raises(BatchError, match="axis 0"):
        batch_of([([1, 2, 3],)], to=2)
    with pytest.raises(BatchError, match="fields"):
        batch_of([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="multiple"):
        wds.pad(multiple=0)


def test_it_pickles_and_says_what_it_does() -> None:
    assert repr(pickle.loads(pickle.dumps(wds.pad(-1, to=8)))) == "pad(-1, to=(8,), multiple=(), lengths=False)"


def ragged() -> Any:
    return ({"__key__": f"k{n}", "png": image(10 + n, 8), "cls": n} for n in range(6))


def test_images_of_different_sizes_are_named_with_their_keys_and_the_cure() -> None:
    with pytest.raises(BatchError) as refused:
        list(wds.DataPipeline(ragged, wds.batched(3)))
    check_told(refused.value, "collation_fn=wds.pad()")
    assert "collation_fn=wds.pad()" in refused.value.hint


def check_told(error: BatchError, cure: str) -> None:
    """The shapes, the field, the keys and the cure, in one line."""
    for word in ("(10, 8, 3), (11, 8, 3), (12, 8, 3)", "'png'", "k0, k1, k2", cure):
        assert word in str(error)
    assert "Traceback" not in str(error)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "workers": "thread"}])
def test_a_loader_that_batches_says_the_same_in_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(BatchError) as refused:
        list(wds.WebLoader(wds.DataPipeline(ragged), batch_size=3, **options))
    check_told(refused.value, "collate_fn=wds.pad()")


def test_torch_s_own_loader_tells_it_in_one_line_too() -> None:
    loader = torch.utils.data.DataLoader(wds.DataPipeline(ragged, wds.batched(3)), batch_size=None, num_workers=1)
    with pytest.raises(BatchError) as refused:
        list(loader)
    assert "collation_fn=wds.pad()" in str(refused.value)
    assert "worker process 0" in str(refused.value)
    assert "Traceback" not in str(refused.value)
