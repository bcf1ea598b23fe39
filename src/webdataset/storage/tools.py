"""Stores that are read through a program of theirs, started without a shell.

A url is one word of the command or, where it may hold a password, is handed over on a descriptor, so that it
appears in no process list.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from webdataset.errors import SecurityError, StorageError
from webdataset.settings import settings

from .commands import CommandStream, run_argv

HF_ENDPOINT = "https://huggingface.co"
HF_KINDS = ("datasets", "spaces")
_CURL = ("curl", "--fail", "--silent", "--show-error", "--location", "--connect-timeout", "30", "--retry", "5")


def open_s3(url: str, mode: str = "rb", **options: Any) -> CommandStream:
    """An S3 object through the `aws` command."""
    words = ["aws", "s3", "cp", "--only-show-errors", url, "-"]
    if mode == "wb":
        words[4:] = ["-", url]
    return _run(words, mode, url, "install awscli", options)


def open_gs(url: str, mode: str = "rb", **options: Any) -> CommandStream:
    """A Google Cloud Storage object through the `gsutil` command."""
    url = "gs:" + url.split(":", 1)[1]
    words = ["gsutil", "-q", "cat", url] if mode == "rb" else ["gsutil", "-q", "cp", "-", url]
    return _run(words, mode, url, "install the Google Cloud CLI", options)


def open_ais(url: str, mode: str = "rb", **options: Any) -> CommandStream:
    """An AIStore object through the `ais` command."""
    words = ["ais", "get", url, "-"] if mode == "rb" else ["ais", "put", "-", url]
    return _run(words, mode, url, "install the AIStore CLI", options)


def open_htgs(url: str, mode: str = "rb", **options: Any) -> CommandStream:
    """A public Google Cloud Storage object under its old scheme."""
    return open_gs("gs:" + url.split(":", 1)[1], mode, **options)


def open_curl(url: str, mode: str = "rb", **options: Any) -> CommandStream:
    """A server that curl can speak to (sftp, scp, ftps); the url goes through a descriptor, not the command line."""
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


def open_hf(url: str, mode: str = "rb", **options: Any) -> Any:
    """A file of a Hugging Face repository: hf://datasets/owner/name[@revision]/path."""
    if mode != "rb":
        raise StorageError("hf: urls can only be read", url=url)
    from .http import open_http

    token = options.pop("token", None) or settings.hf_token or _hf_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return open_http(hf_address(url, settings.hf_endpoint or HF_ENDPOINT), mode, headers=headers, **options)


def hf_address(url: str, endpoint: str = HF_ENDPOINT) -> str:
    """The web address of an hf: url.

    >>> hf_address("hf://datasets/owner/name@main/a/b.tar")
    'https://huggingface.co/datasets/owner/name/resolve/main/a/b.tar'
    """
    words = url.split(":", 1)[1].lstrip("/").split("/")
    kind = [words.pop(0)] if words[0] in HF_KINDS else []
    if len(words) < 3 or not all(words):
        raise StorageError("an hf: url is hf://datasets/owner/name[@revision]/path", url=url)
    owner, (name, _, revision) = words[0], words[1].partition("@")
    path = [*kind, owner, name, "resolve", quote(revision or "main", safe="%"), *words[2:]]
    return f"{endpoint}/{'/'.join(path)}"


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


def _hf_token() -> str | None:
    """The token of the user's login, if the hub's own package is installed to say so."""
    import importlib

    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    found = hub.get_token()
    return str(found) if found else None
