"""Which function opens which scheme.

An opener is a function `(url, mode, **options) -> stream`. Options an opener does not know are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BufferedIOBase
from typing import Any

from .local import open_local
from .shell import programs
from .shell.commands import open_pipe
from .stores.lookup import open_store
from .urls import FAMILIES, scheme_of

Opener = Callable[..., Any]


def _http(url: str, mode: str = "rb", **options: Any) -> BufferedIOBase:
    if mode == "wb":
        from .stores.webdav import open_put

        return open_put(url, **options)
    from .http.reader import open_http  # http.client and ssl take 40 ms to import

    return open_http(url, mode, **options)


def _ais(url: str, mode: str = "rb", **options: Any) -> BufferedIOBase:
    from .ais.objects import open_ais

    return open_ais(url, mode, **options)


def _ssh(url: str, mode: str = "rb", **options: object) -> BufferedIOBase:
    from .shell.ssh import open_ssh

    return open_ssh(url, mode, **options)


_FAMILIES: dict[str, Opener] = {"http": _http, "ais": _ais, "ssh": _ssh}
OPENERS: dict[str, Opener] = {
    "": open_local,
    "file": open_local,
    "pipe": open_pipe,
    **{scheme: _FAMILIES.get(family, open_store) for scheme, family in FAMILIES.items()},
    "ftps": programs.open_curl,
}


class ModeError(ValueError, AssertionError):
    """A mode other than rb and wb (an AssertionError in older versions)."""


def check_mode(mode: str) -> None:
    if mode not in ("rb", "wb"):
        raise ModeError(f'the mode must be "rb" or "wb", got {mode!r}')


def unknown_scheme(url: str, known: Iterable[str]) -> ValueError:
    """The error of a url that nothing can open."""
    import difflib

    from webdataset.base.redact import redacted

    scheme = scheme_of(url)
    names = sorted(name for name in known if name and not name.startswith("_"))
    close = difflib.get_close_matches(scheme, names, n=1)
    return ValueError(
        f"{redacted(url)}: no gopen handler defined for the scheme {scheme!r}"
        f"{f' (did you mean {close[0]}:?)' if close else ''}; known are {', '.join(names)}; "
        'add one with gopen_schemes["name"] = function(url, mode, bufsize), or write ./ before a file name with a colon'
    )
