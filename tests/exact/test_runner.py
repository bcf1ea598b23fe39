"""States of exact datasets: resumed at every item, on any number of ranks and workers."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from exact_support import batched, exact, few, flat, keys, most, total, urls
from tests_support import tar_bytes

pytestmark = pytest.mark.usefixtures("own_cache")


PIPELINES = {
    "batches": lambda dataset: batched(dataset, 3),
    "samples": lambda dataset: dataset.to_tuple("__key__").map(lambda sample: [sample]),
    "selected": lambda dataset: batched(dataset.select(few), 3),
    "unbatched": lambda dataset: batched(dataset, 4).unbatched().map(lambda sample: [sample]),
    "rebatched": lambda dataset: batched(dataset, 2).unbatched().batched(3),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_resuming_at_every_item_gives_the_uninterrupted_run(folder, pipeline):
    def make():
        return PIPELINES[pipeline](exact(folder))

    whole = keys(make()) + keys(make().set_epoch(1))
    for stop in range(len(whole)):
        dataset = make()
        seen = []
        while len(seen) <= stop:
            run = iter(dataset)
            for batch in run:
                seen.append(list(batch[0]))
                if len(seen) > stop:
                    break
        state = json.loads(json.dumps(dataset.state_dict()))
        again = make()
        again.load_state_dict(state)
        assert again.state_dict() == {**state, "base": again.state_dict()["base"]}
        rest = keys(again) + ([] if len(seen) > len(whole) // 2 else keys(again))
        assert (seen + rest)[: len(whole)] == whole


@pytest.mark.parametrize(("workers", "kind"), [(0, "process"), (2, "process"), (3, "thread")])
def test_loaders_resume_at_every_batch_with_batches_in_flight(folder, workers, kind):
    def make(workers=workers):
        dataset = batched(exact(folder).select(few), 3)
        return wds.WebLoader(dataset, batch_size=None, num_workers=workers, workers=kind)

    whole = keys(make())
    for stop in range(0, len(whole) + 1, 2):
        loader = make()
        run = iter(loader)
        seen = [list(next(run)[0]) for _ in range(stop)]
        state, again = loader.state_dict(), loader.state_dict()
        assert state == again
        run.close()
        other = make(1)
        other.load_state_dict(json.loads(json.dumps(state)))
        assert seen + keys(other) == whole


def test_a_state_is_small_whatever_the_buffer(folder):
    loader = wds.WebLoader(batched(exact(folder, shuffle_bytes="1GiB"), 3), batch_size=None, num_workers=2)
    next(iter(loader))
    assert len(json.dumps(loader.state_dict())) < 2000


def everything(dataset):
    return dataset.map(dict)


def selected(dataset):
    return dataset.select(most)


@pytest.mark.parametrize("chosen", [everything, selected])
def test_the_topology_may_change_at_every_save(folder, chosen):
    def run(state, world, workers, size, steps):
        ranks, states = [], []
        for rank in range(world):
            dataset = batched(chosen(exact(folder, rank=rank, world_size=world)), size)
            loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers, workers="thread")
            if state is not None:
                loader.load_state_dict(state)
            ranks.append([list(batch[0]) for _, batch in zip(range(steps), loader, strict=False)])
            states.append(loader.state_dict())
        return [sorted(flat(step)) for step in zip(*ranks, strict=True)], wds.merge_states(states)

    whole = [sorted(batch) for batch in keys(batched(chosen(exact(folder)), 6))]
    found, state = [], None
    for world, workers, steps in ((2, 3, 1), (3, 1, 1), (1, 8, 1), (2, 2, 9)):
        batches, state = run(state, world, workers, 6 // world, steps)
        found += batches
    if chosen is everything:
        assert [sorted(set(batch)) for batch in found] == whole
    # a rank of whose batch nothing is left gives a sample again
    assert sorted(set(flat(found))) == sorted(flat(whole))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_chain_of_saves_and_topologies_loses_and_repeats_nothing(folder, data):
    seen, state = Counter(), None
    repeated = 0
    for _ in range(data.draw(st.integers(1, 4))):
        world, size, steps = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(0, 4)))
        states = []
        for rank in range(world):
            dataset = batched(exact(folder, rank=rank, world_size=world), size)
            if state is not None:
                dataset.load_state_dict(state)
            run = iter(dataset)
            for _, batch in zip(range(steps), run, strict=False):
                seen.update(batch[0])
            run.close()
            repeated += dataset.stats().get("samples_repeated", 0)
            states.append(dataset.state_dict())
        state = json.loads(json.dumps(wds.merge_states(states)))
        if state["position"] == total() or state["epoch"] > 0:
            break
    assert sum(seen.values()) - repeated == (total() if state["epoch"] > 0 else state["position"])
    assert len(seen) == sum(seen.values()) - repeated


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"seed": 2}, "seed .*1 .*2"),
        ({"name": "equal"}, "shard"),
        ({"lanes": 4}, "lanes .*8 .*4"),
        ({"shuffle_bytes": "1MiB"}, "shuffle_bytes .*268435456 .*1048576"),
    ],
)
def test_a_state_of_something_else_is_refused_with_the_difference(folder, change, difference):
    state = batched(exact(folder), 3).state_dict()
    with pytest.raises(wds.StateError, match=difference):
        batched(exact(folder, **change), 3).load_state_dict(state)


def test_a_state_of_another_pipeline_is_refused(folder):
    state = batched(exact(folder), 3).state_dict()
    with pytest.raises(wds.StateError, match=r"select\(few\)"):
        batched(exact(folder).select(few), 3).load_state_dict(state)
    with pytest.raises(wds.StateError, match="state"):
        batched(exact(folder), 3).load_state_dict({"model": 1})
    with pytest.raises(wds.StateError, match="version"):
        batched(exact(folder), 3).load_state_dict({**state, "version": 99})


@pytest.mark.parametrize(
    "damage",
    [{"step": 10**6}, {"position": 1}, {"step": -1}, {"start": "x"}, {"topology": {}}, {"round": {"number": 1}}],
)
def test_a_damaged_state_is_refused(folder, damage):
    state = batched(exact(folder), 3).state_dict()
    with pytest.raises(wds.StateError, match="damaged"):
        batched(exact(folder), 3).load_state_dict({**state, **damage})


def test_a_state_that_lacks_something_is_refused(folder):
    state = batched(exact(folder), 3).state_dict()
    for name in ("epoch", "position", "skip", "topology", "of", "kind", "version"):
        rest = {key: value for key, value in state.items() if key != name}
        with pytest.raises(wds.StateError):
            batched(exact(folder, rank=0, world_size=2), 3).load_state_dict(rest)


def test_states_of_streams_are_not_merged(folder):
    states = []
    for rank in range(2):
        state = wds.WebDataset(urls(folder)).state_dict()
        states.append({**state, "topology": {**state["topology"], "rank": rank, "world": 2}})
    with pytest.raises(wds.StateError, match="rank"):
        wds.merge_states(states)
    with pytest.raises(wds.StateError, match="datasets"):
        wds.merge_states([{"model": 1}])


def test_stages_after_a_loader_that_hold_samples_have_no_state(folder):
    loader = wds.WebLoader(batched(exact(folder), 3), batch_size=None)
    assert loader.map(list).state_dict()["position"] == 0
    with pytest.raises(wds.StateError, match="hold"):
        loader.unbatched().shuffle(10).state_dict()


def test_states_of_different_batches_do_not_merge(folder):
    states = []
    for rank in range(2):
        dataset = batched(exact(folder, rank=rank, world_size=2), 3)
        run = iter(dataset)
        for _ in range(rank + 1):
            next(run)
        states.append(dataset.state_dict())
    with pytest.raises(wds.StateError, match="position"):
        wds.merge_states(states)
    with pytest.raises(wds.StateError, match="2 ranks"):
        wds.merge_states(states[:1])


def test_restoring_reads_no_more_than_a_window(tmp_path):
    paths = []
    for shard in range(8):
        paths.append(str(tmp_path / f"{shard}.tar"))
        with open(paths[-1], "wb") as file:
            file.write(tar_bytes([(f"{shard}-{i:05d}.bin", bytes(1000)) for i in range(2000)]))
    options = {"exact": True, "shuffle_bytes": "1MiB", "block_bytes": "64KiB", "lanes": 8}

    def make():
        return wds.WebDataset(paths, **options).to_tuple("__key__").batched(100)

    whole = keys(make())
    dataset = make()
    run = iter(dataset)
    for _ in range(144):
        next(run)
    again = make()
    again.load_state_dict(dataset.state_dict())
    rest = iter(again)
    assert list(next(rest)[0]) == whole[144]
    assert again.stats()["bytes_read"] < 3 << 20
    assert [whole[144], *keys(rest)] == whole[144:]
