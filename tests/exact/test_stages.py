"""What stages are in exact epochs: selections, batches made again, mixtures."""

from __future__ import annotations

from collections import Counter

import pytest

import webdataset as wds
from exact_support import batched, exact, few, flat, keys, urls

pytestmark = pytest.mark.usefixtures("own_cache")


def test_a_selection_comes_once_and_every_rank_has_as_many_batches(folder):
    lengths, found = set(), []
    for rank in range(2):
        dataset = batched(exact(folder, rank=rank, world_size=2).select(few), 3)
        batches = keys(dataset)
        lengths.add(len(batches))
        found += flat(batches)
        assert len(batches) == len(dataset)
    assert len(lengths) == 1
    wanted = {sample["__key__"] for sample in wds.WebDataset(urls(folder)) if few(sample)}
    assert set(found) == wanted


def test_random_samples_are_the_same_for_every_topology_and_others_in_the_next_epoch(folder):
    def found(epoch=0, **options):
        return {sample["__key__"] for sample in exact(folder, "one", **options).rsample(0.5, seed=3).set_epoch(epoch)}

    alone = found()
    assert 4 < len(alone) < 19
    assert found(rank=0, world_size=2) | found(rank=1, world_size=2) == alone
    assert found(epoch=1) != alone


def test_a_selection_that_leaves_nothing_is_an_error(folder):
    with pytest.raises(wds.EmptyDatasetError, match="sample"):
        list(batched(exact(folder).select(lambda sample: False), 3))


def test_unbatched_and_batched_again(folder):
    dataset = batched(exact(folder), 4).unbatched()
    assert len(dataset) == 20
    assert len(list(dataset)) == 20
    again = dataset.batched(6)
    assert len(again) == len(list(again)) == 4


def test_a_mixture_of_exact_datasets_is_exact(folder):
    def mixture(rank=0, world=1):
        datasets = [exact(folder, name, rank=rank, world_size=world) for name in ("uneven", "equal")]
        return wds.DataPipeline(
            wds.RandomMix(datasets, [0.7, 0.3], longest=True, seed=5), wds.to_tuple("__key__"), wds.batched(4)
        )

    alone = keys(mixture())
    assert len(alone) == len(mixture()) == 10
    assert Counter(Counter(flat(alone)).values()) == {1: 38}
    both = [keys(mixture(rank, 2)) for rank in range(2)]
    assert Counter(Counter(flat(both[0] + both[1])).values()) == {1: 38}
    loader = wds.WebLoader(mixture(), batch_size=None, num_workers=2)
    assert keys(loader) == alone


def test_the_stages_of_mixed_datasets_keep_to_the_plan(folder):
    def mixture():
        datasets = [exact(folder, name).shuffle(100).rsample(0.8, seed=2) for name in ("uneven", "equal")]
        return [sample["__key__"] for sample in wds.RandomMix(datasets, longest=True, seed=1)]

    assert mixture() == mixture()
    with pytest.raises(ValueError, match="mixture"):
        list(wds.RandomMix([exact(folder).batched(3), exact(folder).batched(3)]))


def test_a_mixture_by_turns(folder):
    datasets = [exact(folder, name) for name in ("uneven", "equal")]
    found = [sample["__key__"][:2] for sample in wds.RoundRobin(datasets)]
    assert Counter(found) == {"un": 18, "eq": 18}


def test_a_mixture_of_a_fixed_size(folder):
    mix = wds.RandomMix([exact(folder, "uneven"), exact(folder, "equal")], [3, 1], samples=80)
    dataset = wds.DataPipeline(mix)
    assert len(dataset) == 80
    assert Counter(sample["__key__"][:2] for sample in dataset) == {"un": 60, "eq": 20}


def test_exact_and_streamed_datasets_do_not_mix(folder):
    with pytest.raises(ValueError, match="exact"):
        list(wds.RandomMix([exact(folder), wds.WebDataset(urls(folder))]))


def test_what_needs_the_whole_stream_is_refused(folder):
    with pytest.raises(ValueError, match="slice"):
        list(exact(folder).slice(3))
    with pytest.raises(ValueError, match="shuffle_bytes"):
        list(exact(folder, shuffle_bytes=0).shuffle(10))
    assert len(list(exact(folder).shuffle(10))) == 20


def test_length_is_known_with_an_index_only(folder):
    assert len(exact(folder)) == 20
    assert len(exact(folder).batched(3)) == 7
    assert len(exact(folder, remainder="drop").batched(3, partial=False)) == 6
    with pytest.raises(TypeError):
        len(wds.WebDataset(urls(folder)))
