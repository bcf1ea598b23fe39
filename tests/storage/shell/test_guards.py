"""No command outlives the process that started it, however that ends.

Every command, and all that it starts, holds the write end of one FIFO: its end is seen when the last of them is gone.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests_support import numbered_shards

HANGS = 60.0
"""Seconds after which a test gives up waiting; what it waits for takes one or two."""

SILENT = "exec sleep 1000"
STUBBORN = "trap '' TERM INT HUP PIPE; while :; do sleep 1000; done"
PIPELINE = "sleep 1000 | sleep 1000"
BACKGROUND = "sleep 1000 & trap '' TERM; sleep 1000 & sleep 1000"
LEFT_ALONE = "sleep 1000 &"
COMMANDS = [SILENT, STUBBORN, PIPELINE, BACKGROUND, LEFT_ALONE]

PROLOGUE = """
import os, signal, sys, threading
from webdataset.storage.shell.commands import CommandStream
from webdataset.storage.shell.guards import guard
streams = [CommandStream(command, sys.argv[1]) for command in sys.argv[2:]]
"""
WAIT = "sys.stdin.readline()\n"


class Holders:
    """The processes that hold a FIFO."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._own = os.open(path, os.O_WRONLY)
        self._lines = 0

    def command(self, command: str) -> str:
        """A shell command that holds the FIFO from its beginning, and says so."""
        return f"exec 9>{shlex.quote(str(self.path))}; echo >&9; {command}"

    def wait_for(self, count: int) -> None:
        """Until so many commands have begun."""
        while self._lines < count:
            self._lines += self._read().count(b"\n")

    def wait_until_gone(self) -> None:
        """Until the last holder has ended."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1
        while self._read():
            pass

    def close(self) -> None:
        for end in (self._reading, self._own):
            if end >= 0:
                os.close(end)

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._reading], [], [], HANGS)
        assert ready, "a command is still running"
        return os.read(self._reading, 4096)


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Holders]:
    holders = Holders(tmp_path / "held")
    yield holders
    holders.close()


def started(program: str, *words: str, **options: object) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", program, *words], **{**pipes, **options})


def tell(process: subprocess.Popen[bytes]) -> None:
    """Let a process that waits for a line go on."""
    process.stdin.write(b"\n")
    process.stdin.flush()


def over(process: subprocess.Popen[bytes]) -> int:
    """The process, which was told to end or is about to, has ended."""
    process.stdin.close()
    status = process.wait(HANGS)
    process.stdout.close()
    return status


ENDINGS = {
    "killed": (WAIT, signal.SIGKILL),
    "terminated": (WAIT, signal.SIGTERM),
    "interrupted": (WAIT, signal.SIGINT),
    "the normal end": (WAIT, None),
    "os._exit": (WAIT + "os._exit(3)", None),
    "an exception": (WAIT + "raise SystemError", None),
    "a read under way": ("threading.Thread(target=streams[0].read, daemon=True).start()\n" + WAIT, None),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_commands_end_with_their_reader(ending, holders):
    program, number = ENDINGS[ending]
    commands = [holders.command(command) for command in COMMANDS]
    reader = started(PROLOGUE + program, "rb", *commands)
    holders.wait_for(len(commands))
    if number is not None:
        reader.send_signal(number)
    over(reader)
    holders.wait_until_gone()


def test_commands_end_with_a_writer_that_is_killed(holders):
    commands = [holders.command(command) for command in COMMANDS]
    writer = started(PROLOGUE + WAIT, "wb", *commands)
    holders.wait_for(len(commands))
    writer.kill()
    over(writer)
    holders.wait_until_gone()


def test_a_forked_process_does_not_keep_the_commands_of_a_killed_reader(holders):
    fork = "pid = os.fork()\nif pid: print(pid, flush=True)\nelse: signal.pause()\n"
    reader = started(PROLOGUE + fork + WAIT, "rb", holders.command(SILENT))
    child = int(reader.stdout.readline())
    try:
        holders.wait_for(1)
        reader.kill()
        over(reader)
        holders.wait_until_gone()
        os.kill(child, 0)  # it is still there
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_process_has_commands_of_its_own_that_end_with_it(holders):
    fork = "if not os.fork():\n    mine = CommandStream(sys.argv[2], 'rb')\n    sys.stdin.readline()\n    os._exit(0)\n"
    fork += "print(os.wait(), flush=True)\n"
    reader = started(PROLOGUE.replace("sys.argv[2:]", "[]") + fork + WAIT, "rb", holders.command(SILENT))
    holders.wait_for(1)
    tell(reader)
    reader.stdout.readline()
    holders.wait_until_gone()  # while the reader, which has none, goes on
    over(reader)


@pytest.mark.skipif(sys.platform != "linux", reason="a command tells of itself on Linux only")
def test_a_reader_that_is_killed_while_it_starts_a_command_leaves_none(holders):
    dies = "guard._note = lambda *told: (sys.stdin.readline(), os.kill(os.getpid(), signal.SIGKILL))\nstreams = "
    reader = started(PROLOGUE.replace("streams = ", dies), "rb", holders.command(SILENT))
    holders.wait_for(1)
    tell(reader)
    assert over(reader) == -signal.SIGKILL
    holders.wait_until_gone()


def test_a_guard_that_was_killed_is_replaced_at_the_next_command(holders):
    again = "os.kill(guard._pid, signal.SIGKILL)\nos.waitid(os.P_PID, guard._pid, os.WEXITED | os.WNOWAIT)\n"
    again += "streams.append(CommandStream(sys.argv[2], 'rb'))\n"
    reader = started(PROLOGUE + again + WAIT, "rb", holders.command(SILENT))
    holders.wait_for(2)
    reader.kill()
    over(reader)
    holders.wait_until_gone()


def test_commands_that_ended_by_themselves_are_forgotten(holders):
    code = "for stream in streams: stream.read()\nprint(guard._groups, flush=True)\n"
    reader = started(PROLOGUE + code, "rb", "true", "exit 0", holders.command("sleep 0"))
    assert reader.stdout.readline() == b"set()\n"
    assert over(reader) == 0


def test_what_a_finished_command_has_left_behind_is_its_own_affair(tmp_path, holders):
    command = holders.command("(read line; echo $line > result) > /dev/null < go & echo done")
    os.mkfifo(tmp_path / "go")
    reader = started(
        PROLOGUE + "assert streams[0].read() == b'done\\n'\nstreams[0].close()", "rb", command, cwd=tmp_path
    )
    holders.wait_for(1)
    assert over(reader) == 0
    (tmp_path / "go").write_text("went on\n")
    holders.wait_until_gone()
    assert (tmp_path / "result").read_text() == "went on\n"


def test_commands_have_the_standard_input_of_their_reader():
    reader = started(PROLOGUE + "sys.stdout.buffer.write(streams[0].read())", "rb", "cat")
    assert reader.communicate(b"hello", HANGS)[0] == b"hello"


def test_a_machine_without_a_shell_for_the_guard_runs_commands_all_the_same():
    code = "import webdataset.storage.shell.guards as guards\nguards.SHELL = '/nowhere/sh'\n" + PROLOGUE
    code += "print(streams[0].read(), flush=True)\n"
    reader = started(code, "rb", "echo hello", stderr=subprocess.PIPE)
    out, said = reader.communicate(timeout=HANGS)
    assert out == b"b'hello\\n'\n"
    [line] = said.decode().splitlines()
    assert "/nowhere/sh" in line


def test_commands_of_wl_xargs_end_when_it_is_killed(holders, tmp_path):
    shards = numbered_shards(tmp_path, [3])
    # a command that wl has just started may not be known to the guard for a millisecond
    command = "sleep 1; " + holders.command(PIPELINE)
    words = ["xargs", "-P", "2", "-c", command, *shards, "-o", str(tmp_path / "out.tar")]
    wl = started("import sys; from webdataset.cli import main; sys.exit(main())", *words)
    holders.wait_for(2)
    wl.kill()
    over(wl)
    holders.wait_until_gone()


# -- a training loop ----------------------------------------------------------------------------------

TRAINING = """
import sys, torch, webdataset as wds
if __name__ == "__main__":
    method, urls = sys.argv[1], sys.argv[2:]
    dataset = wds.WebDataset(urls, shardshuffle=False, nodesplitter=None)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    for number, sample in enumerate(loader):
        if number == 1:
            children = [worker.pid for worker in torch.multiprocessing.active_children()]
            print(*children, flush=True)
"""


def training(method: str, holders: Holders, tmp_path: Path) -> subprocess.Popen[bytes]:
    """A training loop in a process group of its own, as a shell starts it, whose workers wait for silent commands."""
    urls = []
    for shard in numbered_shards(tmp_path, [2, 2, 2, 2]):
        command = f"cat {shlex.quote(shard)}; trap '' TERM; sleep 1000 | sleep 1000"
        urls.append("pipe:" + holders.command(command))
    (tmp_path / "train.py").write_text(TRAINING)
    words = [sys.executable, str(tmp_path / "train.py"), method, *urls]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, process_group=0, **pipes)


@pytest.mark.parametrize(
    ("method", "ending"),
    [("fork", "Ctrl-C"), ("spawn", "Ctrl-C"), ("fork", "kill -9"), ("fork", "kill -9 of a worker")],
)
def test_commands_of_loader_workers_end_with_the_training_loop(method, ending, holders, tmp_path):
    loop = training(method, holders, tmp_path)
    workers = [int(pid) for pid in loop.stdout.readline().split()]
    holders.wait_for(2)
    if ending == "Ctrl-C":
        os.killpg(loop.pid, signal.SIGINT)  # to all of the group, as a terminal sends it
    elif ending == "kill -9":
        loop.kill()
    else:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
    over(loop)
    holders.wait_until_gone()
