"""Processes that map whole shards make what one process makes."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests_support import tar_bytes


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    fields = {"cls": b"%d", "jpg": jpeg(), "json": b'{"n": %d,  "spaced": true}', "txt": b"number %d"}
    files = [(f"{i:03d}.{ext}", data % i if ext != "jpg" else data) for i in range(10) for ext, data in fields.items()]
    return make_shard("in.tar", files=files)


KEYS = st.sampled_from(["a", "b", "c/d", "e.f", "ü", "g" * 60 + "/" + "h" * 60, "h\n", "-i"])


CODES = st.sampled_from(
    [
        "_",
        '_["cls"] += 1',
        "[_, {'__key__': 'x', 'txt': 'y'}]",
        "{**_, '__key__': 'same'}",
        "None if cls == 3 else _",
        "1 / (cls - 3)",
    ]
)


@example(keys=["a", "b", "c/d", "e.f"], code="{**_, '__key__': 'same'}", several=False, words=["-S", "cls != 1"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(KEYS, max_size=8, unique=True),
    code=CODES,
    several=st.booleans(),
    words=st.sampled_from(
        [["-S", "cls != 1"], ["--maxcount", 2], ["--maxsize", 700], ["--on-error", "skip"], ["--on-error", "stop"]]
    ),
)
def test_shards_of_several_processes_are_those_of_one(
    wl: Any, tmp_path: Path, *, keys: list[str], code: str, words: list[Any], several: bool
) -> None:
    files = [(f"{key}.{ext}", b"%d" % n * size) for n, key in enumerate(keys) for ext, size in (("cls", 1), ("z", 600))]
    half = len(keys) // 2 * 2 if several else 0
    for name, part in (("in-0.tar", files[half:]), ("in-1.tar", files[:half])):
        (tmp_path / name).write_bytes(tar_bytes(part))
    shards = [tmp_path / "in-1.tar", tmp_path / "in-0.tar"] if several else [tmp_path / "in-0.tar"]
    ways = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        ended = wl("map", "-P", processes, "-e", code, *words, *shards, "-o", folder / "o-%d.tar")
        told = ended.told.replace(str(folder), "")
        ways[processes] = ended.code, told, {path.name: path.read_bytes() for path in folder.iterdir()}
    assert ways[1] == ways[2]


def test_a_sample_that_cannot_be_written_is_the_same_error_from_another_process(wl: Any, shard: str) -> None:
    code = "_ if cls != 5 else {'__key__': 'bad/', 'txt': 'x'}"
    serial, parallel = wl("map", "-e", code, shard), wl("map", "-P", 2, "-e", code, shard)
    assert (serial.code, serial.err) == (parallel.code, parallel.err)
    assert "bad/" in parallel.err


@pytest.mark.parametrize("damage", [lambda data: data[:5000], lambda data: data[:1030] + b"x" + data[1031:]])
def test_a_bad_shard_is_told_by_the_process_that_reads_it(
    wl: Any, make_shards: Any, tmp_path: Path, damage: Any
) -> None:
    shards = make_shards(3, samples=20)
    Path(shards[1]).write_bytes(damage(Path(shards[1]).read_bytes()))
    for words in (["--maxcount", 5], ["--maxcount", 5, "--on-error", "skip"]):
        ways = []
        for processes in (1, 2):
            folder = tmp_path / f"{len(words)}-{processes}"
            folder.mkdir()
            ended = wl("map", "-P", processes, "-e", "_", *words, *shards, "-o", folder / "o-%d.tar")
            told = ended.told.replace(str(folder), "")
            ways.append((ended.code, told, {path.name: path.read_bytes() for path in folder.iterdir()}))
        assert ways[0] == ways[1]


def test_each_process_makes_the_function_once(wl: Any, make_shards: Any, members: Any, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(
        "import os\nopen(f'made-{os.getpid()}', 'a').write('x')\ndef transform(_): return _\n"
    )
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        assert wl("map", "-P", 2, "-l", "f.py", *make_shards(8, samples=2), "-o", "out.tar").code == 0
    finally:
        os.chdir(before)
    others = [path.read_text() for path in tmp_path.glob("made-*") if path.name != f"made-{os.getpid()}"]
    assert set(others) == {"x"}


def test_samples_of_several_processes_are_counted(wl: Any, make_shard: Any) -> None:
    shard = make_shard(samples=700)
    assert wl("map", "-v", "-P", 2, "-e", "_", shard).err.startswith("700 samples of ")
    told = wl("map", "--json", "-P", 2, "-e", "_", shard).err.split("\n")[-2]
    assert json.loads(told)["samples"] == 700
