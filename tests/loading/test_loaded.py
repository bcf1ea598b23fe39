"""How a loader is run: its workers, and the stages after it."""

from __future__ import annotations

from typing import Any

import pytest

import webdataset as wds
from webdataset.loading.loaded import LoadedRunner, may_hold
from webdataset.loading.workers import ProcessWorkers, ThreadWorkers, UntrackedWorkers


def loader(dataset: Any, **options: Any) -> Any:
    return wds.WebLoader(dataset, **{"batch_size": None, **options})


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, ProcessWorkers),
        ({"workers": "thread"}, ThreadWorkers),
        ({"batch_size": 2}, UntrackedWorkers),
    ],
)
def test_the_workers_follow_from_the_arguments(options: dict[str, Any], kind: type) -> None:
    runner = loader(wds.FluidWrapper(range(4)), **options).runner
    assert isinstance(runner, LoadedRunner)
    assert type(runner.workers) is kind


def test_copies_and_compositions_share_the_workers() -> None:
    one = loader(wds.FluidWrapper(range(4)), workers="thread")
    assert one.map(str).runner.workers is one.runner.workers
    assert one.pipeline[0] is one.runner.workers.loader


def test_a_loader_is_a_pipeline_whose_first_stage_is_the_loader() -> None:
    one = loader(wds.FluidWrapper(range(4)), workers="thread").map(str).listed(3)
    assert isinstance(one, wds.DataPipeline)
    assert list(one) == [["0", "1", "2"], ["3"]]
    assert may_hold(one.pipeline[1:]) is one.pipeline[2]


def test_a_loader_of_something_else_has_no_state() -> None:
    one = loader([1, 2, 3], batch_size=2, workers="thread")
    with pytest.raises(wds.StateError, match="the state of this loader cannot be saved"):
        one.state_dict()
    with pytest.raises(wds.StateError, match="cannot be loaded into this loader"):
        one.load_state_dict({})


@pytest.mark.parametrize("exact", [False, True])
def test_what_a_program_puts_in_the_place_of_the_loader_is_read_as_it_is(make_shards: Any, exact: bool) -> None:
    dataset = wds.WebDataset(make_shards(1, samples=3), exact=exact)
    mocked = loader(dataset, num_workers=1).test(mock=True, mock_sample="a", mock_length=2)
    assert list(mocked) == ["a", "a"]
