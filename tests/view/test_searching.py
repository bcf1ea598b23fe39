"""Searching goes on from where it ended, and ends in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servers.nginx import Nginx
from webdataset.indices.making import catalogue_of
from webdataset.view.samples import CataloguedSamples, SampleList, StreamedSamples
from webdataset.view.searching import search

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(params=["indexed", "streamed"])
def samples(request: pytest.FixtureRequest, make_shards: Callable[..., list[str]]) -> Iterator[SampleList]:
    shards = make_shards(2, samples=10)
    indexed = request.param == "indexed"
    found: SampleList = CataloguedSamples(catalogue_of(shards)) if indexed else StreamedSamples(shards)
    yield found
    found.close()


def test_nothing_in_particular_is_everything(samples: SampleList) -> None:
    found = search(samples, "", start=5, most=4)
    assert (found.numbers, found.next, found.is_end) == ([5, 6, 7, 8], 9, False)
    last = search(samples, "", start=18, most=4)
    assert (last.numbers, last.is_end) == ([18, 19], True)


def test_a_part_of_a_key(samples: SampleList) -> None:
    assert search(samples, " 00001 ", start=0, most=100).numbers == [1, *range(10, 20)]


def test_a_search_goes_on_from_where_it_ended(samples: SampleList) -> None:
    found, start = [], 0
    while start is not None:
        page = search(samples, "cls % 3 == 0", start=start, most=2)
        found += page.numbers
        start = page.as_dict()["next"]
    assert found == [0, 3, 6, 9, 12, 15, 18]


def test_a_search_without_time_looks_at_one_sample_at_least(samples: SampleList) -> None:
    page = search(samples, "cls == 19", start=0, most=1, seconds=0)
    assert (page.numbers, page.next, page.is_end) == ([], 1, False)


def test_samples_that_cannot_be_decided_are_counted(samples: SampleList) -> None:
    page = search(samples, "txt > 3", start=0, most=5)
    assert (page.numbers, page.failed, page.is_end) == ([], 20, True)
    assert "TypeError" in page.why


def test_conditions_about_the_key_and_the_shard(samples: SampleList) -> None:
    assert search(samples, "key == '000004'", start=0, most=5).numbers == [4]
    assert search(samples, "shard.endswith('1.tar')", start=0, most=2).numbers == [10, 11]


def test_samples_of_a_server_are_looked_at_side_by_side(
    nginx: Nginx, make_shard: Callable[..., str], no_thread_is_left: None
) -> None:
    samples = CataloguedSamples(catalogue_of([nginx.put("searched.tar", Path(make_shard(samples=100)).read_bytes())]))
    assert samples.threads > 1
    assert search(samples, "cls % 7 == 3", start=0, most=5).numbers == [3, 10, 17, 24, 31]
    last = search(samples, "cls % 7 == 3", start=90, most=50, seconds=60)
    assert (last.numbers, last.is_end) == ([94], True)
    samples.close()
