"""A real sshd on loopback, with its own keys and configuration, and a way to it that breaks."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from servers.programs import program, running, served

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 100
"""


@dataclass
class SshServer:
    """`command` is for the variable WDS_SSH: it knows the key and the host of this server, and nothing else."""

    folder: Path
    port: int
    command: str
    user: str = field(default_factory=getpass.getuser)

    def url(self, path: os.PathLike[str] | str, *, scheme: str = "ssh", port: int | None = None) -> str:
        return f"{scheme}://{self.user}@127.0.0.1:{port or self.port}{os.fspath(path)}"


class CuttingProxy:
    """Forwards connections to a port; each one is cut after so many bytes towards the client (None: never)."""

    def __init__(self, target: int, cuts: list[int | None]) -> None:
        self.cuts = list(cuts)
        self.connections = 0
        self._target = target
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                cut = self.cuts.pop(0) if self.cuts else None
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                for source, sink, limit in ((client, server, None), (server, client, cut)):
                    thread = threading.Thread(target=_forward, args=(source, sink, limit), daemon=True)
                    thread.start()
                    self._threads.append(thread)


def _forward(source: socket.socket, sink: socket.socket, limit: int | None) -> None:
    with suppress(OSError):
        while data := source.recv(65536 if limit is None else min(65536, limit)):
            sink.sendall(data)
            if limit is not None:
                limit -= len(data)
                if limit == 0:
                    break
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A running sshd, or a skip where none is installed."""
    command = program("sshd", "apt openssh-server")
    program("ssh", "apt openssh-client")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # sshd does not start without it

    def start(port: int) -> AbstractContextManager[object]:
        (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder))
        return running([command, "-f", str(folder / "sshd_config"), "-D", "-e"], port, folder)

    with served(start) as (port,):
        yield SshServer(folder, port, _client(folder))


@pytest.fixture
def ssh(ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch) -> SshServer:
    """The server, with the environment set so that ssh: urls find their key."""
    monkeypatch.setenv("WDS_SSH", ssh_server.command)
    return ssh_server


@pytest.fixture
def cutting_proxy(ssh_server: SshServer) -> Iterator[list[CuttingProxy]]:
    """Proxies appended here are closed after the test."""
    proxies: list[CuttingProxy] = []
    yield proxies
    for proxy in proxies:
        proxy.close()


def _client(folder: Path) -> str:
    """The ssh command of the tests: this server's host key is known, under any port."""
    key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"server {' '.join(key)}\n")
    config = [
        "Host *",
        f"  IdentityFile {folder}/user_key",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {folder}/known_hosts",
        "  GlobalKnownHostsFile /dev/null",
        "  HostKeyAlias server",
    ]
    (folder / "config").write_text("\n".join(config) + "\n")
    return f"ssh -F {folder}/config"
