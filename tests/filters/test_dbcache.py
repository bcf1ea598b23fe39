import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from webdataset.base.reports import Report
from webdataset.errors import StorageError, UnsafePickleError
from webdataset.filters import DBCache

SAMPLES = [{"__key__": f"k{i}", "txt": b"x" * i} for i in range(7)]


def not_read():
    raise AssertionError("the source was read")
    yield


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "cache.db")


def test_the_first_samples_are_kept_and_served(path):
    assert list(DBCache(path, 5).run(iter(SAMPLES))) == SAMPLES[:5]
    assert list(DBCache(path, 5).run(not_read())) == SAMPLES[:5]


def test_a_source_with_fewer_samples_is_kept_whole(path):
    assert list(DBCache(path, 100).run(iter(SAMPLES))) == SAMPLES
    assert list(DBCache(path, 100).run(not_read())) == SAMPLES
    assert list(DBCache(path, 1000).run(not_read())) == SAMPLES


def test_a_smaller_size_is_served_from_a_larger_cache_but_not_the_other_way_round(path):
    list(DBCache(path, 5).run(iter(SAMPLES)))
    assert list(DBCache(path, 3).run(not_read())) == SAMPLES[:3]
    assert list(DBCache(path, 7).run(iter(SAMPLES))) == SAMPLES


def test_it_is_a_dataset_when_it_has_a_source(path):
    dataset = DBCache(path, 5, source=SAMPLES)
    assert list(dataset) == list(dataset) == SAMPLES[:5]
    assert list(DBCache(path, 5).source_(SAMPLES)) == SAMPLES[:5]


def test_without_a_source_it_says_so(path):
    with pytest.raises(ValueError, match="source="):
        list(DBCache(path, 5))


def test_the_cache_can_be_served_in_random_order(path):
    samples = [{"n": n} for n in range(100)]
    list(DBCache(path, 100).run(samples))
    shuffled = list(DBCache(path, 100, shuffle=True).run(not_read()))
    assert shuffled != samples
    assert sorted(sample["n"] for sample in shuffled) == list(range(100))


@pytest.mark.parametrize("taken", [1, 4])
def test_a_half_filled_cache_is_refilled(path, taken):
    results = DBCache(path, 5).run(iter(SAMPLES))
    for _ in range(taken):
        next(results)
    results.close()
    other = [{"__key__": "other"}] * 5
    assert list(DBCache(path, 5).run(iter(other))) == other
    assert list(DBCache(path, 5).run(not_read())) == other


def test_the_last_sample_completes_it_even_if_the_consumer_asks_for_no_more(path):
    results = DBCache(path, 5).run(iter(SAMPLES))
    for _ in range(5):
        next(results)
    results.close()
    assert list(DBCache(path, 5).run(not_read())) == SAMPLES[:5]


def test_equal_keys_are_all_kept(path):
    twice = [{"__key__": "a", "n": 1}, {"__key__": "a", "n": 2}]
    list(DBCache(path, 5).run(twice))
    assert list(DBCache(path, 5).run(not_read())) == twice


def test_samples_without_key_and_tuples_are_kept(path):
    samples = [{"n": 1}, (1, "a"), [2]]
    list(DBCache(path, 5).run(samples))
    assert list(DBCache(path, 5).run(not_read())) == samples


KILLED = """
import os, sys
from webdataset.filters import DBCache
for i, _ in enumerate(DBCache(sys.argv[1], 10**6).run({"n": n, "data": bytes(10000)} for n in range(2000))):
    if i == 1500:
        os.kill(os.getpid(), 9)
"""


def test_a_killed_process_leaves_nothing_that_looks_whole(path):
    assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == -9
    assert list(DBCache(path, 10).run(iter(SAMPLES))) == SAMPLES
    assert list(DBCache(path, 10).run(not_read())) == SAMPLES


def test_while_one_fills_it_another_does_without(path):
    one = DBCache(path, 10).run(iter(SAMPLES))
    next(one)
    assert list(DBCache(path, 10).run(iter(SAMPLES))) == SAMPLES
    assert len(list(one)) == 6
    assert list(DBCache(path, 10).run(not_read())) == SAMPLES


def test_a_file_that_is_no_cache_is_left_alone(path):
    Path(path).write_text("my thesis, the only copy\n" * 100)
    with pytest.raises(StorageError) as raised:
        list(DBCache(path, 5).run(SAMPLES))
    assert raised.value.url == path
    assert "delete" in raised.value.hint
    assert "thesis" in Path(path).read_text()


def test_another_database_is_left_alone(path):
    with sqlite3.connect(path) as db:
        db.execute("create table cache (key text primary key, data blob)")
        db.execute("create table meta (name text, value text)")
    db.close()
    with pytest.raises(StorageError, match="version"):
        list(DBCache(path, 5).run(SAMPLES))


def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(StorageError) as raised:
        list(DBCache(tmp_path / "nosuch" / "cache.db", 5).run(SAMPLES))
    assert raised.value.url == str(tmp_path / "nosuch" / "cache.db")


def test_a_cache_made_by_someone_else_runs_no_code(path, tmp_path):
    list(DBCache(path, 5).run(SAMPLES))
    attack = b"cos\nsystem\n(S'echo attacked > " + bytes(tmp_path) + b"/attacked'\ntR."
    with sqlite3.connect(path) as db:
        db.execute("update cache set data = ?", (attack,))
    db.close()
    with pytest.raises(UnsafePickleError, match="system"):
        list(DBCache(path, 5).run(not_read()))
    assert not (tmp_path / "attacked").exists()


def test_it_pickles(path):
    dataset = pickle.loads(pickle.dumps(DBCache(path, 5, source=SAMPLES)))
    assert list(dataset) == SAMPLES[:5]
    assert list(pickle.loads(pickle.dumps(dataset))) == SAMPLES[:5]


def test_the_size_is_checked(path):
    with pytest.raises(ValueError, match="at least 1"):
        DBCache(path, 0)


@pytest.mark.parametrize("size", [3, 10])
def test_a_pass_that_skipped_a_shard_is_not_served_as_whole(path, size):
    report = Report()
    with report.in_force():
        results = DBCache(path, size).run(iter(SAMPLES[:3]))
        assert next(results) == SAMPLES[0]
        report.dropped("shards_skipped", "no such file")
        assert list(results) == SAMPLES[1:3]
        assert list(DBCache(path, size).run(iter(SAMPLES))) == SAMPLES[:size]
        assert list(DBCache(path, size).run(not_read())) == SAMPLES[:size]


def test_a_missing_sample_is_an_error(path):
    list(DBCache(path, 5).run(SAMPLES))
    with sqlite3.connect(path) as db:
        db.execute("delete from cache where number = 2")
    db.close()
    with pytest.raises(StorageError, match="sample 2"):
        list(DBCache(path, 5).run(not_read()))
