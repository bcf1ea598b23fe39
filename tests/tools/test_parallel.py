"""Work in several processes: in order, out of order, interrupted, killed."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from garbage import left_to_this_process
from webdataset.tools.parallel import call, process_pool


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    fields = {"cls": b"%d", "jpg": jpeg(), "json": b'{"n": %d,  "spaced": true}', "txt": b"number %d"}
    files = [(f"{i:03d}.{ext}", data % i if ext != "jpg" else data) for i in range(10) for ext, data in fields.items()]
    return make_shard("in.tar", files=files)


@pytest.mark.parametrize("processes", [2, 3])
def test_parallel_is_serial(wl: Any, shard: str, processes: int) -> None:
    code = '[_, {"cls": cls, "jpg": _["jpg"]}] if cls % 3 else None'
    serial, parallel = wl("map", "-e", code, shard), wl("map", "-P", processes, "-e", code, shard)
    assert (serial.code, parallel.code) == (0, 0)
    assert serial.out == parallel.out


def test_unordered_gives_the_same_samples(wl: Any, make_shards: Any, members: Any) -> None:
    shards = make_shards(2, samples=600)
    out = members(wl("map", "-P", 2, "--unordered", "-e", "_", *shards).out)
    assert out == members(shards[0]) + members(shards[1])


@pytest.mark.parametrize("shards", [1, 2])
def test_an_interrupt_ends_the_processes(shard: str, tmp_path: Path, shards: int) -> None:
    (tmp_path / "tmp").mkdir()
    code = f"open('{tmp_path}/started', 'a').write(f'{{os.getpid()}}\\n'); __import__('time').sleep(100); _"
    argv = [
        sys.executable,
        "-m",
        "webdataset",
        "map",
        "-P",
        "2",
        "-e",
        code,
        *[shard] * shards,
        "-o",
        f"{tmp_path}/out.tar",
    ]
    child = subprocess.Popen(argv, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": f"{tmp_path}/tmp"})
    while not (tmp_path / "started").exists() or not (tmp_path / "started").read_text():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert (child.returncode, told) == (130, b"wl map: interrupted\n")
    for pid in (tmp_path / "started").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert not (tmp_path / "out.tar").exists()
    assert os.listdir(tmp_path / "tmp") == []


def test_a_process_that_dies_is_an_error(wl: Any, shard: str, tmp_path: Path) -> None:
    ended = wl("map", "-P", "2", "-e", "os._exit(3) if cls == 5 else _", shard, "-o", tmp_path / "out.tar")
    assert ended.code == 1
    assert "process" in ended.err
    assert not (tmp_path / "out.tar").exists()


def collecting() -> Callable[[object], int]:
    return lambda _: 0 * gc.collect()


def test_workers_do_not_collect_the_garbage_of_the_program(tmp_path: Path) -> None:
    with left_to_this_process(tmp_path), process_pool(2, collecting) as pool:
        assert list(pool.map(call, range(4))) == [0] * 4
