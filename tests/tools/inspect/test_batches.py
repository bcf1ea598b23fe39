"""Statistics of batches, and batches as samples that can be shown."""

from __future__ import annotations

import numpy as np
import pytest

from webdataset.tools.inspect.batches import fields_of, samples_of, statistics, statistics_lines


def test_statistics_of_parts_are_those_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(3, 2, 1000).astype("f4")
    found = statistics([(part,) for part in np.split(values, [10, 500])])["0"]
    assert found.count == 1000
    assert found.mean == pytest.approx(values.mean(), rel=1e-5)
    assert found.deviation == pytest.approx(values.std(), rel=1e-5)
    assert (found.low, found.high) == (values.min(), values.max())


def test_fields_that_are_no_numbers_have_types_only() -> None:
    found = statistics([{"name": ["a", "b"], "flag": np.array([True, False]), "text": np.array(["x"])}])
    assert found["name"].as_dict() == {"kinds": {"list of 2": 1}}
    assert found["flag"].mean == 0.5
    assert "mean" not in found["text"].as_dict()
    assert len(list(statistics_lines(found))) == 4


def test_tensors_too() -> None:
    torch = pytest.importorskip("torch")
    assert statistics([[torch.ones(3, dtype=torch.bfloat16)]])["0"].mean == 1


@pytest.mark.parametrize(
    ("images", "kind"),
    [
        (np.zeros((2, 8, 9, 3), "u1"), "0.png"),
        (np.zeros((2, 3, 8, 9), "f4"), "0.png"),
        (np.random.default_rng(0).normal(size=(2, 8, 9)), "0.png"),
        (np.zeros((2, 8)), "0"),
        (np.zeros((2, 2, 2, 3)), "0"),
    ],
)
def test_what_has_the_shape_of_an_image_is_shown_as_one(images, kind: str) -> None:
    samples = list(samples_of((images, ["a", "b"]), 3))
    assert [sample["__key__"] for sample in samples] == ["batch 3, sample 0", "batch 3, sample 1"]
    assert set(samples[0]) == {"__key__", kind, "1"}
    if kind == "0.png":
        assert samples[0][kind].startswith(b"\x89PNG")


def test_the_key_of_a_sample_is_shown_with_its_place() -> None:
    [sample] = samples_of({"__key__": ["a"], "text": ["b"]}, 0)
    assert sample == {"__key__": "batch 0, sample 0: a", "text": b"b"}


def test_a_batch_of_one_field() -> None:
    assert list(fields_of(np.zeros(3))) == ["0"]
    assert list(samples_of({"a": 3}, 0)) == []
