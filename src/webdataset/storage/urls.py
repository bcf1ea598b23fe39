"""Urls as text: their scheme, their variables, and who may name them.

>>> scheme_of("s3://bucket/a.tar"), local_path("file:/data/a.tar")
('s3', '/data/a.tar')
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from webdataset.base.redact import redacted
from webdataset.base.settings import settings
from webdataset.errors import SecurityError, StorageError

from .braces import MAX_URLS, UnbalancedBracesError, braceexpand

__all__ = [
    "MAX_URLS",
    "UnbalancedBracesError",
    "UnsetVariableError",
    "address_of",
    "as_url",
    "braceexpand",
    "check_ours",
    "check_url_from_data",
    "has_parameters",
    "is_local",
    "is_replaced",
    "local_path",
    "opened_scheme",
    "rewriting_refused",
    "rewritten_url",
    "scheme_of",
    "shell_expanded",
    "substituted",
    "unrewritten",
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

SCHEMES: dict[str, Callable[..., Any]] = {}
"""What opens each scheme: `gopen.gopen_schemes`, in which programs put functions of their own."""
OUR_SCHEMES: dict[str, Callable[..., Any]] = {}
"""What it was before."""

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


def opened_scheme(url: str) -> str:
    """The scheme as which a url is opened: `ais` for those that `USE_AIS_FOR` names."""
    scheme = scheme_of(url)
    return "ais" if scheme in settings.use_ais_for else scheme


def has_parameters(address: str) -> bool:
    """Whether a web address has parameters: a name with more at its end would be the same file with others.

    >>> has_parameters("https://host/a.tar?Signature=abc"), has_parameters("s3://bucket/a?.tar")
    (True, False)
    """
    return FAMILIES.get(scheme_of(address)) == "http" and "?" in address


def is_replaced(url: str) -> bool:
    """Whether a program has replaced our opener of this scheme, added one, or taken ours away."""
    scheme = opened_scheme(url)
    return SCHEMES.get(scheme) is not OUR_SCHEMES.get(scheme)


def rewritten_url(url: str) -> str:
    """The url after `GOPEN_REWRITE`, unchanged where there are no rules.

    It leads to what the url means, and must not be rewritten again.
    """
    if settings.secure and settings.gopen_rewrite:
        raise rewriting_refused(url)
    for rule in filter(None, settings.gopen_rewrite.split(";")):
        pattern, equals, replacement = rule.partition("=")
        if not equals:
            raise ValueError(f"GOPEN_REWRITE needs regex=replacement, got {rule!r}")
        rewritten = re.sub(f"^(?:{pattern})", replacement, url)
        if rewritten != url:
            return rewritten
    return url


def rewriting_refused(url: str) -> SecurityError:
    """The error of secure mode, in which urls are what the program says."""
    hint = "unset GOPEN_REWRITE, or write the urls that are meant"
    return SecurityError("secure mode (WDS_SECURE) does not rewrite urls", url=url, hint=hint)


def unrewritten(addresses: Sequence[str], prefix: str, address: str) -> list[str]:
    """The urls that GOPEN_REWRITE turns into these addresses, as it turned the prefix into its address."""
    if not settings.gopen_rewrite:
        return list(addresses)
    found = []
    for each in addresses:
        url = prefix + each[len(address) :] if each.startswith(address) else each
        if rewritten_url(url) != each:
            line = f"GOPEN_REWRITE leads no url to {redacted(each)}, which the list has"
            raise StorageError(line, url=prefix, hint="number the shards with braces, as train-{000000..000146}.tar")
        found.append(url)
    return found


def address_of(url: str, done: str) -> str:
    """Where a url leads, for what is not done by opening it; `done` says what, "listed" or "removed"."""
    address = rewritten_url(url)
    check_ours(address, done)
    return address


def check_ours(address: str, done: str) -> None:
    """Refuse what a function of the program's own opens: nothing else is known of it."""
    if is_replaced(address):
        what = f"{scheme_of(address)}: urls are opened by a function of this program's own, so they cannot be {done}"
        raise StorageError(what, url=address, hint="name every object, and remove it with the program")


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
