from __future__ import annotations

import gc
import multiprocessing
import os
import threading

import pytest

from waiting import soon
from webdataset.errors import CommandError, SecurityError
from webdataset.storage.shell.commands import CommandStream, open_pipe, run_argv
from webdataset.storage.shell.programs import open_ais, open_curl

STUBBORN = "trap '' TERM PIPE INT HUP; echo $$; while :; do sleep 1000; done"


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that init has not yet reaped counts."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_what_a_command_writes_is_read():
    with open_pipe("pipe:printf 'one\ntwo\n'") as stream:
        assert stream.readline() == b"one\n"
        assert stream.read(2) == b"tw"
        assert list(stream) == [b"o\n"]


def test_what_is_written_goes_into_the_command(tmp_path):
    with open_pipe(f"pipe:cat > {tmp_path}/out", "wb") as stream:
        stream.write(b"data")
    assert (tmp_path / "out").read_bytes() == b"data"


def test_large_outputs_arrive_whole_whatever_the_read_size():
    for size in (1000, 65_537, 1 << 20):
        with CommandStream("head -c 3000000 /dev/zero") as stream:
            total = 0
            while part := stream.read(size):
                total += len(part)
        assert total == 3_000_000
    buffer = bytearray(2_000_000)
    with CommandStream("head -c 3000000 /dev/zero") as stream:
        assert stream.readinto(buffer) == 2_000_000
        assert stream.readinto(buffer) == 1_000_000
        assert stream.readinto(buffer) == 0


def test_read1_gives_what_is_there():
    with CommandStream("printf abc; sleep 1000") as stream:
        assert stream.read1(1 << 20) == b"abc"


def test_a_command_that_fails_after_writing_everything_is_an_error_after_its_data():
    stream = open_pipe("pipe:printf data; exit 3")
    assert stream.read(100) == b"data"
    with pytest.raises(CommandError) as raised:
        stream.read(100)
    assert raised.value.status == 3
    stream.close()


def test_a_failed_command_is_an_error_when_everything_is_read_at_once():
    with pytest.raises(CommandError) as raised:
        open_pipe("pipe:printf data; exit 3").read()
    assert raised.value.status == 3


def test_a_failed_command_is_an_error_when_the_stream_is_closed_at_its_end():
    stream = open_pipe("pipe:printf data; exit 3")
    assert stream.read(100) == b"data"
    with pytest.raises(CommandError) as raised:
        stream.close()
    assert raised.value.status == 3
    stream.close()


def test_a_command_that_closes_its_output_first_and_fails_later_is_an_error():
    with pytest.raises(CommandError) as raised:
        open_pipe("pipe:printf data; exec >&-; sleep 0.2; exit 4").read()
    assert raised.value.status == 4


def test_a_command_that_closes_its_output_and_never_ends_is_an_error_after_the_limit():
    with pytest.raises(CommandError, match=r"0\.1"):
        open_pipe("pipe:exec >&-; sleep 1000", timeout=0.1).read()


def test_a_reader_that_stops_exactly_at_the_end_learns_of_the_failure():
    stream = open_pipe("pipe:printf data; exit 3")
    assert stream.read(4) == b"data"
    assert soon(lambda: is_gone(stream.proc.pid))
    with pytest.raises(CommandError) as raised:
        stream.close()
    assert raised.value.status == 3


def test_a_command_killed_by_a_signal_is_an_error_that_names_it():
    with pytest.raises(CommandError, match="SIGKILL"):
        open_pipe("pipe:printf data; kill -9 $$").read()


def test_a_broken_pipe_inside_the_command_is_an_error_when_it_was_not_ours():
    with pytest.raises(CommandError) as raised:
        open_pipe("pipe:exit 141").read()
    assert raised.value.status == 141


def test_statuses_can_be_ignored():
    assert open_pipe("pipe:printf a; exit 3", ignore_status=[3]).read() == b"a"
    assert open_pipe("pipe:printf a; exit 3", ignore_errors=True).read() == b"a"


@pytest.mark.parametrize("command", ["sleep 1000", "yes", "yes | cat", "sleep 1000 | sleep 1000", STUBBORN])
def test_closing_early_ends_the_command_at_once(command):
    stream = CommandStream(command)
    if "sleep 1000 " not in command and command != "sleep 1000":
        stream.read1(1)
    stream.close()
    assert soon(lambda: is_gone(stream.proc.pid))
    assert stream.proc.returncode is not None


def test_everything_the_command_started_ends_with_it():
    stream = CommandStream("(trap '' TERM PIPE; echo $BASHPID $$ > /dev/null; exec sleep 1000) & echo $!; yes")
    child = int(stream.readline())
    stream.close()
    assert soon(lambda: is_gone(child))


def test_a_forgotten_stream_does_not_hold_up_the_collector():
    stream = CommandStream("exec >&-; exec sleep 1000")
    pid = stream.proc.pid
    del stream
    gc.collect()
    assert soon(lambda: is_gone(pid))


def test_many_early_stops_leave_no_process_and_no_descriptor():
    CommandStream("true").close()  # there is a guard now
    before = len(os.listdir("/proc/self/fd"))
    pids = []
    for _ in range(50):
        stream = CommandStream("yes")
        stream.read(10)
        stream.close()
        pids.append(stream.proc.pid)
    assert len(os.listdir("/proc/self/fd")) == before
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_closing_from_another_thread_ends_a_read():
    stream = CommandStream("sleep 1000")
    got = []
    thread = threading.Thread(target=lambda: got.append(stream.read(10)))
    thread.start()
    stream.close()
    thread.join(60)
    assert not thread.is_alive()


def _close_in_child(stream):
    stream.close()


def test_a_forked_copy_leaves_the_command_alone():
    stream = CommandStream("printf one; sleep 0.3; printf two")
    assert stream.read1(10) == b"one"
    child = multiprocessing.get_context("fork").Process(target=_close_in_child, args=(stream,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert stream.read() == b"two"
    stream.close()


def test_a_writing_command_that_fails_is_an_error_on_close():
    stream = open_pipe("pipe:cat > /dev/null; exit 5", "wb")
    stream.write(b"data")
    with pytest.raises(CommandError) as raised:
        stream.close()
    assert raised.value.status == 5


def test_a_command_that_stops_reading_is_an_error():
    stream = open_pipe("pipe:exit 6", "wb")
    with pytest.raises(CommandError) as raised:
        stream.write(b"x" * 10_000_000)
    assert raised.value.status == 6
    stream.close()


def test_an_exception_while_writing_gives_the_command_no_proper_end(tmp_path):
    script = f"pipe:cat > {tmp_path}/part && mv {tmp_path}/part {tmp_path}/whole"

    def write_half():
        with open_pipe(script, "wb") as stream:
            stream.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert not (tmp_path / "whole").exists()


def test_secrets_in_a_command_are_masked_in_its_error():
    with pytest.raises(CommandError) as caught:
        open_pipe("pipe:: curl -H 'Authorization: Bearer hidden' https://me:hidden@host/; exit 3").read()
    assert "hidden" not in str(caught.value)


def test_a_missing_program_is_an_error_with_the_cure():
    with pytest.raises(CommandError, match="'no-such-program'") as raised:
        run_argv(["no-such-program"], url="x://y", hint="install it")
    assert (raised.value.url, raised.value.hint) == ("x://y", "install it")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """ais and curl that print their arguments, one a line."""
    for name in ("ais", "curl"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("opener", "url"),
    [(open_ais, "ais://b/$(touch ran);`touch ran` a.tar"), (open_ais, "ais://b/a|touch ran")],
)
def test_a_url_is_one_word_of_its_command_and_never_seen_by_a_shell(programs, opener, url):
    with opener(url) as stream:
        assert url in stream.read().decode().split("\n")
    assert not (programs / "ran").exists()


def test_a_password_is_on_no_command_line(programs):
    (programs / "curl").write_text('#!/bin/sh\necho "$@"\nfor word; do last=$word; done\ncat "$last"\n')
    with open_curl('sftp://me:hid"den@host/a.tar') as stream:
        line, config = stream.read().decode().split("\n", 1)
    assert "hid" not in line
    assert config == 'url = "sftp://me:hid\\"den@host/a.tar"\n'


@pytest.mark.parametrize("url", ["-oProxyCommand=touch ran", "ais://b/a\n--endpoint-url=evil", "ais://b/\0"])
def test_a_url_cannot_become_an_option(programs, url):
    for opener in (open_ais, open_curl):
        with pytest.raises(SecurityError):
            opener(url)


def test_no_program_runs_in_secure_mode(programs, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    for opener, url in ((open_ais, "ais://b/a"), (open_curl, "sftp://h/a")):
        with pytest.raises(SecurityError):
            opener(url)
