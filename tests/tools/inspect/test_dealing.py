"""What is simulated is what ranks and workers really get."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from webdataset.tools.inspect.dealing import exact_deal, imagined_shards, lines, plot, streamed_deal


def imagined(*samples: int) -> Any:
    return imagined_shards([f"{n}.tar" for n in range(len(samples))], samples)


@pytest.mark.parametrize(("ranks", "workers"), [(1, 1), (2, 2), (3, 1)])
def test_streams_get_what_was_said(
    make_shard: Callable[..., str], monkeypatch: pytest.MonkeyPatch, ranks: int, workers: int
) -> None:
    shards = [make_shard(f"{n}.tar", samples=n + 1) for n in range(7)]
    deal = streamed_deal(wds.index(shards), ranks=ranks, workers=workers, batch=3)
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    monkeypatch.setenv("NUM_WORKERS", str(workers))
    for part in deal.parts:
        monkeypatch.setenv("RANK", str(part.rank))
        monkeypatch.setenv("WORKER", str(part.worker))
        dataset = wds.WebDataset(shards, shardshuffle=100, nodesplitter=wds.split_by_node, seed=1)
        urls = Counter(sample["__url__"] for sample in dataset)
        assert (part.shards, part.samples) == (len(urls), urls.total())
        assert part.batches == len(list(dataset.to_tuple("__key__").batched(3)))


@pytest.mark.parametrize("remainder", ["pad", "drop", "uneven"])
def test_exact_epochs_get_what_was_said(make_shard: Callable[..., str], remainder: str) -> None:
    shards = [make_shard(f"{n}.tar", samples=n) for n in (7, 11, 2)]
    deal = exact_deal(wds.index(shards), ranks=3, workers=1, batch=2, remainder=remainder)
    for part in deal.of_ranks():
        place: dict[str, Any] = {"rank": part.rank, "world_size": 3, "remainder": remainder}
        dataset = wds.WebDataset(shards, exact=True, **place).to_tuple("__key__").batched(2)
        sizes = [len(keys) for (keys,) in dataset]
        assert (part.samples, part.batches) == (sum(sizes), len(sizes))
    assert deal.is_equal


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_every_sample_is_dealt_once_and_exact_ranks_are_equal(
    samples: list[int], ranks: int, workers: int, batch: int
) -> None:
    shards = imagined(*samples)
    streamed = streamed_deal(shards, ranks=ranks, workers=workers, batch=batch)
    assert sum(part.samples for part in streamed.parts) == sum(samples)
    assert sum(part.shards for part in streamed.of_ranks()) == len(samples)
    exact = exact_deal(shards, ranks=ranks, workers=workers, batch=batch)
    assert exact.is_equal
    assert sum(samples) <= sum(part.samples for part in exact.parts) < sum(samples) + ranks


def test_ten_shards_for_nine_workers_are_not_equal() -> None:
    deal = streamed_deal(imagined(*[90] * 10), ranks=3, workers=3, batch=9)
    assert deal.batches == (30, 40)
    assert not deal.is_equal
    (told,) = [line for line in lines(deal) if "NOT equal" in line]
    assert re.findall(r"\d+", told) == ["30", "40", "31"]


def test_full_batches_only_leaves_out_what_fills_none() -> None:
    deal = streamed_deal(imagined(10, 10), ranks=2, workers=1, batch=4, partial=False)
    assert [part.batches for part in deal.parts] == [2, 2]


def test_workers_without_a_shard_are_named() -> None:
    deal = streamed_deal(imagined(5, 5), ranks=2, workers=2)
    assert [(part.rank, part.worker) for part in deal.idle] == [(0, 1), (1, 1)]
    assert "rank 0 worker 1 and 1 more" in list(lines(deal))[-1]


def test_many_workers_are_shown_rank_by_rank() -> None:
    shown = list(lines(streamed_deal(imagined(*[5] * 64), ranks=16, workers=4)))
    assert len(shown) == 17
    assert shown[0].split() == ["rank", "0", "4", "shards", "20", "samples", "20", "batches", "#" * 30]


def test_very_many_ranks_are_cut_short() -> None:
    shown = list(lines(streamed_deal(imagined(*[5] * 100), ranks=100, workers=1)))
    assert sum("68 more" in line for line in shown) == 1
    assert shown[-2].startswith("  rank 99 ")


def test_a_plot_is_an_image(tmp_path: Any) -> None:
    shards = imagined(5, 5, 5)
    deals = {"streamed": streamed_deal(shards, ranks=2, workers=2), "exact": exact_deal(shards, ranks=2, workers=2)}
    plot(deals, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
