"""Producers and trainers as processes of their own, for tests: forked from a server that has everything imported."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from typing import Any

import webdataset as wds
from tests_support import tar_bytes
from waiting import soon

BATCH = 4
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["numpy", "msgpack", "zmq", "webdataset.dataset", "webdataset.exact.runner", "webdataset.remote.loader"]
    + ["webdataset.remote.serving", "webdataset.autodecode", "webdataset.codecs.table", "logging"]
)


def write_shards(folder, sizes=(40, 56, 33), bytes_each=20):
    """Shards with so many samples each, numbered throughout."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for shard, size in enumerate(sizes):
        files = []
        for _ in range(size):
            files += [(f"{number:05d}.cls", b"%d" % number), (f"{number:05d}.bin", bytes(bytes_each))]
            number += 1
        (folder / f"s-{shard:04d}.tar").write_bytes(tar_bytes(files))
    return [str(folder / f"s-{shard:04d}.tar") for shard in range(len(sizes))]


def dataset(urls, batch=BATCH, **options):
    """The pipeline that producers serve: keys and numbers."""
    whole = options.pop("partial", True)
    options = {"seed": 5, "lanes": 2, "shuffle_bytes": 4000, "block_bytes": 1000, **options}
    return wds.WebDataset(urls, exact=True, **options).decode().to_tuple("__key__", "cls").batched(batch, partial=whole)


class Paced:
    """Takes its time for a batch, of keys."""

    def __init__(self, seconds) -> None:
        self.seconds = seconds

    def __call__(self, samples):
        time.sleep(self.seconds)
        return ([name for (name,) in samples],)


def keys(batches):
    return [list(batch[0]) for batch in batches]


def flat(batches):
    return [key for batch in batches for key in batch]


def serve_until_killed(make, args, address, options, bound):
    """What a producer's process does."""
    wds.serve(make(*args), address, **{"threads": 2, **options}, bound=bound.send)


class Fleet:
    """Some producers, each a process; `urls` are their addresses, which stay when a producer is started again."""

    def __init__(self, count: int, make: Any, *args: Any, address: str = "tcp://127.0.0.1:0", **options: Any) -> None:
        self._what = make, args, options
        self.processes: list[Any] = [None] * count
        self.urls = [address] * count
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        make, args, options = self._what
        here, there = CONTEXT.Pipe(duplex=False)
        self.processes[number] = process = CONTEXT.Process(
            target=serve_until_killed, args=(make, args, self.urls[number], options, there), daemon=True
        )
        process.start()
        there.close()
        assert here.poll(60), "the producer does not start"
        self.urls[number] = here.recv()

    def kill(self, number: int) -> None:
        os.kill(self.processes[number].pid, signal.SIGKILL)
        self.processes[number].join()

    def pause(self, number: int) -> None:
        os.kill(self.processes[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        os.kill(self.processes[number].pid, signal.SIGCONT)

    def close(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def train_until_killed(urls, journal, rank, world, options):
    """What a trainer's process does: it notes the keys of every batch, together with the state after it."""
    loader = wds.RemoteLoader(urls, rank=rank, world_size=world, timeout=5, patience=60, **options)
    seen = noted(journal)
    if seen:
        loader.load_state_dict(seen[-1]["state"])
    with open(journal, "a", encoding="ascii") as file:
        for names, _ in loader:
            file.write(json.dumps({"keys": list(names), "state": loader.state_dict()}) + "\n")
            file.flush()
        file.write("done\n")


def noted(journal):
    """The whole lines of a journal."""
    return [json.loads(line) for line in _text(journal).split("\n")[:-1] if line != "done"]


def is_done(journal) -> bool:
    return _text(journal).endswith("done\n")


def _text(journal) -> str:
    with suppress(FileNotFoundError), open(journal, encoding="ascii") as file:
        return file.read()
    return ""


def repair(journal) -> None:
    """Cut a line that was being written when its writer was killed."""
    with suppress(FileNotFoundError), open(journal, "rb+") as file:
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)


def trainer(urls, journal, rank=0, world=1, **options):
    process = CONTEXT.Process(target=train_until_killed, args=(urls, journal, rank, world, options), daemon=True)
    process.start()
    return process


def wait_for_batches(journal, count) -> bool:
    return soon(lambda: _text(journal).count("\n") >= count)
