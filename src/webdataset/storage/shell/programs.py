"""Stores that are read through a program, started without a shell.

A url is one word of the command or, where it may hold a password, is passed through a descriptor, so that it appears in
no list of processes.
"""

from __future__ import annotations

import os
from typing import Any

from webdataset.base.settings import settings
from webdataset.errors import SecurityError

from .commands import CommandStream, run_argv

_CURL = ("curl", "--fail", "--silent", "--show-error", "--location", "--connect-timeout", "30", "--retry", "5")


def open_ais(url: str, mode: str = "rb", **options: object) -> CommandStream:
    """An AIStore object through the `ais` command."""
    words = ["ais", "get", url, "-"] if mode == "rb" else ["ais", "put", "-", url]
    return _run(words, mode, url, "install the AIStore CLI", options)


def open_curl(url: str, mode: str = "rb", **options: object) -> CommandStream:
    """A server that curl can read (sftp, scp, ftps); the url goes through a descriptor, not the command line."""
    _check_plain(url)
    config = f'url = "{_quoted(url)}"\n' + ("" if mode == "rb" else 'upload-file = "-"\n')
    reading, writing = os.pipe()
    try:
        os.write(writing, config.encode("utf-8", "surrogateescape"))
    finally:
        os.close(writing)
    try:
        words = [*_CURL, "--config", f"/dev/fd/{reading}"]
        return _run(words, mode, url, "install curl", options | {"pass_fds": (reading,)})
    finally:
        os.close(reading)


def _run(words: list[str], mode: str, url: str, hint: str, options: dict[str, Any]) -> CommandStream:
    """Run a program on a url from the caller; secure mode runs no program at all."""
    _check_plain(url)
    if settings.secure:
        raise SecurityError(f"the command {words[0]!r} is not run in secure mode", url=url)
    return run_argv(words, mode, url=url, hint=hint, **options)


def _check_plain(url: str) -> None:
    """A url is one plain word: nothing that a program could take for an option or another line."""
    if url.startswith("-") or any(ord(character) < 32 or ord(character) == 127 for character in url):
        raise SecurityError("a url must not start with '-' nor hold control characters", url=url)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
