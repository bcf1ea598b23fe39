import pickle
from itertools import islice

import pytest

from webdataset.extradatasets import ChoppedDataset, MockDataset, ResizedDataset, repeatedly, with_epoch, with_length


def test_a_mock_dataset_gives_its_sample_so_many_times():
    dataset = MockDataset({"a": 1}, 3)
    assert list(dataset) == list(dataset) == [{"a": 1}] * 3
    assert list(MockDataset("x", 0)) == []


def test_changing_a_mock_sample_does_not_change_the_next():
    for sample in MockDataset({"a": 1}, 3):
        assert sample == {"a": 1}
        sample.clear()


def test_with_epoch_repeats_and_cuts():
    assert list(with_epoch([1, 2, 3], 5)) == [1, 2, 3, 1, 2]
    assert list(with_epoch([1, 2, 3], 2)) == [1, 2]
    assert len(with_epoch([1, 2, 3], 5)) == 5


def test_every_epoch_starts_from_the_beginning():
    dataset = with_epoch([1, 2, 3], 2)
    assert list(dataset) == list(dataset) == [1, 2]


def test_an_empty_dataset_makes_empty_epochs():
    assert list(with_epoch([], 5)) == []
    assert list(repeatedly([])) == []


def test_with_length_only_says_a_length():
    dataset = with_length([1, 2, 3], 5)
    assert (list(dataset), len(dataset)) == ([1, 2, 3], 5)
    assert list(dataset.run(iter("ab"))) == ["a", "b"]


def test_repeatedly_repeats():
    assert list(repeatedly([1, 2], nepochs=2)) == [1, 2, 1, 2]
    assert list(repeatedly([1, 2], nbatches=5)) == [1, 2, 1, 2, 1]
    assert list(repeatedly([1, 2], nepochs=1, nbatches=5)) == [1, 2]
    assert list(islice(repeatedly([1, 2]), 5)) == [1, 2, 1, 2, 1]
    assert list(repeatedly([1, 2], 2).invoke("ab")) == ["a", "b", "a", "b"]


def test_repeatedly_has_a_length_if_told():
    assert len(repeatedly([1], length=9)) == 9
    with pytest.raises(TypeError, match="length="):
        len(repeatedly([1]))


def test_resized_datasets_have_an_actual_and_a_nominal_length():
    dataset = ResizedDataset([1, 2, 3], 4, nominal=2)
    assert (list(dataset), len(dataset)) == ([1, 2, 3, 1], 2)
    assert len(ChoppedDataset([1, 2, 3], 4)) == 4


def test_the_source_is_closed_when_an_epoch_is_cut():
    closed = []

    class Dataset:
        def __iter__(self):
            try:
                yield from "abc"
            finally:
                closed.append(True)

    assert list(with_epoch(Dataset(), 4)) == ["a", "b", "c", "a"]
    assert closed == [True, True]


@pytest.mark.parametrize(
    "dataset", [MockDataset({"a": 1}, 3), with_epoch([1], 2), with_length([1], 2), repeatedly([1], 2)]
)
def test_they_pickle(dataset):
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)
