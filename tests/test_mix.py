import pickle
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from webdataset.mix import RandomMix, RoundRobin, random_samples, round_robin_longest, round_robin_shortest

sources = st.lists(st.lists(st.integers(), max_size=6), max_size=5)


def test_round_robin_stops_with_the_first_that_ends():
    assert list(RoundRobin([[1, 2, 3], "ab"])) == [1, "a", 2, "b", 3]
    assert list(RoundRobin([[1, 2, 3], "ab", []])) == [1, "a"]
    assert list(RoundRobin([])) == []


def test_round_robin_longest_goes_on_with_the_rest():
    assert list(RoundRobin([[1, 2, 3], "ab", []], longest=True)) == [1, "a", 2, "b", 3]
    assert list(RoundRobin([], longest=True)) == []


def test_the_functions_take_iterators_and_lists():
    assert list(round_robin_shortest(iter([1, 2]), "abc")) == [1, "a", 2, "b"]
    assert list(round_robin_longest(iter([1, 2]), "abc")) == [1, "a", 2, "b", "c"]
    assert list(random_samples([iter([1, 2]), "abc"], [1, 0])) == [1, 2]


@given(sources, st.booleans())
def test_longest_mixes_deliver_everything_in_each_ones_order(lists, robin):
    tagged = [[(n, x) for x in items] for n, items in enumerate(lists)]
    mixed = list(RoundRobin(tagged, longest=True) if robin else RandomMix(tagged, longest=True))
    assert [[item for item in mixed if item[0] == n] for n in range(len(tagged))] == tagged


@given(sources, st.integers())
def test_shortest_mixes_end_when_one_is_asked_for_more_than_it_has(lists, seed):
    tagged = [[(n, x) for x in items] for n, items in enumerate(lists)]
    mixed = list(RandomMix(tagged, seed=seed))
    parts = [[item for item in mixed if item[0] == n] for n in range(len(tagged))]
    assert parts == [items[: len(part)] for items, part in zip(tagged, parts, strict=True)]
    assert not tagged or any(items == part for items, part in zip(tagged, parts, strict=True))


def endless(name):
    while True:
        yield name


def within_three_sigma(counts, shares, total):
    return all(abs(counts[n] - p * total) <= 3 * (total * p * (1 - p)) ** 0.5 for n, p in shares.items())


def test_realised_shares_are_within_three_sigma_of_the_weights():
    mix = RandomMix([endless("a"), endless("b"), endless("c")], probs=[7, 2, 1], seed=1)
    counts = Counter(item for item, _ in zip(mix, range(20_000), strict=False))
    assert within_three_sigma(counts, {"a": 0.7, "b": 0.2, "c": 0.1}, 20_000)


def test_the_weights_of_the_rest_are_renormalised_when_one_ends():
    mix = RandomMix([[], endless("b"), endless("c")], probs=[0.7, 0.2, 0.1], longest=True, seed=2)
    counts = Counter(item for item, _ in zip(mix, range(20_000), strict=False))
    assert within_three_sigma(counts, {"b": 2 / 3, "c": 1 / 3}, 20_000)


def test_without_weights_all_are_equally_likely():
    mix = RandomMix([endless("a"), endless("b")], seed=3)
    counts = Counter(item for item, _ in zip(mix, range(10_000), strict=False))
    assert within_three_sigma(counts, {"a": 0.5, "b": 0.5}, 10_000)


def test_a_weight_of_zero_means_never():
    assert list(RandomMix([[1, 2, 3], "ab"], probs=[5, 0], longest=True)) == [1, 2, 3]


def test_the_same_seed_mixes_alike_and_each_worker_has_its_own(monkeypatch):
    datasets = [["a"] * 50, ["b"] * 50]
    mix = RandomMix(datasets, longest=True, seed=5)
    once = list(mix)
    assert once == list(mix) == list(RandomMix(datasets, longest=True, seed=5))
    monkeypatch.setenv("WORKER", "1")
    monkeypatch.setenv("NUM_WORKERS", "2")
    assert list(mix) != once


def test_without_a_seed_every_pass_differs():
    mix = RandomMix([["a"] * 100, ["b"] * 100], longest=True)
    assert list(mix) != list(mix)


def test_a_generator_of_random_numbers_may_be_given():
    first, second = (list(random_samples(["aaa", "bbb"], longest=True, rng=random.Random(1))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "probs",
    [[1], [1, -1], [0, 0], [1, float("nan")]],
)
def test_bad_weights_are_refused_at_once(probs):
    with pytest.raises(ValueError, match="probabilities"):
        RandomMix([[1], [2]], probs=probs)


@pytest.mark.parametrize("make", [RoundRobin, RandomMix])
@pytest.mark.parametrize("longest", [False, True])
def test_all_sources_are_closed_when_the_consumer_stops(make, longest):
    closed = []

    def source(name):
        try:
            while True:
                yield name
        finally:
            closed.append(name)

    sources = [source("a"), source("b")]
    for one in sources:
        next(one)
    results = iter(make(sources, longest=longest))
    next(results)
    results.close()
    assert closed == ["a", "b"]


def test_an_error_of_one_source_passes_and_closes_the_others():
    closed = []

    def good():
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    def bad():
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(RoundRobin([good(), bad()]))
    assert closed == [True]


def test_mixes_pickle():
    for mix in (RoundRobin([[1], [2]]), RandomMix([[1], [1]], probs=[1, 2], seed=1)):
        assert list(pickle.loads(pickle.dumps(mix))) == list(mix)


def test_mixtures_have_the_fluent_methods():
    mix = RandomMix([[1, 2], [3]], longest=True)
    assert sorted(mix.map(str)) == ["1", "2", "3"]
    assert len(list(mix.shuffle(10).batched(2, collation_fn=None))) == 2
    assert len(list(mix.with_epoch(7))) == 7
    assert len(list(RoundRobin([[1], [2]]).repeat(2))) == 4
    assert len(mix.with_length(3, silent=True)) == 3


def test_a_mixture_of_streams_has_no_length_and_says_so():
    with pytest.raises(TypeError, match="RandomMix"):
        len(RandomMix([[1]]))


def test_a_mixture_of_exact_datasets_has_a_length(make_shards):
    exact = [wds.WebDataset(make_shards(2, samples=3), exact=True) for _ in range(2)]
    mix = RandomMix(exact, longest=True)
    assert len(mix) == len(list(mix)) == 12
    assert len(mix.batched(4, collation_fn=None)) == 3


@pytest.mark.parametrize("exact", [False, True])
def test_a_pipeline_without_fluent_methods_says_what_has_them(make_shards, own_cache, exact):
    dataset = wds.WebDataset(make_shards(2, samples=3), **({"exact": True} if exact else {"shardshuffle": False}))
    for first in (dataset, wds.RandomMix([dataset, dataset], seed=1), wds.RoundRobin([dataset])):
        pipeline = wds.DataPipeline(first)
        with pytest.raises(AttributeError, match="batched"):
            pipeline.batched(4)
        assert not hasattr(pipeline, "shuffle")
        with pytest.raises(AttributeError, match="'DataPipeline' object"):
            _ = pipeline.nothing
        wrapped = wds.FluidWrapper(pipeline).to_tuple("__key__").batched(4)
        composed = pipeline.compose(wds.to_tuple("__key__"), wds.batched(4))
        assert [len(keys) for (keys,) in wrapped] == [len(keys) for (keys,) in composed]


def test_what_an_attribute_of_a_subclass_lacks_is_what_the_error_says():
    class Own(wds.DataPipeline):
        @property
        def labels(self):
            return self.classes

    with pytest.raises(AttributeError, match="classes"):
        _ = Own([1]).labels
    with pytest.raises(AttributeError, match="nothing"):
        _ = Own([1]).nothing
