"""Programs that need torch, forked from a process that has imported it, since that takes two seconds of CPU time.

    done = warm.run("-c", "import torch; print(torch.__version__)")

does what `subprocess.run([sys.executable, "-c", ...], capture_output=True, text=True)` does, in a process of its own
with the words, folder and environment that it is given. Two things differ: what the interpreter reads from the
environment when it starts is that of the tests, and at its end a program leaves its modules to the system.

One server serves all processes of a run, which share its address: the first that needs it starts it, and it ends
when the last of them does. For programs that are started by others, `warm.command("torch")` has the words that stand
for `python`, and `warm.install` writes an executable.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import resource
import runpy
import selectors
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from waiting import soon

LONGEST_REQUEST = 1 << 20
COMMANDS = "numpy,webdataset.cli.flow,webdataset.cli.running"
"""What most commands of ours import."""
RUN = "WEBDATASET_TEST_RUN"
"""In the environment: a name that all processes of a run share, and no others."""


# -- the tests' side -------------------------------------------------------------------------------


def run(
    *words: object,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    preload: str = "torch",
    timeout: float = 280,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `words` are those that follow `python`, `limits` are named as in `resource`."""
    program = [str(word) for word in words]
    environment = dict(os.environ if env is None else env)
    _check_environment(environment)
    request = {
        "words": program,
        "cwd": str(cwd or Path.cwd()),
        "environment": environment,
        "limits": dict(limits or {}),
    }
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as nothing:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            streams = [nothing.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
            socket.send_fds(_connection(preload, os.getpid()), [marshal.dumps(request)], streams)
            theirs.close()
            status = _wait(ours, program, timeout)
        said = [stream.seek(0) or stream.read().decode(errors="replace") for stream in (out, err)]
    return subprocess.CompletedProcess(program, status, *said)


def command(preload: str = "torch") -> list[str]:
    """What to write instead of `python`, for programs that something else starts."""
    address = _address(preload, os.getpid())
    _connection(preload, os.getpid())  # the server lasts as long as this process, and not only as one program
    return [sys.executable, "-S", "-E", str(Path(__file__).with_name("warmly.py")), address]


def install(path: Path, program: str | None, preload: str = COMMANDS) -> None:
    """Write an executable that is this program of Python, or, without one, Python itself."""
    words = command(preload)
    if program is not None:
        folder = path.resolve().parent / ".programs"
        folder.mkdir(exist_ok=True)
        (folder / path.name).write_text(program)
        words += [str(folder / path.name)]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


def _check_environment(environment: Mapping[str, str]) -> None:
    """What an interpreter reads when it starts cannot be given to one that runs already."""
    names = {name for name in {*environment, *os.environ} if name.startswith("PYTHON")} - {"PYTHON_EXEC"}  # torchrun's
    other = sorted(name for name in names if environment.get(name) != os.environ.get(name))
    if other:
        raise ValueError(f"a program with its own {', '.join(other)} needs an interpreter of its own")


def _wait(answers: socket.socket, program: list[str], timeout: float) -> int:
    """The exit status, as subprocess has it; a program that takes too long is killed."""
    answers.settimeout(timeout)
    lines = answers.makefile("r")
    process = int(_line(lines, program))
    try:
        return int(_line(lines, program))
    except TimeoutError:
        os.kill(process, 9)
        raise subprocess.TimeoutExpired(program, timeout) from None


def _line(lines: Any, program: list[str]) -> str:
    line: str = lines.readline()
    if not line:
        raise RuntimeError(f"the server of warm programs ended while it ran {program}")
    return line


@cache
def _connection(preload: str, process: int) -> socket.socket:  # a forked process needs one of its own
    """A connection to the server that has imported these modules; it is started if nobody has."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_REQUEST)
    address = _address(preload, process)
    if not _connects(connection, address):
        # more than one may be started; those that come too late see that the address is taken, and end
        words = [sys.executable, __file__, address, preload]
        subprocess.run(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True, check=True)
        assert soon(lambda: _connects(connection, address)), "the server of warm programs does not start"
    atexit.register(connection.close)
    return connection


def _address(preload: str, process: int) -> str:
    """The name of the server of this run, for all its processes."""
    return f"webdataset-warm-{os.environ.get(RUN, process)}-{os.getuid()}-{zlib.crc32(preload.encode())}"


def _connects(connection: socket.socket, address: str) -> bool:
    with contextlib.suppress(ConnectionRefusedError):
        connection.connect("\0" + address)
        return True
    return False


# -- the server's side -----------------------------------------------------------------------------


def serve(name: str, preload: str) -> None:
    """Fork a program for each request, as long as somebody is connected."""
    if os.fork():
        return  # whoever starts a server does not wait for its end
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, selectors.DefaultSelector() as selector:
        try:
            listener.bind("\0" + name)
        except OSError:
            return  # another one was quicker
        listener.listen(64)
        gc.set_threshold(50_000, 20, 100)  # programs that end soon need not look for garbage often
        for module in preload.split(","):
            importlib.import_module(module)
        gc.freeze()  # else each program would copy what it looks through for garbage
        selector.register(listener, selectors.EVENT_READ, _accept)
        clients = 1
        while clients:
            for key, _ in selector.select():
                key.data(key.fileobj, selector)
            clients = sum(key.data is _answer for key in selector.get_map().values())


def _accept(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    connection, _ = listener.accept()
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] == os.getuid():  # the address is there for all users of the machine
        selector.register(connection, selectors.EVENT_READ, _answer)
    else:
        connection.close()


def _answer(connection: socket.socket, selector: selectors.BaseSelector) -> None:
    data, streams, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 4)
    if not data:
        selector.unregister(connection)
        connection.close()
        return
    *standard, answers = streams
    sys.stdout.flush()
    process = os.fork()
    if not process:
        _become(marshal.loads(data), standard)
    for stream in standard:
        os.close(stream)
    answering = socket.socket(fileno=answers)
    with contextlib.suppress(OSError):
        answering.sendall(f"{process}\n".encode())
    watched = os.pidfd_open(process)

    def ended(_: int, selector: selectors.BaseSelector) -> None:
        selector.unregister(watched)
        os.close(watched)
        _, status = os.waitpid(process, 0)
        with contextlib.suppress(KeyError):
            selector.unregister(answering)
        with contextlib.suppress(OSError), answering:  # who asked may be gone
            answering.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def is_left(_: int, selector: selectors.BaseSelector) -> None:
        selector.unregister(answering)
        os.kill(process, 9)  # nobody waits for it any more

    selector.register(watched, selectors.EVENT_READ, ended)
    selector.register(answering, selectors.EVENT_READ, is_left)


def _become(request: dict[str, Any], standard: list[int]) -> NoReturn:
    """Be the program, and end as it ends."""
    status = 1
    try:
        for number, stream in enumerate(standard):
            os.dup2(stream, number)
        os.closerange(3, 1024)  # the server's
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        for name, limit in request["limits"].items():
            resource.setrlimit(getattr(resource, name), (limit, limit))
        status = _exit_status(list(request["words"]))
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _exit_status(words: list[str]) -> int:
    """Run a program, and say how it ended, as the interpreter does."""
    try:
        _run_program(words)
    except SystemExit as exn:
        if exn.code is None or isinstance(exn.code, int):
            return (exn.code or 0) & 0xFF
        sys.stderr.write(f"{exn.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run_program(words: list[str]) -> None:
    first, *rest = words
    if first == "-u":  # as torchrun starts ranks
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
        _run_program(rest)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        main = sys.modules["__main__"] = type(sys)("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    serve(*sys.argv[1:])
