"""Commands as streams: the output of a child process is read or its input written, and its exit status counts.

A child that ends with another status than 0 is an error, at the end of its output or when the stream is closed,
whichever comes first; also when it closed its output long before it failed. A stream that is closed before its
end takes the child with it at once, and everything the child started.

No command outlives the process that started it, however that ends: see `guards`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from webdataset.base.redact import redacted
from webdataset.base.reports import Report, current_report
from webdataset.base.settings import settings
from webdataset.errors import CommandError, SecurityError
from webdataset.storage.streams import AbortableStream, count_received

from .guards import end_group, guard

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIPE_BYTES = 1 << 20
DEFAULT_TIMEOUT = 7200.0
REAP_SECONDS = 5.0


class CommandStream(AbortableStream):
    """A running command; a string goes through the shell, a list of words does not.

    >>> with CommandStream("echo hello") as stream:
    ...     stream.read()
    b'hello\\n'
    """

    def __init__(
        self,
        command: str | Sequence[str],
        mode: str = "rb",
        *,
        url: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        ignore_errors: bool = False,
        ignore_status: Iterable[int] = (),
        bufsize: int = 8192,
        **popen: object,
    ) -> None:
        super().__init__()
        self.proc: subprocess.Popen[bytes] | None = None  # first, so that a failed start can be closed
        self.stream: Any = None
        self.command = command
        self.mode = mode
        self.url = url
        self.timeout = timeout
        self.ignore_errors = ignore_errors
        self.ignore_status = [0, *ignore_status]
        self.handler: Callable[[Exception], Any] | None = None
        self.status: int | None = None
        self.report: Report | None = current_report()
        self._received = 0
        self._owner = os.getpid()
        self._at_end = False
        self._stopped = False
        self._start(bufsize, popen)

    def readable(self) -> bool:
        return self.mode.startswith("r")

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end; an error if the command has failed by then."""
        if self._is_over():
            return b""
        data = cast(bytes, self.stream.read(size))
        everything = size is None or size < 0
        self._count(len(data), size, ended=everything)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        """What is available, up to `size` bytes; waits only while nothing is."""
        if self._is_over():
            return b""
        data = cast(bytes, self.stream.read1(size))
        self._count(len(data), size, partial=True)
        return data

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self._is_over():
            return 0
        count = cast(int, self.stream.readinto(buffer))
        self._count(count, memoryview(buffer).nbytes)
        return count

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        if self._is_over():
            return 0
        count = cast(int, self.stream.readinto1(buffer))
        self._count(count, memoryview(buffer).nbytes, partial=True)
        return count

    def readline(self, size: int | None = -1, /) -> bytes:
        if self._is_over():
            return b""
        data = cast(bytes, self.stream.readline(-1 if size is None else size))
        self._count(len(data), size, partial=True)
        return data

    def _is_over(self) -> bool:
        """Whether the end was reached and the exit status checked."""
        return self._at_end and self.stream.closed and not self.closed

    def _count(self, got: int, size: int | None, *, ended: bool = False, partial: bool = False) -> None:
        """Count what was read; fewer bytes than requested, or none for a `partial` read, are the end of the output."""
        self._received += got
        nothing = not got and size != 0
        self._at_end = self._at_end or ended or nothing or (not partial and size is not None and got < size)
        if ended or nothing:
            self._finish()

    def writable(self) -> bool:
        return not self.readable()

    def write(self, data: object, /) -> int:
        try:
            return cast(int, self.stream.write(data))
        except BrokenPipeError:
            raise self._stopped_reading() from None

    def flush(self) -> None:
        if self.writable() and self.stream is not None and not self.stream.closed:
            try:
                self.stream.flush()
            except BrokenPipeError:
                raise self._stopped_reading() from None

    def fileno(self) -> int:
        return cast(int, self.stream.fileno())

    def close(self) -> None:
        """Wait for the command and check its status; a command whose output was not read to the end is ended."""
        if self.closed:
            return
        try:
            if self.proc is None or self._owner != os.getpid():
                self._release()  # a forked copy: the command belongs to the parent
            elif self.readable():
                self._close_reader()
            else:
                self._close_writer()
        finally:
            self._end()

    def abort(self) -> None:
        """End the command at once, without the end of input that would tell it that everything was written."""
        if not self.closed:
            self._stopped = True
            if self.proc is not None and self._owner == os.getpid():
                self._kill()
            self._end()

    def _start(self, bufsize: int, popen: dict[str, Any]) -> None:
        if not settings.allow_pipe:
            raise SecurityError(
                "commands are refused (WDS_SECURE or WDS_ALLOW_PIPE=0)", url=self.url or self._text(), hint="read a url"
            )
        reading = self.readable()
        popen.setdefault("shell", isinstance(self.command, str))
        popen["stdout" if reading else "stdin"] = subprocess.PIPE
        try:
            self.proc = guard.start(self.command, bufsize=max(bufsize, 2), **popen)
        except OSError as exn:
            raise CommandError(f"cannot start: {exn.strerror}: {self._text()}", url=self.url) from exn
        self.stream = self.proc.stdout if reading else self.proc.stdin
        _widen(self.stream.fileno())

    def _close_reader(self) -> None:
        if self._at_end or self._nothing_left():
            self._finish()
        else:
            self._stopped = True
            self._kill()

    def _close_writer(self) -> None:
        try:
            self.stream.close()
        except BrokenPipeError:
            self._finish()
            raise self._stopped_reading() from None
        self._finish()

    def _finish(self) -> None:
        """Wait for the exit and check its status; may be called again."""
        if self._stopped or self.status is not None or self.proc is None:
            return
        if self._at_end:
            self._release()
        try:
            self.status = self._wait(self.timeout)
        except subprocess.TimeoutExpired:
            self._kill()
            self._fail(f"closed its output but did not end within {self.timeout:g} s")
            return
        if self.status not in self.ignore_status and not self._was_stopped():
            self._fail(f"ended with {_status_text(self.status)}")

    def _was_stopped(self) -> bool:
        """Read again after the wait: another thread may have closed the stream meanwhile."""
        return self._stopped

    def _fail(self, what: str) -> None:
        error = CommandError(f"the command {what}: {self._text()}", url=self.url, status=self.status)
        if self.ignore_errors or (self.handler is not None and self.handler(error)):
            return
        raise error

    def _stopped_reading(self) -> CommandError:
        """The error of a command that ended while it was written to."""
        self._stopped = True
        status = None
        if self.proc is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._wait(REAP_SECONDS)
        self.status = status
        ending = "" if status is None else f" and ended with {_status_text(status)}"
        return CommandError(f"the command stopped reading{ending}: {self._text()}", url=self.url, status=status)

    def _nothing_left(self) -> bool:
        """Whether all output was read and every writer is gone, though the reader stopped before the end."""
        if not hasattr(select, "poll") or self.stream.closed:
            return False
        poll = select.poll()
        poll.register(self.stream.fileno(), select.POLLIN)
        events = [event for _, event in poll.poll(0)]
        return bool(events) and not events[0] & select.POLLIN and not self.stream.peek(1)

    def _kill(self) -> None:
        """End the whole group: a moment to clean up, then by force."""
        proc = cast("subprocess.Popen[bytes]", self.proc)
        if proc.returncode is None:
            end_group(proc.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.status = self._wait(REAP_SECONDS)

    def _wait(self, seconds: float) -> int:
        """Wait for the exit status of the command."""
        proc = cast("subprocess.Popen[bytes]", self.proc)
        status = proc.wait(seconds)
        guard.forget(proc.pid)
        return status

    def _end(self) -> None:
        self._release()
        if self.report is not None:
            count_received(self.report, self._received)
        super().close()

    def _release(self) -> None:
        if self.stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self.stream.close()

    def _text(self) -> str:
        return redacted(self.command if isinstance(self.command, str) else " ".join(self.command))


def open_pipe(url: str, mode: str = "rb", **options: Any) -> CommandStream:
    """A `pipe:` url: the shell command after the colon."""
    command = url.split(":", 1)[1]
    return CommandStream(command, mode, url=url, **options)


def run_argv(argv: Sequence[str], mode: str = "rb", *, url: str, hint: str = "", **options: Any) -> CommandStream:
    """A command as a list of words, never through a shell; a missing program is an error with a hint."""
    import shutil

    if shutil.which(argv[0]) is None:
        raise CommandError(f"reading or writing this url needs the command {argv[0]!r}", url=url, hint=hint)
    return CommandStream(list(argv), mode, url=url, **options)


def _widen(fileno: int) -> None:
    """A pipe of 1 MiB halves the number of switches between reader and writer; a user may have used up the quota."""
    import fcntl

    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(fileno, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _status_text(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"
