"""Thread workers: the same items in the same order as without threads, and no thread left."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webdataset as wds
from outcomes import outcome
from webdataset.base.stages import pipelinefilter
from webdataset.loading.pools import pooled
from webdataset.pipeline import DataPipeline

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def threaded(dataset, threads=3):
    """The dataset, with its stages run by threads."""
    result = DataPipeline()
    result.pipeline = pooled(dataset.pipeline, threads)
    result.strict = dataset.strict
    return result


# -- pipelines -----------------------------------------------------------------------------------


def bad(n):
    if n % 7 == 3:
        raise ValueError(f"bad {n % 2}")
    return n


ENDING = [wds.slice(40), wds.map(bad, handler=wds.ignore_and_stop), wds.map(bad)]
"""Stages that can end a pass early: threads have read on by then, and count what they dropped."""

PIPELINES = st.lists(
    st.sampled_from(
        [
            *ENDING,
            wds.map(bad, handler=wds.ignore_and_continue),
            wds.map(lambda n: n + 1),
            wds.map(lambda n: n * 2 if isinstance(n, int) else n),
            wds.select(lambda n: n % 5 != 1),
            wds.shuffle(5, seed=3),
            wds.rsample(0.7, seed=1),
            lambda source: (n + 100 for n in source),
        ]
    ),
    max_size=6,
)


def counted(pipeline):
    return {name: count for name, count in pipeline.stats().items() if name != "seconds"}


@given(PIPELINES, st.integers(1, 4), st.integers(0, 60))
@settings(deadline=None, max_examples=60)
def test_threads_change_nothing_in_what_a_pipeline_gives(stages, threads, count):
    serial = DataPipeline(range(count), *stages)
    parallel = threaded(serial, threads)
    assert outcome(parallel) == outcome(serial)
    if not any(stage in ENDING for stage in stages):
        assert counted(parallel) == counted(serial)
    else:
        assert Counter(parallel.stats()["reasons"]) >= Counter(serial.stats()["reasons"])


@given(st.integers(1, 4), st.integers(0, 30), st.integers(1, 7), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=40)
def test_batches_are_the_same_with_threads(threads, count, size, partial, again):
    serial = wds.FluidWrapper(range(count)).map(lambda n: (n, str(n)))
    serial = serial.batched(size, collation_fn=lambda samples: list(zip(*samples, strict=True)), partial=partial)
    if again:
        serial = serial.map(lambda batch: batch[::-1]).unbatched().shuffle(5, seed=1).listed(3)
    assert list(threaded(serial, threads)) == list(serial)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_samples_of_shards_come_in_order_with_their_counts(make_shards, threads):
    dataset = wds.WebDataset(make_shards(3, samples=50), shardshuffle=10, seed=5).shuffle(20, seed=1).decode()
    parallel = threaded(dataset, threads)
    assert list(parallel) == list(dataset)
    assert counted(parallel) == counted(dataset)
    assert parallel.stats()["samples_read"] == 150


def test_what_is_skipped_in_threads_is_counted(make_shards):
    def odd_only(sample):
        if int(sample["__key__"]) % 2 == 0:
            raise ValueError("even")
        return sample

    dataset = wds.WebDataset(make_shards(2, samples=100)).map(odd_only, handler=wds.ignore_and_continue)
    parallel = threaded(dataset, 4)
    assert len(list(parallel)) == 100
    assert parallel.stats()["samples_dropped"] == 100
    assert parallel.stats()["reasons"] == {"ValueError: even": 100}


def test_handlers_are_asked_in_order_and_by_the_consumer():
    asked = []

    def handler(exn):
        asked.append((str(exn), threading.current_thread()))
        return True

    def never(n):
        raise ValueError(n)

    assert list(threaded(wds.FluidWrapper(range(50)).map(never, handler=handler), 4)) == []
    assert asked == [(str(n), threading.main_thread()) for n in range(50)]


def test_errors_in_a_row_are_counted_in_the_order_of_the_samples():
    def fails(n):
        if n in (3, 4, 10, 11, 20, 21, 22):
            raise ValueError(n)
        return n

    for threads in (1, 4):
        handler = wds.CountingHandler(max_consecutive=2)
        items, error = outcome(threaded(wds.FluidWrapper(range(30)).map(fails, handler=handler), threads))
        assert items == [n for n in range(20) if n not in (3, 4, 10, 11)]
        assert error == "ValueError(22)"


def test_strict_mode_is_strict_in_threads_too():
    dataset = wds.FluidWrapper(range(10)).map(bad, handler=wds.ignore_and_continue)
    dataset.strict = True
    assert outcome(threaded(dataset)) == ([0, 1, 2], "ValueError('bad 1')")


def test_warnings_of_handlers_arrive():
    dataset = wds.FluidWrapper(range(10)).map(bad, handler=wds.warn_and_continue)
    with pytest.warns(UserWarning, match="bad 1"):
        assert list(threaded(dataset)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_an_error_says_in_which_sample_it_happened(make_shards):
    urls = make_shards(1)

    def broken(sample):
        return 1 // (int(sample["__key__"]) - 4)

    with pytest.raises(ZeroDivisionError) as caught:
        list(threaded(wds.WebDataset(urls).map(broken)))
    (note,) = caught.value.__notes__
    assert "000004" in note
    assert urls[0] in note
    assert "broken" in [entry.name for entry in caught.traceback]


def test_wrong_options_are_an_error_before_anything_is_read():
    def source():
        raise AssertionError("read")
        yield

    with pytest.raises(ValueError, match="map_dict"):
        list(threaded(DataPipeline(source, wds.map_dict())))


def test_a_users_generator_runs_in_the_consumer_and_the_source_in_one_thread():
    seen = {"source": set(), "before": set(), "work": set(), "after": set()}

    def noting(name, items):
        for item in items:
            seen[name].add(threading.current_thread())
            yield item

    def work(n):
        seen["work"].add(threading.current_thread())
        time.sleep(0.001)
        return n

    dataset = wds.FluidWrapper(noting("source", range(100)))
    dataset = dataset.compose(lambda source: noting("before", source)).map(work).map(work)
    dataset = dataset.compose(lambda source: noting("after", source)).map(work)
    assert list(threaded(dataset, 3)) == list(range(100))
    assert len(seen["source"]) == 1
    assert seen["source"] == seen["before"]
    assert seen["after"] == {threading.main_thread()}
    assert len(seen["work"]) > 2


def test_stages_of_ones_own_for_single_samples_run_in_threads():
    used = set()

    @pipelinefilter(per_sample=True)
    def doubled(data):
        for n in data:
            used.add(threading.current_thread())
            yield 2 * n

    assert list(threaded(DataPipeline(range(5), doubled()))) == [0, 2, 4, 6, 8]
    assert threading.main_thread() not in used


def test_a_pipeline_without_work_is_read_ahead_by_a_thread():
    readers = set()

    def source():
        readers.add(threading.current_thread())
        yield from (1, 2, 3)

    assert list(threaded(DataPipeline(source))) == [1, 2, 3]
    assert threading.main_thread() not in readers


def test_large_samples_are_not_gathered_in_groups():
    alive, most = [], []

    def source():
        for n in range(200):
            alive.append(n)
            yield bytes(1 << 20)

    def work(sample):
        most.append(len(alive))
        return len(sample)

    for taken, _ in enumerate(threaded(wds.FluidWrapper(source()).map(work), 2), 1):
        assert len(alive) <= taken + 2 * 2 + 2


def test_many_small_samples_are_gathered_in_groups():
    before = time.thread_time()
    count = sum(1 for _ in threaded(wds.FluidWrapper(range(20000)).map(lambda n: n), 2))
    assert count == 20000
    assert time.thread_time() - before < 2


def test_a_slow_source_is_not_waited_for():
    release = threading.Event()

    def source():
        for n in range(10):
            time.sleep(0.003)
            yield n
        release.wait()

    items = iter(threaded(wds.FluidWrapper(source()).map(str), 2))
    assert [next(items) for _ in range(10)] == [str(n) for n in range(10)]
    release.set()
    assert list(items) == []


def test_nested_pipelines_count_and_mix_as_without_threads(make_shards):
    parts = [wds.WebDataset(url).decode() for url in make_shards(2, samples=20)]
    mixed = wds.FluidWrapper(wds.RandomMix(parts, seed=3, longest=True)).map(lambda sample: sample["__key__"])
    assert list(threaded(mixed)) == list(mixed)
    assert sum(part.stats()["samples_read"] for part in parts) == 40
    outer = wds.FluidWrapper(wds.WebDataset(make_shards(2, samples=20)).decode()).map(lambda sample: sample["__key__"])
    parallel = threaded(outer)
    assert len(list(parallel)) == 40
    assert parallel.stats()["samples_read"] == 40


def test_a_cache_after_threads_knows_of_skipped_shards(make_shards, tmp_path):
    bad_shard = tmp_path / "bad.tar"
    bad_shard.write_bytes(b"x" * 1024)
    urls = [*make_shards(1), str(bad_shard)]
    dataset = wds.WebDataset(urls, handler=wds.ignore_and_continue).map(lambda sample: sample["__key__"]).mcached()
    parallel = threaded(dataset)
    assert len(list(parallel)) == 10
    assert parallel.stats()["shards_skipped"] == 1
    make_shards(1, samples=12)
    assert len(list(parallel)) == 12


def test_a_database_may_be_filled_by_the_reader(make_shards, tmp_path):
    dataset = wds.WebDataset(make_shards(2)).dbcache(str(tmp_path / "cache.db"), 20).decode()
    first, second = list(threaded(dataset)), list(threaded(dataset))
    assert first == second
    assert len(first) == 20
