"""Time per stage: each is provoked in turn, and the loader says in a word that it bounds the run."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections import Counter

import numpy as np
import pytest

import webdataset as wds
from webdataset.base.reports import STAGES, Report, bound_by

LONG = 0.05
"""So long that nothing else that happens to a few small samples takes as much."""


def tar_of(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


class SlowFile(io.BytesIO):
    """A stream whose first read, or whose later ones, take long."""

    def __init__(self, data, *, first=0.0, later=0.0):
        super().__init__(data)
        self.first, self.later = first, later

    def read1(self, size=-1):
        time.sleep(self.first if self.tell() == 0 else self.later)
        return super().read1(min(size, 2048) if size >= 0 else 2048)


@pytest.fixture
def slow_schemes(monkeypatch):
    archive = tar_of([(f"{n}.cls", b"1") for n in range(4)])

    def slowly_opened(url, mode="rb", bufsize=0, **kw):
        time.sleep(LONG)
        return SlowFile(archive)

    schemes = wds.gopen.gopen_schemes
    monkeypatch.setitem(schemes, "slowopen", slowly_opened)
    monkeypatch.setitem(schemes, "slowfirst", lambda url, mode="rb", bufsize=0, **kw: SlowFile(archive, first=LONG))
    monkeypatch.setitem(schemes, "slowread", lambda url, mode="rb", bufsize=0, **kw: SlowFile(archive, later=LONG))


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of([(f"{n}.cls", b"1") for n in range(16)]))
    return str(path)


WORKERS = [{"num_workers": 0, "workers": "thread"}, {"num_workers": 2, "workers": "thread"}, {"num_workers": 1}]


def told(dataset, options, pause=0.0):
    loader = wds.WebLoader(dataset, batch_size=None, **options)
    for _ in loader:
        if pause:  # even a sleep of no time at all may take long on a busy machine
            time.sleep(pause)
    stats = loader.stats()
    assert list(stats["seconds"]) == list(STAGES)
    assert all(seconds >= 0 for seconds in stats["seconds"].values())
    json.dumps(stats)
    return stats["bound_by"]


@pytest.mark.parametrize("options", WORKERS[:2])
@pytest.mark.parametrize("scheme", ["slowopen", "slowfirst", "slowread"])
def test_a_source_that_is_slow_to_open_to_answer_or_to_deliver(slow_schemes, scheme, options):
    urls = [f"{scheme}:{n}" for n in range(8)]
    stage = {"slowopen": "open", "slowfirst": "first_byte", "slowread": "read"}[scheme]
    assert told(wds.WebDataset(urls, shardshuffle=False).batched(4), options) == stage


def slowly(sample):
    time.sleep(LONG)
    return sample


def slow_decoder(key, data):
    time.sleep(LONG)
    return data


def slow_batch(samples):
    time.sleep(LONG * len(samples))
    return samples


@pytest.mark.parametrize("options", WORKERS)
@pytest.mark.parametrize("stage", ["decode", "map", "batch", "consumer"])
def test_a_slow_stage(shard, stage, options):
    dataset = wds.WebDataset(shard, shardshuffle=False, empty_check=False)
    if stage == "consumer":
        assert told(dataset.batched(2), options, pause=8 * LONG) == stage
        return
    made = {
        "decode": lambda: dataset.decode(slow_decoder).batched(4),
        "map": lambda: dataset.map(slowly).batched(4),
        "batch": lambda: dataset.batched(4, collation_fn=slow_batch),
    }[stage]()
    assert told(made, options) == stage


def test_many_tiny_samples_are_a_matter_of_parsing(monkeypatch):
    archive = tar_of([(f"{n}.cls", b"1") for n in range(10_000)])
    monkeypatch.setitem(wds.gopen.gopen_schemes, "memory", lambda url, mode="rb", bufsize=0, **kw: io.BytesIO(archive))
    for options in WORKERS[:2]:
        dataset = wds.WebDataset("memory:a.tar", shardshuffle=False).batched(5_000, collation_fn=None)
        # a busy machine may let one of the few reads wait for longer than it all takes, but not most of the time
        assert Counter(told(dataset, options) for _ in range(5)).most_common(1)[0][0] == "parse"


def test_large_batches_that_cost_nothing_to_make_are_a_matter_of_their_transfer():
    large = np.ones(1 << 25, np.uint8)
    dataset = wds.DataPipeline(lambda: iter(range(12)), wds.map(lambda n: [large]))
    assert told(dataset, {"num_workers": 1}) == "transfer"


def test_worker_processes_report_while_they_are_at_work(shard, monkeypatch):
    from webdataset.loading import workers

    monkeypatch.setattr(workers, "REPORT_SECONDS", 0.0)
    loader = wds.WebLoader(wds.WebDataset([shard] * 50, shardshuffle=False).map(slowly), batch_size=None, num_workers=1)
    for _, _sample in zip(range(8), loader, strict=False):
        pass
    assert loader.stats()["seconds"]["map"] > 0


def test_times_of_workers_add_up():
    total = Report()
    for _ in range(2):
        worker = Report()
        worker.spend("read", 1.0)
        worker.spend("active", 3.0)
        total.add(worker.as_dict())
    assert total.seconds()["read"] == 2.0
    assert total.seconds()["parse"] == 4.0  # what no stage accounts for


def test_nothing_is_bound_by_nothing():
    assert bound_by(Report().seconds()) == ""
