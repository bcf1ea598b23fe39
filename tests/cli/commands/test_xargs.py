"""wl xargs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shard(make_shard: Any) -> str:
    files = [(f"{i:03d}.{ext}", f"{ext}{i}".encode()) for i in range(10) for ext in ("cls", "txt")]
    return make_shard("in.tar", files=files)


def test_files_come_back_into_the_sample(wl: Any, shard: str, names: Any, members: Any) -> None:
    ended = wl("xargs", "-c", "tr a-z A-Z < sample.txt > sample.up; rm sample.cls", "--count", 2, shard)
    assert ended.code == 0
    assert names(ended.out) == ["000.txt", "000.up", "001.txt", "001.up"]
    assert members(ended.out)["001.up", b"TXT1"] == 1


def test_doing_nothing_is_the_identity(wl: Any, shard: str) -> None:
    assert wl("xargs", "-c", "true", shard).out == wl("concat", shard).out


def test_parallel_is_serial(wl: Any, shard: str) -> None:
    command = "sleep 0.0$(( $(cat sample.txt | tr -d a-z) % 3 )); md5sum < sample.txt > sample.md5"
    serial, parallel = wl("xargs", "-c", command, shard), wl("xargs", "-P", 4, "-c", command, shard)
    assert serial.code == parallel.code == 0
    assert serial.out == parallel.out


@pytest.mark.parametrize("processes", [1, 3])
def test_a_command_that_fails_once_under_each_on_error(wl: Any, shard: str, names: Any, processes: int) -> None:
    run = ("xargs", "-P", processes, "-c", "echo oh no; ! grep -q 5 sample.txt", shard)
    raised = wl(*run)
    assert raised.code == 1
    assert raised.out == b""
    assert all(named in raised.err for named in ("status 1: oh no", "key 005]"))
    skipped = wl(*run, "--on-error", "skip")
    assert (skipped.code, len(names(skipped.out))) == (0, 18)
    assert "1 sample\n" in skipped.err
    stopped = wl(*run, "--on-error", "stop")
    assert (stopped.code, names(stopped.out)[-1]) == (1, "004.txt")


def test_a_failed_command_leaves_no_output_under_its_name(wl: Any, shard: str, tmp_path: Path) -> None:
    assert wl("xargs", "-c", "false", shard, "-o", tmp_path / "out.tar").code == 1
    assert sorted(os.listdir(tmp_path)) == ["in.tar"]


def test_the_commands_do_not_read_our_input(shard: str, wl_process: Any) -> None:
    with open(shard, "rb") as stdin:
        ended = wl_process("xargs", "-c", "cat > sample.stdin", stdin=stdin)
    assert ended.returncode == 0
    listed = subprocess.run(["tar", "-tf", "-"], input=ended.stdout, capture_output=True, check=True).stdout
    assert listed.count(b".stdin") == 10


def test_what_commands_print_goes_to_stderr(shard: str, wl_process: Any) -> None:
    ended = wl_process("xargs", "-c", "echo $(cat sample.txt)", "--count", "2", shard)
    assert ended.stderr.startswith(b"txt0\ntxt1\n2 samples ")
    assert wl_process("xargs", "-q", "-c", "echo loud", shard).stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_children_and_leaves_nothing(shard: str, tmp_path: Path, number: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = f"echo $$ >> {tmp_path}/started; sleep 100"
    argv = [sys.executable, "-m", "webdataset", "xargs", "-P", "2", "-c", command, shard, "-o", f"{tmp_path}/out.tar"]
    argv += ["--tmpdir", str(work)]
    child = subprocess.Popen(argv, stderr=subprocess.PIPE)
    started = tmp_path / "started"
    while not started.exists() or started.read_text().count("\n") < 2:
        assert child.poll() is None
        os.sched_yield()
    child.send_signal(number)
    _, told = child.communicate(timeout=60)
    assert child.returncode == (130 if number == signal.SIGINT else 143)
    assert b"Traceback" not in told
    for pid in started.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert not (tmp_path / "out.tar").exists()
    assert os.listdir(work) == []


def test_wrong_use_is_exit_2(wl: Any, shard: str) -> None:
    without = wl("xargs", shard)
    assert (without.code, "--script" in without.err) == (2, True)
    assert wl("xargs", "--script", "/nowhere", shard).code == 2


def test_tarproc_skips_by_default_and_tarp_proc_makes_several(wl: Any, shard: str, names: Any) -> None:
    ended = wl.old("tarproc", "-c", "! grep -q 5 sample.txt", shard)
    assert (ended.code, len(names(ended.out))) == (0, 18)
    made = wl.old("tarp", "proc", "-m", "cp sample.txt sample-000007.txt", "--slice", "1:2", shard, "-o", "-")
    assert names(made.out) == ["001/000007.txt"]
