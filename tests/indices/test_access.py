"""Samples by number and key: what iterating gives, read by ranges."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from servers.faults import Cut, fault_proxy
from tests_support import numbered, tar_bytes
from webdataset import SampleReader
from webdataset.storage.ranges import RangeReader


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def big(tmp_path):
    """A shard of samples with a large jpg and a small cls and json each."""
    rng = random.Random(4)
    files = []
    for i in range(40):
        files += [(f"{i:03d}.jpg", rng.randbytes(200_000)), (f"{i:03d}.cls", b"%d" % i), (f"{i:03d}.json", b"{}")]
    (tmp_path / "big.tar").write_bytes(tar_bytes(files))
    return str(tmp_path / "big.tar")


def iterated(urls):
    return list(wds.WebDataset(urls, shardshuffle=False))


def test_every_sample_is_the_one_that_iterating_gives(make_shards):
    shards = make_shards(3, samples=7)
    expected = iterated(shards)
    with SampleReader(wds.index(shards)) as samples:
        assert len(samples) == 21
        got = [samples[i] for i in range(21)]
        assert got == expected
        assert [list(sample) for sample in got] == [list(sample) for sample in expected]


def test_numbers_from_the_end_slices_and_keys(make_shards):
    shards = make_shards(2, samples=5)
    expected = iterated(shards)
    with SampleReader(wds.index(shards)) as samples:
        assert samples[-1] == expected[-1]
        assert samples[-10] == expected[0]
        assert samples[3:7] == expected[3:7]
        assert samples[::-3] == expected[::-3]
        assert samples[20:] == []
        assert samples["000007"] == expected[7]
        for wrong in (10, -11):
            with pytest.raises(IndexError, match=f"{wrong} "):
                samples[wrong]
        with pytest.raises(KeyError):
            samples["none"]


def test_many_samples_come_in_the_order_asked_and_are_no_ones_else(make_shards):
    shards = make_shards(3, samples=5)
    expected = iterated(shards)
    with SampleReader(wds.index(shards)) as samples:
        numbers = [14, 0, 7, 7, -1, 3]
        got = samples.read_many(numbers)
        assert got == [expected[i] for i in numbers]
        got[2]["cls"] = b"changed"
        assert got[3]["cls"] == b"7"


@pytest.mark.parametrize("format", ["gnu", "posix"])
def test_sparse_files_are_put_together(tmp_path, format):
    for name in ("a", "b"):
        with open(tmp_path / f"{name}.bin", "wb") as file:
            file.seek(1 << 20)
            file.write(name.encode())
        (tmp_path / f"{name}.cls").write_bytes(b"7")
    shard = str(tmp_path / "s.tar")
    names = ["a.bin", "a.cls", "b.bin", "b.cls"]
    subprocess.run(["tar", "-cSf", shard, f"--format={format}", "-C", str(tmp_path), *names], check=True)
    with SampleReader(wds.index(shard)) as samples:
        assert samples[:] == iterated(shard)
    with SampleReader(wds.index(shard), fields=["bin"]) as samples:
        assert list(samples[1]) == ["__key__", "__url__", "__local_path__", "bin"]


def test_long_names_and_extended_headers(tmp_path):
    for n in range(3):
        (tmp_path / f"{'long' * 40}{n}.TXT").write_bytes(b"text %d" % n)
        (tmp_path / f"{'long' * 40}{n}.ü").write_bytes(b"u %d" % n)
    for format in ("gnu", "posix"):
        shard = str(tmp_path / f"{format}.tar")
        names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("long"))
        subprocess.run(["tar", "-cf", shard, f"--format={format}", "-C", str(tmp_path), *names], check=True)
        with SampleReader(wds.index(shard)) as samples:
            assert samples[:] == iterated(shard)
            assert samples["long" * 40 + "1"]["txt"] == b"text 1"


def test_a_rule_of_ones_own(make_shard):
    def by_last_dot(name):
        return tuple(name.rsplit(".", 1))

    shard = make_shard(files=[("a.x.txt", b"1"), ("a.x.cls", b"2"), ("a.y.txt", b"3")])
    with SampleReader(wds.index(shard, keys=by_last_dot)) as samples:
        assert [sample["__key__"] for sample in samples[:]] == ["a.x", "a.y"]
        assert samples["a.x"]["cls"] == b"2"


def test_a_shard_that_changes_under_a_reader_is_an_error(make_shard):
    shard = make_shard(samples=5)
    with SampleReader(wds.index(shard)) as samples:
        samples[0]
        make_shard(samples=6)
        with pytest.raises(wds.StorageError, match="changed") as raised:
            samples[1]
    assert raised.value.url == shard


def test_a_reader_can_be_pickled_and_forked(make_shards):
    shards = make_shards(2, samples=5)
    reader = SampleReader(wds.index(shards), fields=["cls"])
    assert reader[3]["cls"] == b"3"
    assert len(pickle.dumps(reader)) < 1000
    with pickle.loads(pickle.dumps(reader)) as again:
        assert (again[8]["cls"], "txt" in again[8]) == (b"8", False)
    child = os.fork()
    if not child:
        os._exit(0 if reader[4]["cls"] == b"4" else 1)
    assert os.waitpid(child, 0)[1] == 0
    reader.close()


def test_threads_share_a_reader(make_shards, monkeypatch):
    monkeypatch.setattr("webdataset.indices.openshards.OPEN_SHARDS", 2)
    shards = make_shards(8, samples=10)
    wrong = []
    with SampleReader(wds.index(shards)) as samples:

        def work(seed):
            rng = random.Random(seed)
            for _ in range(100):
                i = rng.randrange(80)
                if samples[i]["cls"] != b"%d" % i:
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(samples._shards._readers) <= 2
    assert wrong == []


def test_open_files_are_bounded_and_closed(make_shards, monkeypatch):
    monkeypatch.setattr("webdataset.indices.openshards.OPEN_SHARDS", 3)
    shards = make_shards(10, samples=2)
    before = len(os.listdir("/proc/self/fd"))
    with SampleReader(wds.index(shards)) as samples:
        for i in range(20):
            samples[i]
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_local_copy_can_be_read_instead(make_shard, nginx, tmp_path):
    shard = make_shard(samples=5)
    url = nginx.put("copied/a.tar", Path(shard).read_bytes())
    catalogue = wds.index(url)
    with SampleReader(catalogue, open_range=lambda _: RangeReader(shard)) as samples:
        assert samples[3]["__url__"] == url
        assert samples[3]["cls"] == b"3"


def test_without_numpy_at_import_time():
    code = "import sys, webdataset.indices.access, webdataset.indices.making; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- over HTTP ---------------------------------------------------------------------------------------


def test_only_the_wanted_sample_is_fetched(nginx, big):
    catalogue = wds.index(nginx.put("access/big.tar", Path(big).read_bytes()))
    with fault_proxy(nginx.port) as proxy:
        away = _elsewhere(catalogue, proxy.url("/access/big.tar"))
        with SampleReader(away) as samples:
            assert samples["017"]["jpg"] == iterated(big)[17]["jpg"]
            assert proxy.passed < 203_000 + 2000
            assert samples[3]["cls"] == b"3"
            assert proxy.passed < 2 * 203_000 + 3000


def test_only_the_wanted_fields_are_fetched(nginx, big):
    catalogue = wds.index(nginx.put("access/big.tar", Path(big).read_bytes()))
    with fault_proxy(nginx.port) as proxy:
        away = _elsewhere(catalogue, proxy.url("/access/big.tar"))
        with SampleReader(away, fields=["cls", "json"]) as samples:
            sample = samples[17]
            assert {name: sample[name] for name in ("__key__", "cls", "json")} == {
                "__key__": "017",
                "cls": b"17",
                "json": b"{}",
            }
            assert "jpg" not in sample
        assert proxy.passed < 5000


def test_neighbours_are_fetched_with_one_request(nginx):
    archive = tar_bytes(numbered(1000))
    catalogue = wds.index(nginx.put("access/small.tar", archive))
    log = nginx.folder / "access.log"
    before = len(log.read_text().splitlines())
    with SampleReader(catalogue) as samples:
        assert [sample["cls"] for sample in samples[100:200]] == [b"%d" % i for i in range(100, 200)]
    requests = log.read_text().splitlines()[before:]
    assert len(requests) <= 2
    sent = [int(line.split('" ')[1].split()[1]) for line in requests]
    assert sum(sent) < 100 * 2048 + 1


def test_a_connection_that_breaks_is_resumed(nginx, big):
    catalogue = wds.index(nginx.put("access/big.tar", Path(big).read_bytes()))
    with (
        fault_proxy(nginx.port, [Cut(after=100_000)]) as proxy,
        SampleReader(_elsewhere(catalogue, proxy.url("/access/big.tar"))) as samples,
    ):
        assert samples[5]["jpg"] == iterated(big)[5]["jpg"]


def _elsewhere(catalogue, url):
    """The same catalogue, its one shard at another url."""
    catalogue.index(0)
    catalogue.urls = [url]
    return catalogue


# -- any numbers -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_numbers_of_any_shards_with_any_fields(tmp_path, data):
    rng = random.Random(data.draw(st.integers(0, 5)))
    shards = []
    for n in range(3):
        path = tmp_path / f"{rng.random()}-{n}.tar"
        fields = ["a", "b.c", "D"]
        files = [
            (f"{n}-{i}.{field}", rng.randbytes(rng.choice([0, 1, 600, 90_000])))
            for i in range(rng.randrange(6))
            for field in rng.sample(fields, rng.randrange(1, 4))
        ]
        path.write_bytes(tar_bytes(files))
        shards.append(str(path))
    expected = iterated(shards)
    if not expected:
        return
    wanted = data.draw(st.none() | st.sets(st.sampled_from(["a", "b.c", "d", "none"])))
    numbers = data.draw(st.lists(st.integers(-len(expected), len(expected) - 1), max_size=8))
    with SampleReader(wds.index(shards), fields=wanted) as samples:
        keep = [
            {name: value for name, value in expected[i].items() if wanted is None or name in wanted or name[:2] == "__"}
            for i in numbers
        ]
        assert samples.read_many(numbers) == keep


def test_a_url_instead_of_a_catalogue_says_what_makes_one(make_shard):
    with pytest.raises(TypeError, match=r"wds\.index"):
        wds.SampleReader(make_shard(samples=1))
