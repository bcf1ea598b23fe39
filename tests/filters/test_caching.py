import pickle
import subprocess
import sys

import numpy
import pytest
import torch

from webdataset.base.reports import Report
from webdataset.errors import UnsafePickleError
from webdataset.filters import Cached, LMDBCached

SAMPLES = [{"__key__": f"k{i}", "txt": b"x" * i, "n": i} for i in range(7)]


def not_read():
    raise AssertionError("the source was read")
    yield


def make_lmdb(folder, **kw):
    return LMDBCached(folder / "cache", map_size=1e8, chunksize=3, **kw)


@pytest.fixture(params=["memory", "lmdb"])
def cache(request, tmp_path):
    return Cached() if request.param == "memory" else make_lmdb(tmp_path)


def test_the_second_pass_comes_from_the_cache(cache):
    assert list(cache.run(iter(SAMPLES))) == SAMPLES
    assert list(cache.run(not_read())) == SAMPLES


@pytest.mark.parametrize("taken", [1, 4, 7])
def test_a_pass_that_was_given_up_is_not_served_as_whole(cache, taken):
    results = cache.run(iter(SAMPLES))
    assert [next(results) for _ in range(taken)] == SAMPLES[:taken]
    results.close()
    assert list(cache.run(iter(SAMPLES))) == SAMPLES
    assert list(cache.run(not_read())) == SAMPLES


def test_a_pass_that_failed_is_not_served_as_whole(cache):
    def failing():
        yield from SAMPLES[:5]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        list(cache.run(failing()))
    assert list(cache.run(iter(SAMPLES))) == SAMPLES


def test_a_pass_that_skipped_a_shard_is_not_served_as_whole(cache):
    report = Report()
    with report.in_force():
        results = cache.run(iter(SAMPLES[:3]))
        assert next(results) == SAMPLES[0]
        report.dropped("shards_skipped", "no such file")
        assert list(results) == SAMPLES[1:3]
        assert list(cache.run(iter(SAMPLES))) == SAMPLES
        assert list(cache.run(not_read())) == SAMPLES


def test_two_interleaved_first_passes_both_get_everything(cache):
    one, two = cache.run(iter(SAMPLES)), cache.run(iter(SAMPLES))
    assert [pair[0] for pair in zip(one, two, strict=True)] == SAMPLES
    assert list(cache.run(iter(SAMPLES))) == SAMPLES


def test_an_empty_pass_is_a_pass(cache):
    assert list(cache.run(iter([]))) == []
    assert list(cache.run(not_read())) == []


def test_what_a_function_does_to_a_sample_does_not_reach_the_cache(cache):
    for _ in range(3):
        for sample, original in zip(cache.run(iter([dict(sample) for sample in SAMPLES])), SAMPLES, strict=True):
            assert sample == original
            sample.clear()


def test_a_cache_pickles_before_and_after_its_first_pass(cache):
    again = pickle.loads(pickle.dumps(cache))
    assert list(again.run(iter(SAMPLES))) == SAMPLES
    assert list(pickle.loads(pickle.dumps(again)).run(not_read())) == SAMPLES


def test_arrays_and_tensors_come_back_from_disk(tmp_path):
    sample = {"__key__": "a", "npy": numpy.arange(6).reshape(2, 3), "pth": torch.ones(2)}
    list(make_lmdb(tmp_path).run([sample]))
    (back,) = make_lmdb(tmp_path).run(not_read())
    assert back["npy"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert back["pth"].tolist() == [1, 1]


class Custom:
    pass


def test_other_objects_are_refused_when_they_are_written(tmp_path):
    with pytest.raises(UnsafePickleError, match="Custom"):
        list(make_lmdb(tmp_path).run([{"x": Custom()}]))


def test_other_objects_are_possible_when_allowed(tmp_path):
    list(make_lmdb(tmp_path, allow_pickle=True).run([{"x": Custom()}]))
    (back,) = make_lmdb(tmp_path, allow_pickle=True).run(not_read())
    assert type(back["x"]).__name__ == "Custom"


def test_a_cache_made_by_someone_else_runs_no_code(tmp_path):
    import lmdb

    from webdataset.filters import caching

    attack = b"cos\nsystem\n(S'echo attacked > " + bytes(tmp_path) + b"/attacked'\ntR."
    with lmdb.open(str(tmp_path / "cache"), map_size=10**8) as db, db.begin(write=True) as transaction:
        transaction.put(caching._number(0), attack)
        transaction.put(caching.COMPLETE, caching.LAYOUT + b"1")
    with pytest.raises(UnsafePickleError, match="system"):
        list(make_lmdb(tmp_path).run(not_read()))
    assert not (tmp_path / "attacked").exists()


def test_a_database_in_another_layout_is_filled_anew(tmp_path):
    import lmdb

    with lmdb.open(str(tmp_path / "cache"), map_size=10**8) as db, db.begin(write=True) as transaction:
        transaction.put(b"_", b"1")
        transaction.put(b"0", b"something")
    assert list(make_lmdb(tmp_path).run(iter(SAMPLES))) == SAMPLES
    assert list(make_lmdb(tmp_path).run(not_read())) == SAMPLES


def test_another_pickler_may_be_given(tmp_path):
    import marshal

    stage = make_lmdb(tmp_path, pickler=marshal)
    assert list(pickle.loads(pickle.dumps(stage)).run(iter(SAMPLES))) == SAMPLES
    assert list(stage.run(not_read())) == SAMPLES


KILLED = """
import os, sys
from webdataset.filters import LMDBCached
for i, _ in enumerate(LMDBCached(sys.argv[1], map_size=1e8, chunksize=2).run({"n": n} for n in range(100))):
    if i == 50:
        os.kill(os.getpid(), 9)
"""


def test_a_process_killed_in_its_first_pass_leaves_nothing_that_looks_whole(tmp_path):
    path = str(tmp_path / "cache")
    assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == -9
    stage = LMDBCached(path, map_size=1e8)
    assert not stage.is_complete()
    assert list(stage.run(iter(SAMPLES))) == SAMPLES
    assert stage.is_complete()
    assert list(stage.run(not_read())) == SAMPLES


def test_each_worker_has_a_cache_of_its_own(tmp_path, monkeypatch):
    for worker in ("0", "1"):
        monkeypatch.setenv("WORKER", worker)
        monkeypatch.setenv("NUM_WORKERS", "2")
        list(make_lmdb(tmp_path).run([{"worker": worker}]))
    assert list(make_lmdb(tmp_path).run(not_read())) == [{"worker": "1"}]
    monkeypatch.setenv("WORKER", "0")
    assert list(make_lmdb(tmp_path).run(not_read())) == [{"worker": "0"}]


def test_the_chunksize_is_checked(tmp_path):
    with pytest.raises(ValueError, match="chunksize"):
        LMDBCached(tmp_path / "cache", chunksize=0)
