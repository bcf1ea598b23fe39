from __future__ import annotations

import os
import pickle
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.base.context import PassContext
from webdataset.errors import EmptyDatasetError
from webdataset.shardlists import (
    PytorchShardList,
    ResampledShardList,
    ResampledShards,
    ShardList,
    ShardShuffle,
    SimpleShardList,
    all_urls,
    expand_source,
    expand_urls,
    non_empty,
    resampled,
    shard_shuffle,
    single_node_only,
    split_by_node,
    split_by_worker,
    worker_urls,
)

SIX = "s-{0..5}.tar"


def urls(shards):
    return [shard["url"] for shard in shards]


@pytest.fixture
def place(monkeypatch):
    def be(rank=0, world=1, worker=0, workers=1):
        names = {"RANK": rank, "WORLD_SIZE": world, "WORKER": worker, "NUM_WORKERS": workers}
        for name, value in names.items():
            monkeypatch.setenv(name, str(value))

    return be


def test_urls_expand_from_a_string_a_path_and_a_list():
    assert expand_urls("a-{0..1}::b") == ["a-0", "a-1", "b"]
    assert expand_urls(Path("a-{0..1}.tar")) == ["a-0.tar", "a-1.tar"]
    assert expand_urls(["a-{0..1}", Path("b"), "c::d"]) == ["a-0", "a-1", "b", "c", "d"]
    assert expand_urls(iter(["a", {"url": "b-{0..1}"}])) == ["a", "b-{0..1}"]


def test_commands_and_existing_files_in_a_list_stay_as_they_are(tmp_path):
    literal = tmp_path / "a-{0,1}[2].tar"
    literal.write_bytes(b"")
    command = "pipe:awk '{print $1,$2}' x"
    assert expand_urls([str(literal), literal, command]) == [str(literal), str(literal), command]
    assert expand_urls(["http://host/a?x=[1]", "http://host/a{1}{", "c:\\a.tar"]) == [
        "http://host/a?x=[1]",
        "http://host/a{1}{",
        "c:\\a.tar",
    ]


def test_globs_in_a_list_expand_and_must_match(tmp_path):
    for name in ("a-1.tar", "a-0.tar"):
        (tmp_path / name).write_bytes(b"")
    pattern = str(tmp_path / "a-*.tar")
    found = [str(tmp_path / "a-0.tar"), str(tmp_path / "a-1.tar")]
    assert expand_urls([pattern]) == found
    assert SimpleShardList([pattern]).urls == found
    assert ResampledShards([pattern]).urls == found
    with pytest.raises(FileNotFoundError, match=r"b-\*"):
        expand_urls([str(tmp_path / "b-*.tar")])


def test_a_source_is_cut_at_the_most_urls():
    assert expand_source("a-{0..2}") == ["a-0", "a-1", "a-2"]
    assert expand_source((f"{i}" for i in range(100)), 2) == ["0", "1"]
    with pytest.raises(ValueError, match="int"):
        expand_source(7)


def test_a_simple_list_yields_its_urls_in_order_every_time():
    shards = SimpleShardList("a-{0..1}::b")
    assert len(shards) == 3
    assert urls(shards) == urls(shards) == ["a-0", "a-1", "b"]


def test_a_seed_shuffles_the_same_way_every_time_and_everywhere():
    assert urls(SimpleShardList("a-{0..9}", seed=3)) == [f"a-{i}" for i in (1, 5, 6, 0, 9, 4, 7, 2, 8, 3)]


@pytest.mark.parametrize("make", [SimpleShardList, ResampledShards, ShardList, PytorchShardList])
def test_an_empty_list_is_an_error_at_once(make):
    with pytest.raises(IndexError, match="empty"):
        make([])
    with pytest.raises(EmptyDatasetError):
        make([])


@pytest.mark.parametrize("make", [SimpleShardList, ResampledShards, ShardList, PytorchShardList, ShardShuffle])
def test_lists_pickle(make):
    assert type(pickle.loads(pickle.dumps(make("a-{0..3}")))) is make


def test_resampled_shards_differ_between_two_instances_and_two_passes():
    first, second = ResampledShards("a-{0..99}"), ResampledShards("a-{0..99}")
    draws = [urls(islice(shards, 20)) for shards in (first, first, second)]
    assert draws[0] != draws[1] != draws[2] != draws[0]
    assert ResampledShardList is ResampledShards


def test_deterministic_resampling_is_a_function_of_seed_pass_and_worker(place):
    def draws(**kw):
        shards = ResampledShards("a-{0..99}", deterministic=True, **kw)
        return [urls(islice(shards, 10)) for _ in range(2)]

    assert draws() == draws()
    assert draws()[0] != draws()[1]
    assert draws(seed=1) != draws(seed=2)
    here = draws()
    place(worker=1, workers=2)
    assert draws() != here
    assert draws(worker_seed=lambda: 0) == here


def test_in_a_pipeline_the_pass_counts_however_many_processes_there_were():
    def draw(epoch):
        with PassContext(epoch=epoch).in_force():
            return urls(islice(ResampledShards("a-{0..99}", deterministic=True), 10))

    assert draw(0) == draw(0) != draw(1)
    shards = ResampledShards("a-{0..99}", deterministic=True)
    assert [urls(islice(shards, 10)) for _ in range(2)] == [draw(0), draw(1)]


def test_resampling_ends_after_its_number_of_shards_and_may_be_empty():
    assert len(list(ResampledShards(SIX, nshards=4))) == 4
    assert list(ResampledShards([], empty_check=False)) == []
    assert urls(ResampledShards(iter(["a"]), nshards=2)) == ["a", "a"]


def test_the_resampled_filter_draws_from_all_it_got():
    drawn = list(resampled(100)(iter("ab")))
    assert len(drawn) == 100
    assert set(drawn) == {"a", "b"}
    with pytest.raises(IndexError):
        list(resampled(1)(iter("")))


def test_shard_order_changes_every_pass_and_is_the_same_everywhere():
    stage = shard_shuffle(seed=1)
    passes = ["".join(stage("abcdefgh")) for _ in range(3)]
    code = (
        "from webdataset.shardlists import ShardShuffle as S; s = S(1); print([''.join(s('abcdefgh')) for _ in 'xxx'])"
    )
    for salt in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": salt}, capture_output=True, check=True
        )
        assert done.stdout.decode().strip() == repr(passes)
    assert len(set(passes)) == 3
    stage.set_epoch(1)
    assert "".join(stage("abcdefgh")) == passes[1]


@given(st.lists(st.text(), max_size=30), st.integers(), st.integers(0, 100))
def test_a_shuffle_loses_nothing(items, seed, epoch):
    assert sorted(ShardShuffle(seed, epoch)(items)) == sorted(items)


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 4))
def test_splitting_gives_every_shard_to_exactly_one_worker(shards, world, workers):
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for rank in range(world):
            for worker in range(workers):
                for name, value in (
                    ("RANK", rank),
                    ("WORLD_SIZE", world),
                    ("WORKER", worker),
                    ("NUM_WORKERS", workers),
                ):
                    patch.setenv(name, str(value))
                found += split_by_worker(split_by_node(range(shards)))
    assert sorted(found) == list(range(shards))


def test_several_nodes_need_a_splitter(place):
    assert list(single_node_only(iter("ab"))) == ["a", "b"]
    place(rank=1, world=2)
    with pytest.raises(ValueError, match="nodesplitter"):
        single_node_only(iter("ab"))


def test_non_empty_passes_everything_on_or_fails():
    assert list(non_empty(iter([1, 2]))) == [1, 2]
    with pytest.raises(ValueError, match="no data"):
        list(non_empty(iter([])))


def test_names_of_version_01(place):
    place(rank=1, world=2, worker=1, workers=3)
    assert all_urls(SIX) == [f"s-{i}.tar" for i in range(6)]
    assert worker_urls(SIX) == ["s-1.tar", "s-4.tar"]
    assert urls(ShardList(SIX)) == ["s-1.tar", "s-4.tar"]
    assert urls(ShardList(SIX, nodesplitter=True)) == ["s-3.tar"]
    assert len(ShardList(SIX, length=100)) == 100


def test_a_pytorch_shard_list_with_epoch_shuffle_gives_each_shard_to_one_worker(place):
    found = []
    for rank in range(2):
        place(rank=rank, world=2)
        shards = PytorchShardList(SIX, epoch_shuffle=True)
        shards.set_epoch(7)
        found += urls(shards)
    assert sorted(found) == [f"s-{i}.tar" for i in range(6)]
    assert found != sorted(found)
