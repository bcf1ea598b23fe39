"""Files of other machines, through the `ssh` command: `ssh:`, `sftp:` and `scp:` urls.

    ssh://user@host:22/data/a.tar       the file /data/a.tar
    ssh://host/~/a.tar                  a.tar in the home folder there

The user's own ssh configuration, keys, agent and known hosts count; nothing is asked on the terminal. The other machine
needs a shell with `cat`, `ls`, `tail` and `mv`, nothing else. A connection that breaks is resumed at the byte
where it broke, if the file still has the same inode number, size and time.
"""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from webdataset.base.redact import redacted
from webdataset.base.reports import current_report
from webdataset.base.settings import settings
from webdataset.errors import CommandError, MissingShardError, SecurityError, StorageError, UnavailableError
from webdataset.storage.outages import OUTAGES
from webdataset.storage.patience import Patience, RetriesExhaustedError, RetryState
from webdataset.storage.stores.uploads import Upload
from webdataset.storage.streams import PiecewiseStream, count_received
from webdataset.storage.urls import scheme_of

from .commands import CommandStream
from .programs import open_curl

CONNECT_SECONDS = 30
FIRST_PAUSE = 0.2
CHUNK_BYTES = 1 << 20
BROKEN_STATUS = 255  # ssh's own failure; anything else is the status of the remote command

# The first line describes the file: inode number, mode, links, owners, size, time. Then come its bytes.
READ = 'ls -Lldinq -- "$1" && exec cat -- "$1"'
READ_ON = 'ls -Lldinq -- "$1" && exec tail -c "+$2" -- "$1"'
WRITE = 'exec cat > "$1"'
# The end of input looks the same whether all was sent or the connection broke, so a second command compares the size.
PUBLISH = (
    'if test -d "$2"; then echo "$2: Is a directory" >&2; exit 1; fi; '
    'test "$(wc -c < "$1")" -eq "$3" && mv -f -- "$1" "$2"'
)
REMOVE = 'rm -f -- "$1"'

_NAME = re.compile(r"(?!-)[\w.:@+-]+")
# Messages of ssh after which another try would end the same way.
_FINAL = ("permission denied", "host key verification failed", "bad configuration", "too many authentication")
_TRIES = ("patience", "retries", "first_pause")
_TIMES = (*_TRIES, "connect_timeout")
_UNKNOWN = ("name or service not known", "no address associated with hostname", "nodename nor servname provided")
_HINTS = (
    ("host key verification", "connect once by hand with ssh, or add the host's key to ~/.ssh/known_hosts"),
    ("permission denied (", "ssh must reach the host without a password: check your key, agent and user name"),
)


@dataclass(frozen=True)
class SshAddress:
    """Where an ssh: url leads.

    >>> ssh_address("ssh://me@host:2222/data/a%20b.tar")
    SshAddress(host='host', path='/data/a b.tar', user='me', port=2222)
    >>> ssh_address("sftp://host/~/a.tar").path
    'a.tar'
    """

    host: str
    path: str
    user: str | None = None
    port: int | None = None


def open_ssh(url: str, mode: str = "rb", **options: Any) -> io.BufferedIOBase:
    """Open a file of another machine for reading or writing."""
    if mode == "rb":
        if scheme_of(url) != "ssh" and urlsplit(url).password is not None:
            return open_curl(url, mode, **_without(options, *_TIMES))  # curl accepts a password, ssh does not
        return SshStream(url, **options)
    return SshUpload(url, **_without(options, *_TRIES))  # what was sent cannot be sent again


def _without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def ssh_address(url: str) -> SshAddress:
    """The parts of an ssh: url; names that ssh could take for options are refused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exn:
        raise StorageError(f"this is not a url: {exn}", url=url) from None
    if parts.password is not None:
        raise StorageError("ssh takes no password from a url", url=url, hint="use a key, or ssh-agent")
    host, user = parts.hostname or "", unquote(parts.username) if parts.username else None
    path = unquote(url.split("://", 1)[1].partition("/")[2], errors="surrogateescape") if "://" in url else ""
    # ssh hands both on to ProxyCommand and Match exec, that is, to a shell
    if not all(_NAME.fullmatch(word) for word in (host, user) if word):
        raise SecurityError(
            "a host or user name holds letters, digits and . : _ @ + -, and starts with no '-'", url=url
        )
    if not host or not path or "\0" in path:
        raise StorageError("an ssh: url is ssh://[user@]host[:port]/path", url=url)
    return SshAddress(host, path.removeprefix("~/") if path.startswith("~/") else f"/{path}", user, port)


class SshStream(PiecewiseStream):
    """A file of another machine, being read.

    `patience` is for how many seconds, `retries` how many times in a row to try again without a byte; progress renews
    both.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = CONNECT_SECONDS,
        patience: float | None = None,
        retries: int | None = None,
        first_pause: float = FIRST_PAUSE,
        bufsize: int = 8192,  # noqa: ARG002 - all openers take it
    ) -> None:
        super().__init__()
        self.url = url
        self.position = 0
        self.length: int | None = None
        self._address = ssh_address(url)
        self._connect_timeout = connect_timeout
        server = ("ssh", self._address.host, self._address.port)
        self._retries = RetryState(Patience(patience, retries, first_pause), url, server)
        self._stamp: list[str] | None = None
        self._report = current_report()
        self._child: _Remote | None = None
        self._at_end = False
        self._open()

    def read1(self, size: int = -1, /) -> bytes:
        """What has arrived, up to `size` bytes; waits only while nothing has."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        size = CHUNK_BYTES if size < 0 else size
        while size and not self._at_end:
            data = self._receive(size)
            if data:
                self.position += len(data)
                self._retries.renew()
                return data
        return b""

    @property
    def retried(self) -> int:
        return self._retries.total

    def close(self) -> None:
        """End the command at once."""
        if not self.closed:
            self._retries.stopped.set()
            self._retries.close()
            self._drop()
            count_received(self._report, self.position, self.retried)
            super().close()

    def _receive(self, size: int) -> bytes:
        child = self._child
        assert child is not None
        try:
            data = child.read1(size)
        except CommandError:
            self._resume(child)
            return b""
        if self.length is not None and self.position + len(data) > self.length:
            raise StorageError(f"got more than the announced {self.length} bytes: it is being written to", url=self.url)
        if not data:
            if self.length is not None and self.position < self.length:
                raise self._ends_early("the file was cut short")
            self._at_end = True
            self._drop()
        return data

    def _open(self) -> None:
        """Start the command, until it describes the file that it reads or the patience is used up."""
        while True:
            script, words = READ, [self._address.path]
            if self.position:
                script, words = READ_ON, [*words, str(self.position + 1)]
            child = _Remote(self._address, script, words, mode="rb", url=self.url, timeout=self._connect_timeout)
            self._child = child
            try:
                line = child.readline(4096).decode("utf-8", "replace")
            except CommandError:
                self._pause(child)
                continue
            self._accept(line.split(None, 9))
            self._retries.answered()
            return

    def _accept(self, words: list[str]) -> None:
        """Check the description of the file, and that it is the same as before."""
        if len(words) < 9 or not words[5].isdecimal():
            hint = "a server that allows only sftp is read with pipe:curl -sS sftp://..."
            raise StorageError("the other machine does not answer like a shell", url=self.url, hint=hint)
        if not words[1].startswith("-"):
            raise StorageError("this is no regular file", url=self.url)
        stamp = [words[0], *words[5:9]]
        if self._stamp is None:
            self._stamp, self.length = stamp, int(words[5])
        elif stamp != self._stamp:
            raise self._ends_early("the file changed while it was read")

    def _resume(self, child: _Remote) -> None:
        self._pause(child, quiet=True)  # if the machine answers, it is no outage
        self._open()

    def _pause(self, child: _Remote, *, quiet: bool = False) -> None:
        """Wait, longer each time; an error when the patience is used up or waiting would not help."""
        error = child.failure()
        self._drop()
        unknown = child.is_unknown and not OUTAGES.was_reached(self._retries.server)
        if child.status != BROKEN_STATUS or child.is_final or unknown:
            self._retries.close()
            raise (self._ends_early(error.message) if self._stamp is not None else error) from None
        try:
            self._retries.pause(error.message, hint=error.hint, quiet=quiet)
        except RetriesExhaustedError as exn:
            message, hint = str(exn), exn.hint
            if self._stamp is not None:
                message = self._ends_early(message).message
            raise UnavailableError(message, url=self.url, hint=hint) from None

    def _ends_early(self, reason: str) -> StorageError:
        return StorageError(f"ends early: got {self.position} of {self.length} bytes, then {reason}", url=self.url)

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.abort()


class SshUpload(Upload):
    """A file of another machine, being written: `close()` publishes it, `abort()` leaves nothing."""

    def __init__(self, url: str, *, connect_timeout: float = CONNECT_SECONDS, bufsize: int = 8192) -> None:  # noqa: ARG002
        super().__init__(url)
        self._address = ssh_address(url)
        self._timeout = connect_timeout
        folder, slash, name = self._address.path.rpartition("/")
        self._temporary = f"{folder}{slash}.{name[:200]}.{secrets.token_hex(6)}.tmp"
        self._size = 0
        self._child = self._remote(WRITE, [self._temporary], "wb")

    def _write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        try:
            self._child.write(view)
        except CommandError:
            raise self._failure(self._child) from None
        self._size += len(view)
        return len(view)

    def _finish(self) -> None:
        """Complete the file and rename it."""
        self._wait_for(self._child)
        self._wait_for(self._remote(PUBLISH, [self._temporary, self._address.path, str(self._size)], "rb"))

    def _discard(self) -> None:
        self._child.abort()
        with contextlib.suppress(StorageError, OSError):
            self._wait_for(self._remote(REMOVE, [self._temporary], "rb"))

    def _remote(self, script: str, words: list[str], mode: str) -> _Remote:
        return _Remote(self._address, script, words, mode=mode, url=self.url, timeout=self._timeout)

    def _wait_for(self, child: _Remote) -> None:
        """Wait for the command, which must succeed."""
        try:
            if child.readable():
                child.read()
            child.close()
        except CommandError:
            raise self._failure(child) from None

    def _failure(self, child: _Remote) -> StorageError:
        error = child.failure()
        return StorageError(f"cannot write: {error.message}", url=self.url, hint=error.hint)


class _Remote(CommandStream):
    """A shell script that runs on the other machine; its standard error is kept for messages."""

    def __init__(
        self, address: SshAddress, script: str, words: list[str], *, mode: str, url: str, timeout: float
    ) -> None:
        if settings.secure:
            raise SecurityError("the command 'ssh' is not run in secure mode", url=url)
        argv = [*_ssh(address, timeout, url), _command(script, words)]
        self._line = ""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stream
        popen: dict[str, Any] = {"stderr": self._stderr}
        popen["stdin" if mode == "rb" else "stdout"] = subprocess.DEVNULL
        super().__init__(argv, mode, url=url, **popen)
        self.report = None  # the stream that it serves counts

    @property
    def is_final(self) -> bool:
        """Whether another try would end the same way."""
        return any(text in self._last_line().lower() for text in _FINAL)

    @property
    def is_unknown(self) -> bool:
        """Whether the host name does not exist."""
        return any(text in self._last_line().lower() for text in _UNKNOWN)

    def failure(self) -> StorageError:
        """The error, in the words of the other machine."""
        line = self._last_line()
        if "No such file or directory" in line:
            return MissingShardError(line, url=self.url, hint="check the name and the range of shards")
        hint = next((hint for text, hint in _HINTS if text in line.lower()), "")
        return StorageError(line or f"ssh ended with status {self.status}", url=self.url, hint=hint)

    def _last_line(self) -> str:
        """The last line of standard error; kept, because the file is closed with the stream."""
        if not self._stderr.closed:
            with contextlib.suppress(OSError):
                self._stderr.seek(0, io.SEEK_END)
                self._stderr.seek(max(0, self._stderr.tell() - 4096))
                lines = self._stderr.read().decode("utf-8", "replace").split("\n")
                self._line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return redacted(self._line)

    def _release(self) -> None:
        super()._release()
        if self.status is not None or self._stopped:
            self._last_line()
            self._stderr.close()


def _ssh(address: SshAddress, timeout: float, url: str) -> list[str]:
    """The local command; `WDS_SSH` may name another program or add options, as in `WDS_SSH="ssh -F config"`."""
    command = shlex.split(settings.ssh_command)
    if not command or shutil.which(command[0]) is None:
        raise CommandError(f"this url needs the command {command[:1] or 'ssh'}", url=url, hint="install openssh-client")
    options = ["BatchMode=yes", f"ConnectTimeout={max(1, round(timeout))}", "LogLevel=ERROR"]
    options += ["ServerAliveInterval=15", "ServerAliveCountMax=4", "ClearAllForwardings=yes"]
    command += ["-T", *(word for option in options for word in ("-o", option))]
    if address.port is not None:
        command += ["-p", str(address.port)]
    if address.user is not None:
        command += ["-l", address.user]
    return [*command, "--", address.host]


def _command(script: str, words: list[str]) -> str:
    """The remote command: a fixed script, its arguments quoted for the shell that takes it apart.

    >>> print(_command('cat -- "$1"', ["a b; rm -rf"]))
    exec env LC_ALL=C sh -c 'cat -- "$1"' sh 'a b; rm -rf'
    """
    return "exec env LC_ALL=C " + shlex.join(["sh", "-c", script, "sh", *words])
