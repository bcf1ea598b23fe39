"""Problems, each at its sample."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from waiting import soon
from webdataset.indices.making import catalogue_of
from webdataset.view.problems import Problems
from webdataset.view.samples import CataloguedSamples

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def checked() -> Callable[..., Problems]:
    def check(urls: list[str]) -> Problems:
        problems = Problems(urls)
        problems.job.start()
        assert soon(lambda: problems.job.state in ("done", "failed"))
        return problems

    return check


def test_problems_know_their_samples(make_shard: Callable[..., str], checked: Callable[..., Problems]) -> None:
    files = [("a.txt", b"x"), ("b.txt", b""), ("a.txt", b"y"), ("c.png", b"no image")]
    shard = make_shard(files=files)
    problems = checked([shard])
    assert {finding["problem"] for finding in problems.of(shard, "b")} == {"empty-field"}
    assert problems.number_of(shard, "c") == 2
    assert problems.by_shard[shard] == problems.counts.total() >= 3
    samples = CataloguedSamples(catalogue_of([shard]))
    rows = problems.as_dict(samples)["findings"]
    assert {row["key"]: row["number"] for row in rows if "number" in row}["b"] == 1
    samples.close()


def test_none_are_found_where_there_are_none(make_shard: Callable[..., str], checked: Callable[..., Problems]) -> None:
    found = checked([make_shard(samples=5)]).as_dict(None)
    assert (found["state"], found["done"], found["kinds"], found["findings"]) == ("done", 1, [], [])


def test_a_shard_that_is_not_there_is_a_problem(checked: Callable[..., Problems]) -> None:
    assert checked(["/nowhere/a.tar"]).counts == {"unreadable": 1}


def test_markup_in_names_stays_text(make_shard: Callable[..., str], checked: Callable[..., Problems]) -> None:
    problems = checked([make_shard(files=[("<b>\x1b.txt", b"")])])
    [finding] = problems.as_dict(None)["findings"]
    assert finding["key"] == "<b>\\033"
