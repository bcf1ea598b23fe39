"""States of streamed and exact datasets in loaders with worker processes: torch's DataLoader and torchdata's."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import webdataset as wds
from tests_support import numbered, numbered_shards, tar_bytes

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than processors

SIZES = (7, 11, 2, 5, 3, 4)


@pytest.fixture(scope="session")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered_shards(tmp_path_factory.mktemp("shards"), SIZES)


def key(sample: dict[str, Any]) -> int:
    return int(sample["__key__"])


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def loader_of(dataset: Any, workers: int, *, persistent: bool = False) -> Any:
    return wds.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent, collate_fn=list)


def streamed(urls: list[str]) -> Any:
    return wds.WebDataset(urls, shardshuffle=3).shuffle(4).map(key).listed(2)


def of_fixed_size(urls: list[str]) -> Any:
    return streamed(urls).with_epoch(6)


def mixed(urls: list[str]) -> Any:
    return wds.FluidWrapper(wds.RandomMix([streamed(urls[:3]), streamed(urls[3:])], longest=True))


@pytest.mark.parametrize("make", [streamed, of_fixed_size, mixed])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_loader_goes_on_with_the_worker_whose_turn_it_is(
    urls: list[str], make: Callable[[list[str]], Any], workers: int, persistent: bool
) -> None:
    loader = loader_of(make(urls), workers, persistent=persistent)
    states, given = [(0, 0, plain(loader.state_dict()))], []
    for epoch in range(2):
        items: list[Any] = []
        for item in loader:
            items.append(item)
            states.append((epoch, len(items), plain(loader.state_dict())))
        states.append((epoch + 1, 0, plain(loader.state_dict())))
        given.append(items)
    for epoch, count, state in states[:: 1 if workers == 0 else 13]:
        resumed = loader_of(make(urls), workers, persistent=persistent)
        resumed.load_state_dict(state)
        assert plain(resumed.state_dict()) == state
        rest = [list(resumed) for _ in range(epoch, 2)]
        assert rest == [given[epoch][count:], *given[epoch + 1 :]] if epoch < 2 else rest == []


def test_a_loader_with_another_number_of_workers_is_refused(urls: list[str]) -> None:
    state = loader_of(streamed(urls), 2).state_dict()
    with pytest.raises(wds.StateError, match="2 workers"):
        loader_of(streamed(urls), 3).load_state_dict(state)


def test_the_state_of_eight_workers_with_large_buffers_is_small(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(numbered(500)))
    dataset = wds.WebDataset([f"{path}"] * 400, shardshuffle=100).shuffle(10_000).map(key).listed(64)
    loader = loader_of(dataset, 8)
    for _ in islice(loader, 1600):
        pass
    assert len(json.dumps(loader.state_dict())) < 64_000


def seeded(urls: list[str]) -> Any:
    return wds.WebDataset(urls, shardshuffle=3, seed=1).shuffle(4, seed=2).map(key).listed(2)


def seeded_of_fixed_size(urls: list[str]) -> Any:
    return seeded(urls).with_epoch(6)


def exact(urls: list[str]) -> Any:
    return wds.WebDataset(urls, exact=True, seed=1).map(key).listed(2)


def exact_of_fixed_size(urls: list[str]) -> Any:
    return exact(urls).with_epoch(6)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # of torch, in torchdata
@pytest.mark.parametrize("make", [seeded, seeded_of_fixed_size, exact, exact_of_fixed_size])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_torchdatas_loader_goes_on_at_every_batch(
    urls: list[str], make: Callable[[list[str]], Any], workers: int, persistent: bool
) -> None:
    def loader() -> Any:
        return StatefulDataLoader(
            make(urls), batch_size=None, num_workers=workers, persistent_workers=persistent, collate_fn=list
        )

    first = loader()
    items, states = [], []
    for item in first:
        items.append(item)
        states.append(first.state_dict())
    assert len(items) > 5
    end, second = first.state_dict(), list(first)
    for count, state in [*list(enumerate(states, 1))[:: 1 if workers == 0 else 11], (len(items) - 1, states[-2])]:
        resumed = loader()
        resumed.load_state_dict(state)
        assert list(resumed) == items[count:], count
        assert list(resumed) == second
    resumed = loader()
    resumed.load_state_dict(end)
    assert list(resumed) == second


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_chooses_the_order_of_a_streamed_dataset_in_all_workers(urls: list[str], workers: int) -> None:
    loader = wds.WebLoader(seeded(urls), batch_size=None, num_workers=workers)
    orders = [list(loader) for _ in range(3)]
    assert len({str(order) for order in orders}) == 3
    for epoch in (2, 0, 1):
        assert list(loader.set_epoch(epoch)) == orders[epoch]


def test_set_epoch_keeps_a_state_of_that_epoch_and_drops_any_other(urls: list[str]) -> None:
    loader = wds.WebLoader(seeded(urls), batch_size=None, num_workers=2)
    orders = [list(loader) for _ in range(2)]
    run = iter(loader.set_epoch(1))
    next(run)
    state = plain(loader.state_dict())
    resumed = wds.WebLoader(seeded(urls), batch_size=None, num_workers=2)
    resumed.load_state_dict(state)
    assert list(resumed.set_epoch(1)) == orders[1][1:]
    resumed.load_state_dict(state)
    assert list(resumed.set_epoch(0)) == orders[0]
