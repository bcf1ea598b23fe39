"""Servers that are down are waited for: how long, how it is counted and told, and what ends a wait."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading

import pytest

import webdataset as wds
from clocks import Time, tries_until_given_up, waiting
from tests_support import numbered, tar_bytes
from webdataset.base.reports import Report
from webdataset.base.settings import Environment
from webdataset.base.stops import Stop
from webdataset.errors import MissingShardError, UnavailableError
from webdataset.gopen import gopen
from webdataset.storage import patience
from webdataset.storage.http.stream import HttpStream
from webdataset.storage.patience import Patience, RetriesExhaustedError
from webdataset.storage.ranges import RangeReader

SHARD = tar_bytes(numbered(500))
KEYS = [f"{i:06d}" for i in range(500)]
QUICK = {"first_pause": 0.001}
NINE = [503] * 9  # more than were ever tried before there was patience


# -- how long --------------------------------------------------------------------------------------


def test_a_server_is_waited_for_for_90_seconds_with_pauses_that_grow(patient):
    time = Time()
    _, error = tries_until_given_up(waiting(time))
    assert sum(time.pauses) == pytest.approx(90)
    assert 0.05 <= time.pauses[0] <= 0.1
    assert min(time.pauses[7:-1]) >= 2.5
    assert max(time.pauses) <= patience.LONGEST_PAUSE
    assert "WDS_PATIENCE" in error.hint


def test_no_two_clients_pause_alike(patient):
    one, other = Time(), Time()
    tries_until_given_up(waiting(one))
    tries_until_given_up(waiting(other))
    assert one.pauses != other.pauses


def test_the_patience_is_a_setting_and_an_argument(patient, monkeypatch):
    monkeypatch.setenv("WDS_PATIENCE", "7")
    time = Time()
    tries_until_given_up(waiting(time))
    assert sum(time.pauses) == pytest.approx(7)
    time = Time()
    tries_until_given_up(waiting(time, seconds=3))
    assert sum(time.pauses) == pytest.approx(3)


def test_a_setting_that_is_no_number_is_an_error(monkeypatch):
    for name, read in (("WDS_PATIENCE", "patience"), ("WDS_RETRIES", "retries")):
        monkeypatch.setenv(name, "long")
        with pytest.raises(ValueError, match=name):
            getattr(Environment(), read)


def test_retries_in_a_row_can_be_limited_by_an_argument_and_by_a_setting(patient, monkeypatch):
    assert tries_until_given_up(waiting(Time(), retries=2))[0] == 3
    assert tries_until_given_up(waiting(Time(), retries=0))[0] == 1
    monkeypatch.setenv("WDS_RETRIES", "1")
    assert tries_until_given_up(waiting(Time()))[0] == 2


def test_without_patience_there_is_one_try(patient):
    number, error = tries_until_given_up(waiting(Time(), seconds=0))
    assert (number, str(error)) == (1, "it failed")


def test_progress_gives_the_whole_patience_again(patient):
    time = Time()
    wait = waiting(time, seconds=10)
    for _ in range(5):
        for _ in range(6):
            wait.pause("it failed")
        wait.renew()
    assert sum(time.pauses) > 10
    tries_until_given_up(wait)


def test_an_answer_without_a_byte_is_no_progress(patient):
    time = Time()
    wait = waiting(time, seconds=10)

    def answer_for_ever():
        while True:
            wait.pause("the body was cut")
            wait.answered()

    with pytest.raises(RetriesExhaustedError):
        answer_for_ever()
    assert sum(time.pauses) == pytest.approx(10)


def test_a_server_that_asks_for_time_gets_it_within_the_patience_and_a_limit(patient):
    time = Time()
    wait = waiting(time, seconds=500)
    wait.pause("503", retry_after=30)
    wait.pause("503", retry_after=10_000)
    assert time.pauses == [30, patience.LONGEST_RETRY_AFTER]
    time = Time()
    waiting(time, seconds=20).pause("503", retry_after=60)
    assert time.pauses == [20]


def test_a_patience_travels_to_other_processes():
    assert pickle.loads(pickle.dumps(Patience(3, 2))) == Patience(3, 2)


# -- what is counted and told ----------------------------------------------------------------------


def test_retries_waits_and_seconds_are_counted(patient):
    report, time = Report(), Time()
    with report.in_force():
        wait = waiting(time)
    for _ in range(3):
        wait.pause("it failed")
    wait.renew()
    wait.pause("it failed")
    counts = report.as_dict()
    assert (counts["retries"], counts["waits"]) == (4, 2)
    assert counts["wait_seconds"] == pytest.approx(sum(time.pauses), abs=0.001)


def test_a_body_that_is_cut_and_goes_on_is_counted_but_not_worth_a_line(patient, server):
    url = server.cut("/a.tar", SHARD, [1000, 2000], ETag='"1"')
    data = wds.WebDataset(url, shardshuffle=False)
    assert [sample["__key__"] for sample in data] == KEYS
    assert data.stats()["retries"] == 2
    assert patient.lines == []


def test_one_line_tells_that_waiting_begins_and_one_that_it_is_over(patient):
    time = Time()
    wait = waiting(time, "http://me:secret@host/a.tar?token=abc", seconds=50)
    for _ in range(5):
        wait.pause("the connection failed")
    wait.renew()
    [begun], [over] = patient.begun, patient.over
    assert begun.startswith("http://***@host/a.tar?token=***: ")
    assert ("the connection failed" in begun, " 50 s" in begun) == (True, True)
    assert over.startswith("http://***@host/a.tar?token=***:")
    assert f" {sum(time.pauses):.1f} s" in over


def test_streams_that_wait_for_the_same_server_have_one_outage(patient):
    time = Time()
    waits = [waiting(time, f"http://host/{i}.tar", "host") for i in range(4)]
    other = waiting(time, "http://other/a.tar", "other")
    for wait in [*waits, *waits, other]:
        wait.pause("it failed")
    for wait in [*waits, other]:
        assert len(patient.over) == 0 or wait is other
        wait.renew()
    assert [line.split(":")[1] for line in patient.begun] == ["//host/0.tar", "//other/a.tar"]
    assert [line.split(":")[1] for line in patient.over] == ["//host/3.tar", "//other/a.tar"]


def test_who_gives_up_or_leaves_does_not_say_that_it_is_over(patient):
    gone, given_up, closed = (waiting(Time(), server=name, seconds=5) for name in "abc")
    for wait in (gone, given_up, closed):
        wait.pause("it failed")
    tries_until_given_up(given_up)
    closed.close()
    del gone, wait
    assert len(patient.begun) == 3
    assert patient.over == []
    for name in "abc":  # and the next outage is told of again
        waiting(Time(), server=name).pause("it failed")
    assert len(patient.begun) == 6


# -- what is waited for ----------------------------------------------------------------------------


def test_a_server_that_says_when_is_asked_then(patient, server, monkeypatch):
    pauses = []
    monkeypatch.setattr(Stop, "wait", lambda _, seconds: pauses.append(seconds) or False)
    url = server.status("/a.tar", 503, 429, then=b"data", Retry_After="7")
    with gopen(url) as stream:
        assert stream.read() == b"data"
    assert pauses == [7, 7]


def test_patience_ends_with_an_error_that_says_how_often_and_why(patient, mortal_server):
    with pytest.raises(UnavailableError, match="refused") as raised:
        gopen(mortal_server.url("a.tar"), patience=0.2, **QUICK)
    assert (raised.value.status, raised.value.retryable) == (None, True)
    assert raised.value.hint
    assert len(patient.begun) == 1
    assert patient.over == []


# -- a server that dies and comes back -------------------------------------------------------------


def test_a_server_that_is_not_up_yet_is_waited_for(patient, mortal_server):
    (mortal_server.folder / "a.tar").write_bytes(SHARD)
    patient.then(mortal_server.start)
    data = wds.WebDataset(mortal_server.url("a.tar"), shardshuffle=False)
    assert [sample["__key__"] for sample in data] == KEYS
    assert len(patient.begun) == len(patient.over) == 1
    assert data.stats()["waits"] == 1
    assert data.stats()["wait_seconds"] > 0
    assert data.stats()["shards_retried"] == 1


def test_a_server_that_is_killed_in_the_middle_of_a_shard_and_comes_back_loses_nothing(patient, mortal_server):
    (mortal_server.folder / "a.tar").write_bytes(SHARD)
    mortal_server.start(stop_after=100_000)
    data = wds.WebDataset(mortal_server.url("a.tar"), shardshuffle=False)
    samples = iter(data)
    found = [next(samples)["__key__"]]
    mortal_server.wait_until_stopped()
    mortal_server.kill()
    patient.then(mortal_server.start)
    found += [sample["__key__"] for sample in samples]
    assert found == KEYS
    assert len(patient.begun) == len(patient.over) == 1
    assert data.stats()["retries"] >= 2  # the body that was cut, and at least one connection that was refused


def test_a_server_that_is_killed_under_several_connections_has_one_outage(patient, make_fault_proxy, server):
    from webdataset.storage.http.reader import ParallelReader

    data = os.urandom(1 << 20)
    server.parts("/a.tar", data)
    proxy = make_fault_proxy(server.port)
    with ParallelReader(HttpStream(proxy.url("/a.tar")), 4, 64 << 10) as stream:
        found = stream.read(1000)
        proxy.down()
        patient.then(proxy.up)
        found += stream.read()
    assert found == data
    assert len(patient.begun) == len(patient.over) == 1


def test_the_size_and_the_parts_of_an_object_are_waited_for(patient, mortal_server):
    (mortal_server.folder / "a.tar").write_bytes(SHARD)
    patient.then(mortal_server.start)
    with RangeReader(mortal_server.url("a.tar")) as reader:
        assert reader.size == len(SHARD)
        mortal_server.kill()
        patient.began.clear()
        patient.then(mortal_server.start)
        assert reader.read(512, 1024) == SHARD[512:1024]
    assert len(patient.begun) == len(patient.over) == 2


def test_an_exact_dataset_waits_for_its_indices_and_its_samples(patient, mortal_server, own_cache):
    for name in ("a.tar", "b.tar"):
        (mortal_server.folder / name).write_bytes(SHARD)
    patient.then(mortal_server.start)
    data = wds.WebDataset([mortal_server.url(name) for name in ("a.tar", "b.tar")], exact=True)
    assert len(data) == 1000
    mortal_server.kill()
    patient.began.clear()
    patient.then(mortal_server.start)
    assert sorted(sample["__key__"] for sample in data) == sorted(2 * KEYS)
    assert data.stats()["waits"] >= 1
    assert data[7]["__key__"] == KEYS[7]


def test_the_cache_waits_for_what_it_fetches(patient, mortal_server, tmp_path):
    (mortal_server.folder / "a.tar").write_bytes(SHARD)
    mortal_server.start(stop_after=100_000)
    data = wds.WebDataset(mortal_server.url("a.tar"), shardshuffle=False, cache_dir=str(tmp_path / "cache"))
    samples = iter(data)
    found = [next(samples)["__key__"]]
    mortal_server.wait_until_stopped()
    mortal_server.kill()
    patient.then(mortal_server.start)
    found += [sample["__key__"] for sample in samples]
    assert found == KEYS
    mortal_server.kill()
    assert [sample["__key__"] for sample in data] == KEYS


def test_a_copy_in_the_cache_is_used_soon_if_its_server_is_down(patient, mortal_server, tmp_path, monkeypatch):
    (mortal_server.folder / "a.tar").write_bytes(SHARD)
    mortal_server.start()
    monkeypatch.setenv("WDS_CACHE_CHECK", "1")
    monkeypatch.setenv("WDS_PATIENCE", "600")
    data = wds.WebDataset(mortal_server.url("a.tar"), shardshuffle=False, cache_dir=str(tmp_path / "cache"))
    assert len(list(data)) == 500
    mortal_server.kill()
    assert len(list(data)) == 500


def test_what_worker_processes_wait_is_added_up(patient, server):
    urls = [server.status(f"/{name}.tar", 503, 503, then=SHARD) for name in "ab"]
    loader = wds.WebLoader(wds.WebDataset(urls, shardshuffle=False), batch_size=None, num_workers=2)
    assert sorted(sample["__key__"] for sample in loader) == sorted(2 * KEYS)
    stats = loader.stats()
    assert (stats["waits"], stats["retries"]) == (2, 4)
    assert stats["wait_seconds"] > 0


def test_a_shard_that_never_comes_does_not_hold_the_others_for_longer_than_the_patience(patient, server, monkeypatch):
    monkeypatch.setenv("WDS_PATIENCE", "0.3")
    urls = [server.whole("/a.tar", SHARD), server.status("/b.tar", 503), server.whole("/c.tar", SHARD)]
    data = wds.WebDataset(urls, shardshuffle=False, handler=wds.ignore_and_continue)
    assert [sample["__key__"] for sample in data] == 2 * KEYS
    assert data.stats()["shards_skipped"] == 1


def test_a_file_of_another_machine_is_waited_for(patient, ssh, tmp_path, make_fault_proxy):
    path = tmp_path / "a.tar"
    path.write_bytes(SHARD)
    proxy = make_fault_proxy(ssh.port)
    proxy.down()
    patient.then(proxy.up)
    with gopen(ssh.url(path, port=proxy.port)) as stream:
        assert stream.read() == SHARD
    assert len(patient.begun) == len(patient.over) == 1


# -- what ends a wait ------------------------------------------------------------------------------


@pytest.fixture
def endless(patient, monkeypatch):
    monkeypatch.setenv("WDS_PATIENCE", "1000000")
    return patient


def in_background(function):
    outcome = []

    def run():
        try:
            outcome.append(function())
        except BaseException as exn:
            outcome.append(exn)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_closing_a_stream_ends_its_wait(endless, mortal_server):
    (mortal_server.folder / "a.tar").write_bytes(SHARD)
    mortal_server.start(stop_after=1000)
    stream = HttpStream(mortal_server.url("a.tar"))
    assert len(stream.read(1000)) == 1000
    mortal_server.kill()
    thread, outcome = in_background(stream.read)
    endless.began.wait(60)
    stream.abort()
    thread.join(60)
    assert isinstance(outcome[0], ValueError)


def test_leaving_a_dataset_ends_the_wait_for_its_next_shard(endless, mortal_server, server, no_thread_is_left):
    urls = [server.whole("/a.tar", SHARD), mortal_server.url("b.tar")]
    samples = iter(wds.WebDataset(urls, shardshuffle=False))
    next(samples)
    endless.began.wait(60)  # the next shard is opened ahead of time
    samples.close()


def test_leaving_a_dataset_that_is_read_by_threads_ends_their_waits(endless, mortal_server, server, no_thread_is_left):
    urls = [server.whole("/a.tar", SHARD), mortal_server.url("b.tar")]
    loader = wds.WebLoader(wds.WebDataset(urls, shardshuffle=False), batch_size=None, num_workers=2, workers="thread")
    samples = iter(loader)
    next(samples)
    endless.began.wait(60)
    samples.close()


def test_closing_a_reader_of_parts_ends_the_wait_for_its_size(endless, mortal_server):
    reader = RangeReader(mortal_server.url("a.tar"))
    thread, outcome = in_background(lambda: reader.size)
    endless.began.wait(60)
    reader.close()
    thread.join(60)
    assert isinstance(outcome[0], ValueError)


def test_one_shard_that_cannot_be_indexed_ends_the_wait_for_the_others(endless, mortal_server, server, own_cache):
    urls = [mortal_server.url("b.tar"), server.url("/missing.tar")]
    server.routes["/missing.tar"] = lambda request: endless.began.wait(60) and request.send_error(404)
    with pytest.raises(MissingShardError):
        wds.index(urls)


def test_ctrl_c_ends_a_wait(mortal_server):
    program = "import sys, webdataset as wds; list(wds.WebDataset(sys.argv[1], shardshuffle=False))"
    environment = os.environ | {"WDS_PATIENCE": "1000000"}
    del environment["WDS_RETRIES"]
    command = [sys.executable, "-c", program, mortal_server.url("a.tar")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert "1e+06" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.stderr.read()


def test_a_stop_reaches_what_was_made_under_it_and_nothing_else():
    outer, apart = Stop(), Stop()
    with outer.in_force():
        inner = Stop()
        long_lived = Stop.apart()
        with inner.in_force():
            innermost = Stop()
    outer.set()
    assert [stop.is_set() for stop in (outer, inner, innermost, apart, long_lived)] == [True, True, True, False, False]
    with outer.in_force():
        assert Stop().is_set()
