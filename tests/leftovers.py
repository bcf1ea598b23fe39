"""What a test has left open in this process, apart from what threads of others have, such as clients of clusters."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def open_descriptors(port: int | None = None) -> int:
    """How many files and pipes are open, and connections from or to this port."""
    ours = set() if port is None else _sockets_of(port)
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            kind, _, name = os.readlink(f"/proc/self/fd/{number}").partition(":")
            found += name[1:-1] in ours if kind == "socket" else kind != "anon_inode"
    return found


def _sockets_of(port: int) -> set[str]:
    """The inodes of connections from or to a port."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if f"{port:04X}" in (words[1].rpartition(":")[2], words[2].rpartition(":")[2]):
                found.add(words[9])
    return found
