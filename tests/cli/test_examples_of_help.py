"""The examples at the top of each command's help, run as they are written, with stand-ins for their data."""

from __future__ import annotations

import http.server
import io
import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from servers.programs import free_port, needs_programs_of
from tests_support import SCRIPTS, tar_bytes
from webdataset.cli import COMMANDS
from webdataset.cli.running import command_module

PARTS = re.compile(r"(?:http://server/|s3://bucket/|gs://bucket/)")
NOT_HERE = {"gsutil": "cp $2 $3", "display": "cat > /dev/null"}
"""Programs of the examples that a machine need not have, as scripts."""

SHARDS = "in a b big train p"

PROGRAM = """
import webdataset as wds
dataset = wds.WebDataset("train.tar", exact=True).decode().to_tuple("__key__", "cls").batched(4)
"""


@cache
def picture(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)).save(stream, kind)
    return stream.getvalue()


@cache
def shard(first: int, field: str = "jpg") -> bytes:
    files = []
    for i in range(first, first + 20):
        files += [
            (f"{i:06d}.{field}", picture("PNG" if field == "png" else "JPEG")),
            (f"{i:06d}.cls", b"%d" % (i % 10)),
        ]
        files += [(f"{i:06d}.txt", b"a text that is long"), (f"{i:06d}.caption.txt", b"c"), (f"{i:06d}.json", b"[1]")]
    return tar_bytes(files)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the examples name."""
    monkeypatch.chdir(tmp_path)
    for folder in ("data/train", "photos/cat", "more/cat", "images", "bucket/data", "cache", "bin"):
        Path(folder).mkdir(parents=True)
    Path(".config/fish/completions").mkdir(parents=True)
    Path("classes.txt").write_text("cat\n")
    for name in SHARDS.split():
        Path(f"{name}.tar").write_bytes(shard(0))
    for name in ("photos/cat/a.jpg", "more/cat/a.jpg", "photo.jpg", "data/train/x.jpg"):
        Path(name).write_bytes(picture("JPEG"))
    Path(".cache/shards").mkdir(parents=True)
    for name, script in NOT_HERE.items():
        Path(f"bin/{name}").write_text(f"#!/bin/sh\n{script}\n")
        os.chmod(f"bin/{name}", 0o755)
    Path("bin/wl").symlink_to(f"{SCRIPTS}/wl")
    return tmp_path


@pytest.fixture
def server(here: Path) -> Iterator[str]:
    """The folder over http."""
    handler = partial(Quiet, directory=str(here))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/"
        serving.shutdown()


@pytest.fixture
def producer(here: Path) -> Iterator[str]:
    """The address of a producer for the examples that talk to one."""
    command = ["bin/wl", "serve", "program.py:dataset", "--bind", "tcp://127.0.0.1:0", "--keys", "serve.key"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        yield serving.stderr.readline().split()[4]
        serving.terminate()
        serving.stderr.read()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


EXAMPLES = [(name, n) for name in COMMANDS for n in range(2)]


@pytest.mark.parametrize(("name", "number"), EXAMPLES, ids=[f"{name}-{n}" for name, n in EXAMPLES])
def test_an_example_runs_as_written(
    here: Path, server: str, name: str, number: int, request: pytest.FixtureRequest
) -> None:
    line = command_module(name).EXAMPLES[number][0]
    needs_programs_of(line)
    line = line.replace("{000000..000999}", "{000000..000099}")  # fewer shards, or half of the time is their making
    for found in re.findall(r"([a-z]+-)\{(\d+)\.\.(\d+)\}\.tar", line):
        digits, last = len(found[1]), int(found[2])
        for i in range(last + 1):
            path = Path(f"{found[0]}{i:0{digits}d}.tar")
            if i < 100:
                path.write_bytes(shard(20 * i))
            else:  # of a thousand, most may be the same
                path.hardlink_to(f"{found[0]}{i % 100:0{digits}d}.tar")
    for found in re.findall(r"server/([a-z]+-\d+\.tar)", line):
        Path(found).write_bytes(shard(0))
    if "train-*.tar" in line:
        for i in range(4):
            Path(f"train-{i}.tar").write_bytes(shard(20 * i))
    if "wl jobs" in line:
        for i in range(10):
            Path(f"train-{i:03d}.tar").write_bytes(shard(20 * i))
    if "data/*.tar" in line:
        Path("data/one.tar").write_bytes(shard(0))
    if "sample.png" in line:
        Path("in.tar").write_bytes(shard(0, "png"))
    if "sample.jpeg" in line and "convert" not in line:
        Path("in.tar").write_bytes(shard(0, "jpeg"))
    if "--check" in line:
        subprocess.run(["bin/wl", "index", "-q", "train.tar"], check=True)
    line = line.replace("http://server/", server)
    line = re.sub(r"(s3|gs)://bucket/", f"{here}/bucket/" if "--post" in line or "--checksum" in line else server, line)
    if "wl test" in line or "wl serve" in line:
        line = line.replace(":7880", ":0") + " -t 1"
    if "program.py" in line or "tcp://cpu" in line:
        Path("program.py").write_text(PROGRAM)
        subprocess.run(["bin/wl", "keygen", "-q", "serve.key", "train.key"], check=True)
    if name == "keygen" and "train.key" not in line:
        subprocess.run(["bin/wl", "keygen", "-q", "serve.key", "train.key"], check=True)
    producer = request.getfixturevalue("producer") if "tcp://cpu" in line else ""
    line = re.sub(r"tcp://cpu\S*", producer, line)
    environment = os.environ | {
        "PATH": f"{here}/bin:{os.environ['PATH']}",
        "HOME": str(here),
        "WDS_CACHE": f"{here}/cache",
    }
    if name == "view":
        check_view(line, environment)
        return
    told = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, env=environment, timeout=100)
    assert told.returncode == 0, told.stderr.decode()
    assert b"Traceback" not in told.stderr


def check_view(line: str, environment: dict[str, str]) -> None:
    """A view prints its address, answers, and lasts until it is interrupted."""
    line = line.replace("--port 8080", f"--port {free_port()}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(["bash", "-c", f"exec {line}"], env=environment | {"BROWSER": "true"}, **pipes) as view:
        url = view.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}api/state", timeout=60) as reply:
            assert b'"title": ' in reply.read()
        view.send_signal(signal.SIGINT)
        _, told = view.communicate(timeout=60)
    assert (view.returncode, "Traceback" in told) == (0, False)
