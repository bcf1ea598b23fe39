"""Runs an example several times, each time on some ranks that are processes of their own.

    python run_ranks.py examples/ddp.py '[{"world": 2, "arguments": ["--epochs", "1"]}, ...]'

The ranks are forked: the framework is imported once. `{rank}` in an argument is the rank. The environment is the one
that torchrun makes.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

# imported once, before the ranks are forked: DistributedDataParallel needs it, and takes a second for it
import torch._dynamo  # noqa: F401
from torch.distributed import TCPStore

from webdataset import WebDataset, WebLoader  # noqa: F401


def main(path: str, runs: str) -> int:
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules["example"] = example
    spec.loader.exec_module(example)
    return max(run(example, **each) for each in json.loads(runs))


def run(example: Any, world: int, arguments: list[str]) -> int:
    """Fork the ranks and wait for them all; the greatest exit status."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # here, as torchrun has it
    children = [fork(example, rank, world, store.port, arguments) for rank in range(world)]
    return max([abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in children])


def fork(example: Any, rank: int, world: int, port: int, arguments: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    faulthandler.dump_traceback_later(250, exit=True)  # a rank that hangs says where
    try:
        given = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "NODE_RANK": 0}
        given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        given |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
        os.environ.update({name: str(value) for name, value in given.items()})
        example.main([argument.replace("{rank}", str(rank)) for argument in arguments])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
