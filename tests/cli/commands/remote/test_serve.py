"""wl serve, mon, stat, keygen, and wl show of what is served: as processes, as users start them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import webdataset as wds
from remote_support import write_shards
from terminals import session

PROGRAM = """
import numpy as np
import webdataset as wds

def picture(sample):
    number = int(sample["cls"])
    return {**sample, "image": np.full((8, 8, 3), number, np.uint8)}

shards = "{folder}/s-{{0000..0002}}.tar"
dataset = wds.WebDataset(shards, exact=True, seed=5).map(picture).to_tuple("image", "__key__").batched(4)
stream = wds.WebDataset(shards, shardshuffle=False).map(picture).to_tuple("image").batched(4)
number = 3

def build():
    return dataset

def broken():
    raise KeyError("no such corpus")
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    write_shards(folder)
    path = folder / "program.py"
    path.write_text(PROGRAM.replace("{folder}", str(folder)).replace("{{", "{").replace("}}", "}"))
    return path


class Serving:
    """A `wl serve` that runs."""

    def __init__(self, *words: object, producers: int = 1) -> None:
        command = [sys.executable, "-m", "webdataset", "serve", *map(str, words)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.urls = []
        while len(self.urls) < producers:
            line = self.process.stderr.readline()
            assert line, "it ended"
            self.urls += re.findall(r"serving at (\S+)", line)

    def end(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()


@pytest.fixture(scope="module")
def serving(program):
    with Serving(f"{program}:dataset", "--bind", "tcp://127.0.0.1:0") as running:
        yield running.urls[0]


def test_a_program_is_served_and_ends_when_it_is_asked_to(program) -> None:
    with Serving(f"{program}:build", "--bind", "tcp://127.0.0.1:0") as running:
        with wds.RemoteLoader(running.urls, patience=60) as loader:
            assert len(list(loader)) == 33
        assert running.end() == 143


def test_several_processes_serve_and_one_that_dies_is_started_again(program, tmp_path) -> None:
    address = f"ipc://{tmp_path}/s"
    with Serving(f"{program}:dataset", "--bind", address, "-P", "2", producers=2) as running:
        assert sorted(running.urls) == [f"{address}-0", f"{address}-1"]
        tasks = Path(f"/proc/{running.process.pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text().split()]
        with wds.RemoteLoader(running.urls, patience=60) as loader:
            batches = iter(loader)
            next(batches)
            os.kill(int(children[0]), signal.SIGKILL)
            assert len(list(batches)) == 32
        line = running.process.stderr.readline()
        assert "serving at" in line


def test_mon_says_what_a_producer_does(wl, serving) -> None:
    shown = wl("mon", "-c", 1, serving)
    assert shown.code == 0
    assert b"batches/s" in shown.out
    facts = json.loads(wl("mon", "-c", 1, "--json", serving).out)
    assert facts["url"] == serving
    assert facts["readers"] == []


def test_the_name_of_a_job_cannot_give_orders_to_a_terminal(program) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "webdataset", "serve", f"{program}:dataset", "--bind", "tcp://127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=theirs)
    os.close(theirs)
    try:
        shown = until(ours, r"serving at (\S+)")
        url = re.search(r"serving at (\S+)", shown)[1]
        with wds.RemoteLoader([url], patience=60, job="\x1b]0;title\x07") as loader:
            batches = iter(loader)
            next(batches)
            shown = until(ours, "title.* rank 0 of 1") + session("mon", "-c", 1, url).written
            assert shown.count("rank 0 of 1") >= 2
            assert "\x1b]" not in shown
            assert "\x07" not in shown
    finally:
        process.terminate()
        while select.select([ours], [], [], 60)[0]:  # a terminal that nobody reads would hold the process up
            try:
                os.read(ours, 1 << 16)
            except OSError:
                break
        process.wait(60)
        os.close(ours)


def until(stream: int, pattern: str) -> str:
    """What a terminal shows until this is there."""
    shown = ""
    while not re.search(pattern, shown):
        assert select.select([stream], [], [], 60)[0], shown
        shown += os.read(stream, 1 << 16).decode()
    return shown


def test_stat_summarizes_batches(wl, serving) -> None:
    found = json.loads(wl("stat", "--json", "-c", 33, serving).out)
    assert found["0"]["min"] == 0
    assert found["0"]["max"] == 128
    assert found["0"]["n"] == 129 * 8 * 8 * 3
    assert found["0"]["mean"] == pytest.approx(64)
    assert found["0"]["std"] == pytest.approx(np.arange(129).std())
    assert found["0"]["kinds"] == {"uint8 (4, 8, 8, 3)": 32, "uint8 (1, 8, 8, 3)": 1}
    text = wl("stat", "-c", 2, serving).out.decode()
    assert "list of 4 x2" in text


def test_show_draws_the_images_of_batches(wl, serving, tmp_path) -> None:
    shown = wl("show", "-c", 2, "--protocol", "blocks", serving)
    assert shown.code == 0
    assert "0.png:" in shown.out.decode()
    assert "batch 0, sample 1" in shown.out.decode()
    wl("show", "-c", 5, "--html", tmp_path / "page.html", serving)
    assert (tmp_path / "page.html").read_text().count("data:image/png") == 5


def test_a_stream_is_served_and_watched(program, tmp_path, wl) -> None:
    url = f"+ipc://{tmp_path}/z"
    command = [sys.executable, "-m", "webdataset", "serve", f"{program}:stream", "--bind", f"zrpush{url}"]
    with subprocess.Popen(command) as sending:
        shown = wl("mon", "-i", 0.0001, f"zrpull{url}")
        assert "33 batches" in shown.out.decode()
        assert sending.wait(60) == 0


def test_keys_are_made_and_used(wl, program, tmp_path) -> None:
    server, client = tmp_path / "serve.key", tmp_path / "train.key"
    assert wl("keygen", server, client).code == 0
    with Serving(f"{program}:dataset", "--bind", "tcp://127.0.0.1:0", "--keys", server) as running:
        assert wl("mon", "-c", 1, running.urls[0], "--keys", client).code == 0
        refused = wl("mon", "-c", 1, running.urls[0])
        assert (refused.code, running.urls[0] in refused.err, "keys" in refused.err) == (1, True, True)
    again = wl("keygen", server, client)
    assert (again.code, f"[url {client}]" in again.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["{program}:nothing"], 1, "dataset, stream"),
        (["{program}:number"], 1, " int"),
        (["{program}:broken"], 1, "line 18 failed: KeyError: 'no such corpus'"),
        (["{program}"], 1, "program.py:dataset"),
        (["nowhere.py:dataset"], 1, "'nowhere.py'"),
        (["no_such_module:dataset"], 1, "'no_such_module'"),
        (["{folder}/bad.py:dataset"], 1, "bad.py, line 3 failed: ZeroDivisionError"),
        (["{folder}/syntax.py:dataset"], 1, "syntax.py, line 2 failed: SyntaxError"),
        (["{program}:stream"], 1, "exact"),
        (["{program}:dataset", "--bind", "tcp://0.0.0.0:0"], 1, "keys"),
        (["{program}:dataset", "--bind", "http://a"], 2, "http://a"),
        (["{program}:dataset", "--keys", "{program}"], 1, "no keys"),
        (["{program}:dataset", "-P", "2", "--bind", "tcp://0.0.0.0:0"], 1, "keys"),
    ],
)
def test_a_mistake_is_one_line(wl, program, words, code, named) -> None:
    (program.parent / "bad.py").write_text("x = 1\n\ny = x / 0\n")
    (program.parent / "syntax.py").write_text("x = 1\ny = = 2\n")
    words = [word.format(program=program, folder=program.parent) for word in words]
    ended = wl("serve", *words)
    assert (ended.code, ended.err.count("\n")) == (code, 1)
    assert named in ended.err


def test_an_address_in_use_is_one_line(wl, program, serving) -> None:
    ended = wl("serve", f"{program}:dataset", "--bind", serving)
    assert (ended.code, ended.err.count("\n"), serving in ended.err) == (1, 1, True)
