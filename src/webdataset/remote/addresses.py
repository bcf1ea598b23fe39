"""Where producers are, `tcp://host:port` or `ipc:///path`, and to whom one may talk without keys.

>>> addresses("tcp://cpu-{0..1}:788{0,1}")
['tcp://cpu-0:7880', 'tcp://cpu-0:7881', 'tcp://cpu-1:7880', 'tcp://cpu-1:7881']
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from webdataset.base.settings import settings
from webdataset.errors import MissingPackageError, SecurityError
from webdataset.storage.braces import braceexpand

_TCP = re.compile(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]\s]+):(\d+)")
_IPC = re.compile(r"ipc://(\S+)")
_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){3}|localhost|\[::1\]|lo")
_STREAM = re.compile(r"zr?(push|pull|pub|sub)(\+[a-z]+)?://")


def addresses(urls: str | Sequence[str]) -> list[str]:
    """The addresses of some urls, checked; ValueError says what is wrong."""
    found = [address for url in ([urls] if isinstance(urls, str) else urls) for address in braceexpand(str(url))]
    if not found:
        raise ValueError("name at least one producer: tcp://host:port")
    for address in found:
        checked(address)
    if len({*found}) < len(found):
        raise ValueError(f"an address is there twice: {max(found, key=found.count)}")
    return found


def checked(address: str) -> str:
    """An address that is one; a ValueError otherwise."""
    tcp = _TCP.fullmatch(address)
    if (tcp is None or int(tcp[2]) > 65535) and not _IPC.fullmatch(address):
        raise ValueError(f"{address!r} is no address of a producer: use tcp://host:port, or ipc:///path")
    return address


def is_stream(url: object) -> bool:
    """Whether a url is one of the eight kinds of streams.

    >>> is_stream("zpull://127.0.0.1:7880"), is_stream("tcp://127.0.0.1:7880")
    (True, False)
    """
    return isinstance(url, str) and _STREAM.match(url) is not None


def is_remote(url: object) -> bool:
    """Whether batches come from a url: that of a producer, or a stream."""
    return is_stream(url) or (isinstance(url, str) and url.startswith(("tcp://", "ipc://")))


def is_here(address: str) -> bool:
    """Whether only programs of this machine can be at an address.

    >>> [is_here(each) for each in ("tcp://127.0.0.1:7880", "tcp://[::1]:7880", "ipc:///run/a", "tcp://cpu-0:7880")]
    [True, True, True, False]
    """
    tcp = _TCP.fullmatch(address)
    return tcp is None or _LOOPBACK.fullmatch(tcp[1]) is not None


def check_allowed(address: str, keys: object, *, insecure: bool) -> None:
    """Raise unless an address is on this machine, keys are used, or it was said that none are wanted."""
    if keys is None and not insecure and not settings.allow_bind and not is_here(address):
        raise SecurityError(
            "batches to and from other machines need keys",
            url=address,
            hint="make them with `wl keygen serve.key train.key`, or say --insecure (insecure=True) on a network "
            "in which everyone can be trusted",
        )


def zeromq() -> Any:
    """The package zmq, or the error that says what to install."""
    try:
        import msgpack  # noqa: F401 - both, before anything is open
        import zmq
    except ImportError as error:
        hint = "pip install 'webdataset[net]'"
        raise MissingPackageError(f"batches from other machines need {error.name}", hint=hint) from error
    return zmq
