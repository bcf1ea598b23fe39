"""Trains with checkpoints every few batches, killed with SIGKILL at random moments, until the epoch is done.

    python killed.py URLS FOLDER SEED 2,1,3    two ranks until one of them is killed, then one, then three until the end

What stands for a model is the list of all keys that it was trained on, in `account.json`, together with the state of
the loader. A checkpoint is a file of each rank; it counts if all ranks have written theirs.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import TCPStore

import webdataset as wds

EVERY = 2
"""Batches from checkpoint to checkpoint."""


def main(urls: str, folder: str, seed: str, worlds: str) -> None:
    """Life after life: all but the last are ended by a kill, unless they come to the end of the epoch before."""
    chance, kills = random.Random(seed), 0
    sizes = [int(size) for size in worlds.split(",")]
    for life, world in enumerate(sizes):
        ranks, ports = start_ranks(urls, folder, world)
        # here, as torchrun has it; its threads must not run while ranks are forked, which would inherit their locks
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        for port in ports:
            with port:
                port.write(f"{store.port}\n")
        if life < len(sizes) - 1:
            kills += kill_one(ranks, chance)
        done = [wait(child) == 0 for child, _ in ranks]
        del store
        add_to_account(Path(folder), world)
        if all(done):
            break
    sys.stdout.write(f"{kills} {'done' if all(done) else 'not done'}\n")


def start_ranks(urls: str, folder: str, world: int) -> tuple[list[tuple[int, Any]], list[Any]]:
    """Fork them: (process, the stream to which it writes a line for each batch), and streams that take the port."""
    ranks, ports = [], []
    for rank in range(world):
        reading, writing = os.pipe()
        told, telling = os.pipe()
        child = os.fork()
        if not child:
            os.close(telling)
            with os.fdopen(told) as stream:
                port = int(stream.readline())
            given = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            given |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
            os.environ.update({name: str(value) for name, value in given.items()})
            live(urls, Path(folder), os.fdopen(writing, "w", buffering=1))
        os.close(writing)
        os.close(told)
        ranks.append((child, os.fdopen(reading)))
        ports.append(os.fdopen(telling, "w"))
    return ranks, ports


def kill_one(ranks: list[tuple[int, Any]], chance: random.Random) -> int:
    """Kill a rank after some batches, at any moment; then the others, which wait for it or have failed."""
    child, lines = chance.choice(ranks)
    for _ in range(1 + chance.randrange(10 // len(ranks))):
        if not lines.readline():
            return 0
    time.sleep(chance.uniform(0, 0.01))  # anywhere between two batches
    for victim in (child, *(other for other, _ in ranks if other != child)):
        os.kill(victim, signal.SIGKILL)
    return 1


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def live(urls: str, folder: Path, lines: Any) -> None:
    """A rank, from the account on to the end of the epoch."""
    faulthandler.dump_traceback_later(90, exit=True)  # the test prints where it hung
    status = 1
    try:
        train(urls, folder, lines)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def train(urls: str, folder: Path, lines: Any) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = wds.WebDataset(urls, exact=True, seed=3, remainder="uneven").decode().to_tuple("__key__", "__real__")
    loader = wds.WebLoader(dataset.batched(2), batch_size=None, num_workers=2)
    state = read(folder / "account.json").get("state")
    if state is not None:
        loader.load_state_dict(state)
    keys: list[str] = []
    for step, (names, real) in enumerate(loader, 1):
        keys += [name for name, counts in zip(names, real, strict=True) if counts]
        if step % EVERY == 0:
            write(folder / f"rank-{rank}-step-{step:04d}.json", {"keys": keys, "state": loader.state_dict()})
        dist.barrier()
        print(step, file=lines)
    write(folder / f"rank-{rank}-step-9999.json", {"keys": keys, "state": loader.state_dict()})
    dist.barrier()
    dist.destroy_process_group()


def add_to_account(folder: Path, world: int) -> None:
    """The latest checkpoint that all ranks have written becomes part of the account."""
    steps = [{path.name.split("-")[3] for path in folder.glob(f"rank-{rank}-step-*.json")} for rank in range(world)]
    common = set.intersection(*steps)
    if common:
        saved = [read(folder / f"rank-{rank}-step-{max(common)}") for rank in range(world)]
        keys = read(folder / "account.json").get("keys", []) + [key for one in saved for key in one["keys"]]
        write(folder / "account.json", {"keys": keys, "state": wds.merge_states([one["state"] for one in saved])})
    for path in folder.glob("rank-*"):
        path.unlink()


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, content: dict[str, Any]) -> None:
    """All of it or nothing, whenever the process is killed."""
    new = path.with_suffix(".new")
    with new.open("w") as stream:
        json.dump(content, stream)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
