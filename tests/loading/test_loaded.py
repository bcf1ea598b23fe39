"""How a loader is run: its workers, and the stages after it."""

from __future__ import annotations

from typing import Any

import pytest

import webdataset as wds


def loader(dataset: Any, **options: Any) -> Any:
    return wds.WebLoader(dataset, **{"batch_size": None, **options})


def test_a_loader_is_a_pipeline_whose_first_stage_is_the_loader() -> None:
    one = loader(wds.FluidWrapper(range(4)), workers="thread").map(str).listed(3)
    assert isinstance(one, wds.DataPipeline)
    assert list(one) == [["0", "1", "2"], ["3"]]
    with pytest.raises(wds.StateError, match="listed"):
        one.state_dict()


def test_a_loader_of_something_else_has_no_state() -> None:
    one = loader([1, 2, 3], batch_size=2, workers="thread")
    with pytest.raises(wds.StateError):
        one.state_dict()
    with pytest.raises(wds.StateError):
        one.load_state_dict({})


@pytest.mark.parametrize("exact", [False, True])
def test_what_a_program_puts_in_the_place_of_the_loader_is_read_as_it_is(make_shards: Any, exact: bool) -> None:
    dataset = wds.WebDataset(make_shards(1, samples=3), exact=exact)
    mocked = loader(dataset, num_workers=1).test(mock=True, mock_sample="a", mock_length=2)
    assert list(mocked) == ["a", "a"]
