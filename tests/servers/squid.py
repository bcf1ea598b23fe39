"""A real squid on loopback, as the proxy that an institute has: with a cache, and CONNECT for https."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers.programs import program, running, served

CONFIG = """
http_port 127.0.0.1:{port}
pid_filename {folder}/squid.pid
{user}
cache_dir ufs {folder}/cache 256 4 4
cache_mem 16 MB
maximum_object_size 128 MB
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
coredump_dir {folder}
acl loopback dst 127.0.0.0/8 ::1
http_access allow loopback
http_access deny all
shutdown_lifetime 0 seconds
visible_hostname localhost
netdb_filename none
pinger_enable off
"""


@dataclass
class Squid:
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self, path: str) -> list[str]:
        """What it did for each request of this path: `TCP_MISS/200`, `TCP_HIT/200`, ..."""
        lines = (self.folder / "access.log").read_text().splitlines()
        return [line.split()[3] for line in lines if path in line]


@pytest.fixture(scope="session")
def squid() -> Iterator[Squid]:
    command = program("squid", "apt squid")
    # not below pytest's own folder, which only its user may enter: squid refuses to run as root
    with tempfile.TemporaryDirectory(prefix="squid-") as name:
        folder = Path(name)
        user = ""
        if os.geteuid() == 0:
            shutil.chown(folder, "proxy", "proxy")
            user = "cache_effective_user proxy"

        def start(port: int) -> AbstractContextManager[object]:
            (folder / "squid.conf").write_text(CONFIG.format(folder=folder, port=port, user=user))
            words = [command, "-n", f"test{port}", "-f", str(folder / "squid.conf"), "-N"]
            subprocess.run([*words, "-z"], check=True, capture_output=True)
            return running(words, port, folder)

        with served(start) as (port,):
            yield Squid(folder, port)
