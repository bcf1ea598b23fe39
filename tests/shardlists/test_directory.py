"""A folder as a queue: what becomes of a shard whose consumer stops, is killed, or runs on another machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from webdataset.shardlists import (
    DirectoryShardList,
    get_pid_from_filename,
)
from webdataset.shardlists.claims import Claim

CONSUMER = """
import sys, webdataset as wds
samples = iter(wds.WebDataset(sys.argv[1], mode=sys.argv[2], shardshuffle=False))
print(next(samples)["__key__"], flush=True)
samples.close()
print("stopped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def consumer() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a program that takes one sample out of a folder, stops, and lives on."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, mode: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CONSUMER, f"{folder}/", mode]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"000000\n"
        assert process.stdout.readline() == b"stopped\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def claims_in(folder: Path) -> dict[str, int]:
    """The claimed shards of a folder, and who has them."""
    claims = {path.name: Claim.of_name(path.name) for path in folder.iterdir()}
    return {name.partition("._")[0]: claim.pid for name, claim in claims.items() if claim is not None}


@pytest.mark.parametrize("mode", ["unlink", "keep"])
def test_a_shard_whose_consumer_stops_stays_claimed_until_its_process_is_gone(
    make_shard: Any, tmp_path: Path, consumer: Any, mode: str
) -> None:
    make_shard("q/a.tar", samples=10)
    process = consumer(tmp_path / "q", mode)
    assert claims_in(tmp_path / "q") == {"a.tar": process.pid}
    assert list(DirectoryShardList(tmp_path / "q", poll=None, mode=mode)) == []
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, but is still in the table of processes
    shards = DirectoryShardList(tmp_path / "q", poll=None, mode=mode)
    samples = [sample["__key__"] for sample in wds.DataPipeline(shards, wds.tarfile_to_samples())]
    assert samples == [f"{i:06d}" for i in range(10)]
    assert os.listdir(tmp_path / "q") == ([] if mode == "unlink" else ["a.tar._done_"])


def test_a_shard_that_goes_back_anyway_does_so_when_its_consumer_stops(
    make_shard: Any, tmp_path: Path, consumer: Any
) -> None:
    make_shard("q/a.tar")
    consumer(tmp_path / "q", "resample")
    assert os.listdir(tmp_path / "q") == ["a.tar"]


def test_a_function_decides_the_fate_of_a_shard_only_after_its_use(make_shards: Any, tmp_path: Path) -> None:
    make_shards(2)
    used: list[str] = []
    shards = iter(DirectoryShardList(tmp_path, poll=None, select="oldest", fate=used.append))
    first = next(shards)["url"]
    assert used == []
    second = next(shards)["url"]
    shards.close()
    assert used == [first]
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == sorted(map(os.path.basename, (first, second)))


def test_an_error_in_the_middle_of_a_shard_leaves_it_claimed(make_shard: Any, tmp_path: Path) -> None:
    path = Path(make_shard("a.tar"))
    path.write_bytes(path.read_bytes()[:5000])
    dataset = wds.DataPipeline(DirectoryShardList(tmp_path, poll=None, mode="unlink"), wds.tarfile_to_samples())
    with pytest.raises(wds.ShardError) as raised:
        list(dataset)
    assert raised.value.offset == 5000
    assert claims_in(tmp_path) == {"a.tar": os.getpid()}


def test_a_time_for_claims_must_be_above_zero(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="claim_timeout"):
        DirectoryShardList(tmp_path, claim_timeout=0)


def test_a_shard_that_goes_back_replaces_no_other(tmp_path: Path) -> None:
    shards = DirectoryShardList(tmp_path, poll=None, mode="resample")
    (tmp_path / "a.tar").write_text("old")
    taken = iter(shards)
    claimed = Path(next(taken)["url"])
    (tmp_path / "a.tar").write_text("new")
    taken.close()
    assert (claimed.read_text(), (tmp_path / "a.tar").read_text()) == ("old", "new")


def test_what_workers_had_begun_comes_back_when_they_are_gone(make_shards: Any, tmp_path: Path) -> None:
    """Each is in the middle of its first shard when the loader is given up."""
    make_shards(4, samples=50)
    shards = DirectoryShardList(tmp_path, poll=None, mode="unlink")
    dataset = wds.DataPipeline(shards, wds.tarfile_to_samples())
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=2, prefetch_factor=2, persistent_workers=True)
    taken = iter(loader)
    next(taken)
    assert claims_in(tmp_path)
    del taken, loader
    assert len({sample["__key__"] for sample in dataset}) == 200
    assert os.listdir(tmp_path) == []


def test_workers_use_every_shard_once(make_shards: Any, tmp_path: Path) -> None:
    make_shards(6, samples=20)
    shards = DirectoryShardList(tmp_path, poll=None, mode="unlink")
    dataset = wds.DataPipeline(shards, wds.tarfile_to_samples())
    keys = [sample["__key__"] for sample in wds.WebLoader(dataset, batch_size=None, num_workers=2)]
    assert sorted(keys) == [f"{i:06d}" for i in range(120)]
    assert os.listdir(tmp_path) == []


def queue(tmp_path, *names, **kw):
    for name in names:
        (tmp_path / name).touch()
    return DirectoryShardList(f"{tmp_path}/", poll=None, **kw)


def names(tmp_path):
    return sorted(os.listdir(tmp_path))


def test_a_queue_yields_each_shard_once_and_deletes_it(tmp_path):
    shards = queue(tmp_path, "a.tar", "b.tgz", "c.txt", mode="unlink")
    seen = []
    for shard in shards:
        assert get_pid_from_filename(shard["url"]) == os.getpid()
        assert os.path.exists(shard["url"])
        seen.append(os.path.basename(shard["url"]).rpartition("._")[0])
    assert sorted(seen) == ["a.tar", "b.tgz"]
    assert names(tmp_path) == ["c.txt"]


def test_a_queue_can_keep_what_is_done(tmp_path):
    assert len(list(queue(tmp_path, "a.tar", "b.tar", mode="keep"))) == 2
    assert names(tmp_path) == ["a.tar._done_", "b.tar._done_"]


def test_a_queue_can_go_on_for_ever_and_puts_back_what_it_holds(tmp_path):
    shards = iter(queue(tmp_path, "a.tar", "b.tar"))
    assert len(list(islice(shards, 10))) == 10
    shards.close()
    assert names(tmp_path) == ["a.tar", "b.tar"]


def test_a_queue_can_take_the_oldest_first_and_call_a_function_after(tmp_path):
    for age, name in enumerate(("c.tar", "a.tar", "b.tar")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    done = []
    for _ in queue(tmp_path, select="oldest", fate=lambda path: (done.append(path), os.unlink(path))):
        pass
    assert [os.path.basename(path)[:1] for path in done] == ["c", "a", "b"]


def test_shards_of_the_same_time_come_in_the_order_of_their_names(tmp_path):
    shards = queue(tmp_path, "d.tar", "b.tar", "a.tar", "c.tar", mode="unlink", select="oldest")
    for name in names(tmp_path):
        os.utime(tmp_path / name, ns=(5, 5))
    assert [os.path.basename(shard["url"])[:1] for shard in shards] == ["a", "b", "c", "d"]


def test_a_pattern_for_every_name_finds_no_shard_that_is_claimed_or_done(tmp_path):
    shards = queue(tmp_path, "a.tar", f"b.tar._{os.getppid()}_", "c.tar._done_", pattern="*", mode="keep")
    assert len(list(shards)) == 1
    assert names(tmp_path) == ["a.tar._done_", f"b.tar._{os.getppid()}_", "c.tar._done_"]


def test_what_a_dead_process_had_claimed_comes_back(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=lambda: None)
    process.start()
    process.join()
    shards = queue(tmp_path, f"a.tar._{process.pid}_", f"b.tar._{os.getppid()}_", mode="unlink")
    assert len(list(shards)) == 1
    assert names(tmp_path) == [f"b.tar._{os.getppid()}_"]


def test_a_queue_waits_no_longer_than_its_limit(tmp_path):
    assert list(DirectoryShardList(tmp_path, poll=0.01, timeout=0.05)) == []


@pytest.mark.parametrize("wrong", [{"mode": "x"}, {"select": "x"}])
def test_a_queue_refuses_unknown_options(tmp_path, wrong):
    with pytest.raises(ValueError, match="'x'"):
        DirectoryShardList(tmp_path, **wrong)


def test_a_link_in_place_of_a_claim_makes_no_file(tmp_path: Path) -> None:
    queue = tmp_path / "queue"
    queue.mkdir()
    (queue / "a.tar").touch()
    (queue / Claim.of_this_process().note("a.tar")).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(wds.SecurityError, match="link"):
        next(iter(DirectoryShardList(queue, poll=None)))
    assert not (tmp_path / "elsewhere").exists()
    assert (queue / "a.tar").exists()
