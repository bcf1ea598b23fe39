"""Urls as text: their scheme, their variables, and who may name them.

>>> scheme_of("s3://bucket/a.tar"), local_path("file:/data/a.tar")
('s3', '/data/a.tar')
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from webdataset.base.settings import settings
from webdataset.errors import SecurityError, StorageError

from .braces import MAX_URLS, UnbalancedBracesError, braceexpand

__all__ = [
    "MAX_URLS",
    "UnbalancedBracesError",
    "UnsetVariableError",
    "as_url",
    "braceexpand",
    "check_url_from_data",
    "is_local",
    "local_path",
    "scheme_of",
    "shell_expanded",
    "substituted",
    "variable",
    "with_home",
]

# Schemes that are opened by the same code and take the same options.
FAMILIES = {
    **dict.fromkeys(("http", "https"), "http"),
    "s3": "s3",
    **dict.fromkeys(("gs", "gcs", "htgs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "az"),
    "hf": "hf",
    "ais": "ais",
    **dict.fromkeys(("ssh", "sftp", "scp"), "ssh"),
}
# What data fetched from elsewhere may name: stores that are read over the network, and nothing that runs or is local.
SCHEMES_FROM_DATA = frozenset({"http", "https", "s3", "gs", "gcs", "az", "abfs", "abfss", "hf", "ais"})
MAX_ROUNDS = 10

# Two letters at least: `C:\data\a.tar` is a path.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class UnsetVariableError(ValueError, AssertionError):
    """`${NAME}` in a url, and no `WDS_NAME` in the environment (an AssertionError in older versions)."""


def as_url(url: object) -> str:
    """A url or path of any type as text.

    >>> from pathlib import Path
    >>> as_url(Path("a.tar"))
    'a.tar'
    """
    if isinstance(url, str):
        return url
    if isinstance(url, (bytes, os.PathLike)):
        return os.fsdecode(url)
    raise TypeError(f"a url is a string or a path, got {type(url).__name__}: {url!r}")


def scheme_of(url: str) -> str:
    """The scheme of a url in lower case; empty for a path.

    >>> scheme_of("S3://bucket/a.tar"), scheme_of("data/a.tar"), scheme_of("C:/data/a.tar")
    ('s3', '', '')
    """
    found = _SCHEME.match(url)
    return found.group(1).lower() if found else ""


def is_local(url: str) -> bool:
    """Whether the url is a path or a `file:` url."""
    return scheme_of(url) in ("", "file") and url != "-"


def local_path(url: str) -> str | None:
    """The path behind a local url, or None; percent signs are decoded only where that leads to an existing file.

    >>> local_path("file:///data/a.tar"), local_path("file:a.tar"), local_path("file://localhost/a.tar")
    ('/data/a.tar', 'a.tar', '/a.tar')
    >>> local_path("http://host/a.tar")
    """
    if not is_local(url):
        return None
    if scheme_of(url) != "file":
        return with_home(url)
    path = url[len("file:") :]
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise StorageError(f"a file: url cannot name the host {host!r}", url=url, hint="write file:/path")
        path = slash + rest
    decoded = unquote(path)
    return decoded if decoded != path and not os.path.lexists(path) and os.path.lexists(decoded) else path


def with_home(url: str) -> str:
    """A path with `~` and `~user` at its beginning filled in; a file that is called so stays itself.

    >>> with_home("data/~a.tar"), with_home("http://host/~user/a.tar")
    ('data/~a.tar', 'http://host/~user/a.tar')
    """
    return url if url[:1] != "~" or os.path.lexists(url) else os.path.expanduser(url)


def substituted(text: str) -> str:
    """Replace every `${NAME}` by the variable `WDS_NAME`, also inside the values."""
    for _ in range(MAX_ROUNDS):
        replaced = _VARIABLE.sub(variable, text)
        if replaced == text:
            return text
        text = replaced
    raise ValueError(f"the variables in {text[:80]!r} refer to each other without end")


def shell_expanded(text: str) -> str:
    """The text with `~` and `$VARIABLES` filled in, for what the user wrote on this machine.

    >>> shell_expanded("a/b.tar")
    'a/b.tar'
    """
    return os.path.expanduser(os.path.expandvars(text))


def variable(match: re.Match[str]) -> str:
    """The value of the `${NAME}` a pattern found."""
    name = match.group(1)
    value = settings.url_variable(name)
    if value is None:
        raise UnsetVariableError(f"${{{name}}} in a url needs the environment variable WDS_{name}, which is not set")
    return value


def check_url_from_data(url: str, origin: str) -> str:
    """Refuse a url that data from elsewhere must not name: a command, or a file of this machine.

    `origin` is where the list, index or redirect came from; a local one is trusted.

    >>> check_url_from_data("https://host/a.tar", "https://host/index.json")
    'https://host/a.tar'
    """
    if is_local(origin):
        return url
    scheme = scheme_of(url.strip())
    if scheme in SCHEMES_FROM_DATA and url == url.strip():
        return url
    kind = f"a {scheme}: url" if scheme else "a local path"
    raise SecurityError(
        f"the list fetched from {as_url(origin)} names {kind}, which data from elsewhere may not",
        url=url,
        hint="save the list as a local file if you trust it",
    )
