"""Batches by length: on every rank the same bucket in the same step, every sample once."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webdataset as wds
from tests_support import tar_bytes
from webdataset.epochs.buckets import Bucketing, BucketShare
from webdataset.epochs.numbers import random_bits, spread


def lengths(positions):
    return (random_bits(7, positions) % 300).astype("int64")


def shares(total, world, bucketing, remainder="pad", start=0):
    return [
        BucketShare(
            total,
            spread(8),
            bucketing=bucketing,
            lengths=lengths,
            seed=1,
            rank=rank,
            world=world,
            start=start,
            remainder=remainder,
        )
        for rank in range(world)
    ]


BUCKETINGS = st.builds(
    Bucketing,
    st.just("txt"),
    st.sampled_from([(50, 100, 200), (150,), ()]),
    st.integers(1, 9),
    st.sampled_from([None, 300, 2000]),
    among=st.sampled_from([1, 10, 64, 8192]),
    scale=st.just(1.0),
)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(1, 5), BUCKETINGS, st.sampled_from(["pad", "drop", "uneven"]))
def test_every_rank_takes_as_many_steps_and_every_sample_comes_once(total, world, bucketing, remainder):
    everyone = shares(total, world, bucketing, remainder)
    assert len({share.steps for share in everyone}) == 1
    sizes = [[len(share.positions(step)) for step in range(share.steps)] for share in everyone]
    assert all(row == sizes[0] for row in sizes)
    taken = Counter(p for share in everyone for step in range(share.steps) for p in share.positions(step).tolist())
    real = [position for position in taken if position < total]
    assert max(taken.values(), default=1) == 1 or remainder != "drop"
    assert len(real) == total - everyone[0].dropped
    if remainder != "drop":
        assert sorted(real) == list(range(total))
    for share in everyone:
        for step in range(share.steps):
            inside = share.positions(step)
            inside = inside[inside < total]
            assert share.steps_of(inside).tolist() == [step] * len(inside)


@given(st.integers(100, 400), st.integers(1, 4))
def test_a_batch_holds_no_more_than_its_tokens(total, world):
    for share in shares(total, world, Bucketing("txt", max_tokens=1000)):
        for step in range(share.steps):
            sizes = lengths(share.positions(step) % total)
            assert len(sizes) == 1 or sizes.max() * len(sizes) <= 1000


def test_all_ranks_are_in_the_same_bucket():
    everyone = shares(4000, 4, Bucketing("txt", (50, 100, 200), 16))
    mixed = 0
    for step in range(everyone[0].steps):
        buckets = {
            int(sum(n >= border for border in (50, 100, 200)))
            for share in everyone
            for n in lengths(share.positions(step) % 4000)
        }
        mixed += len(buckets) > 1
    assert mixed <= 4  # what was left over in the end


@pytest.fixture
def paths(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    found = []
    for shard in range(3):
        found.append(str(tmp_path / f"{shard}.tar"))
        with open(found[-1], "wb") as file:
            file.write(tar_bytes([(f"{shard}-{i:03d}.txt", b"x" * (1 + 37 * i % 90)) for i in range(40)]))
    return found


def make(paths, rank=0, world=1, size=4, **options):
    dataset = wds.WebDataset(paths, exact=True, seed=3, lanes=8, rank=rank, world_size=world)
    return dataset.bucketed("txt", [30, 60], batchsize=size, collation_fn=None, **options)


def keys(batches):
    return [[sample["__key__"] for sample in batch] for batch in batches]


def test_batches_of_an_exact_epoch_are_of_one_bucket(paths):
    dataset = make(paths)
    batches = list(dataset)
    assert len(batches) == len(dataset) == 30
    assert Counter(Counter(s["__key__"] for batch in batches for s in batch).values()) == {1: 120}
    spread_out = [{sum(len(s["txt"]) >= border for border in (30, 60)) for s in batch} for batch in batches]
    assert sum(len(buckets) > 1 for buckets in spread_out) <= 3
    # what would be padded, against batches in the order of the epoch
    waste = sum(len(batch) * max(len(s["txt"]) for s in batch) for batch in batches)
    assert waste < 1.5 * sum(len(s["txt"]) for batch in batches for s in batch)


def test_ranks_and_workers_share_the_batches(paths):
    whole = [sorted(batch) for batch in keys(make(paths, size=8))]
    ranks = [keys(wds.WebLoader(make(paths, rank, 2, 4), batch_size=None, num_workers=rank)) for rank in range(2)]
    assert [sorted(a + b) for a, b in zip(*ranks, strict=True)] == whole


def test_batches_by_length_resume_at_every_step(paths):
    whole = keys(make(paths))
    for stop in range(0, len(whole), 3):
        dataset = make(paths)
        run = iter(dataset)
        seen = [[s["__key__"] for s in next(run)] for _ in range(stop)]
        again = make(paths)
        again.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        assert seen + keys(again) == whole


def test_batches_by_length_resume_on_other_ranks_with_the_same_global_batch(paths):
    whole = [sorted(batch) for batch in keys(make(paths, size=8))]
    dataset = make(paths, size=8)
    run = iter(dataset)
    seen = [sorted(s["__key__"] for s in next(run)) for _ in range(5)]
    state = dataset.state_dict()
    ranks = []
    for rank in range(2):
        other = make(paths, rank, 2, 4)
        other.load_state_dict(state)
        ranks.append(keys(other))
    assert seen + [sorted(a + b) for a, b in zip(*ranks, strict=True)] == whole
    with pytest.raises(wds.StateError, match="3"):
        make(paths, 0, 3, 4).load_state_dict(state)


def test_wrong_buckets_are_named(paths):
    dataset = wds.WebDataset(paths, exact=True)
    with pytest.raises(ValueError, match="name"):
        list(dataset.bucketed(lambda sample: 1, [3]))
    with pytest.raises(wds.SampleError) as raised:
        list(dataset.bucketed("json", [3]))
    assert raised.value.field == "json"
    with pytest.raises(ValueError, match="boundaries"):
        list(dataset.bucketed("txt"))
    with pytest.raises(ValueError, match="batches"):
        list(dataset.bucketed("txt", [3]).batched(3))
    with pytest.raises(ValueError, match="ascend"):
        list(dataset.bucketed("txt", [3, 2]))


def test_streamed_samples_are_bucketed_too(paths):
    batches = list(wds.WebDataset(paths).bucketed(lambda s: len(s["txt"]), [30, 60], batchsize=4, collation_fn=None))
    assert Counter(Counter(s["__key__"] for batch in batches for s in batch).values()) == {1: 120}
    few = list(wds.WebDataset(paths).bucketed("txt", max_tokens=300, among=50, collation_fn=None))
    assert all(len(batch) == 1 or len(batch) * max(len(s["txt"]) for s in batch) <= 300 for batch in few)
    assert sum(map(len, few)) == 120
