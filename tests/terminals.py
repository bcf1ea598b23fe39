"""Commands on a pseudo terminal, and what it shows."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys

IMMEDIATELY = """
import webdataset.cli.progress as progress
import webdataset.tools.parallel as parallel
progress.FIRST, progress.INTERVAL, progress.LOOK_EVERY, parallel.POLL_SECONDS = 0.0, 1e-9, 1, 0.001
"""
"""A `wl` whose progress line does not wait for a second to pass, nor between two of its states."""
HANG = 120


class Session:
    """What a command wrote on a terminal of its own: everything, and the lines as a person saw them come and go."""

    def __init__(self, code: int, written: str) -> None:
        self.code = code
        self.written = written

    @property
    def lines(self) -> list[str]:
        """The lines that are there in the end."""
        rows = self.written.replace("\r\n", "\n").split("\n")
        return [row.rpartition("\r")[2].replace("\x1b[K", "") for row in rows if row]

    @property
    def states(self) -> list[str]:
        """The states of the progress line, one after the other."""
        parts = self.written.replace("\r\n", "\n").split("\r\x1b[K")[1:]
        return [part.partition("\n")[0] for part in parts if part.partition("\n")[0]]


def session(
    *words: object, columns: int = 120, at_once: bool = True, cwd: object = None, without: str = "", term: str = "xterm"
) -> Session:
    """Run `wl` with stderr and stdout on a pseudo terminal of this width, and without the package that is named."""
    code = (
        IMMEDIATELY * at_once
        + f"import sys\nsys.modules[{without!r}] = None\n" * bool(without)
        + "import sys, webdataset.cli as cli\nsys.exit(cli.main(sys.argv[1:]))"
    )
    argv = [sys.executable, "-c", code, *map(str, words)]
    ours, theirs = pty.openpty()
    _set_columns(theirs, columns)
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": term}
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=cwd)  # type: ignore[call-overload]
    os.close(theirs)
    try:
        written = _read_all(ours)
        return Session(process.wait(HANG), written)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read_all(terminal: int) -> str:
    data = b""
    while select.select([terminal], [], [], HANG)[0]:
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        data += chunk
    return data.decode()


def _set_columns(terminal: int, columns: int) -> None:
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
