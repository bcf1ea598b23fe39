"""Where producers are, `tcp://host:port` or `ipc:///path`, and to whom one may talk without keys.

Where they come and go, `dns://name:port` stands for all addresses of a name, and `@file` for those in a file, one in
each line: both are looked up again and again.

>>> addresses("tcp://cpu-{0..1}:788{0,1}")
['tcp://cpu-0:7880', 'tcp://cpu-0:7881', 'tcp://cpu-1:7880', 'tcp://cpu-1:7881']
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from types import ModuleType

from webdataset.base.packages import imported
from webdataset.base.settings import settings
from webdataset.base.stops import Stop, Thread
from webdataset.errors import MissingPackageError, SecurityError
from webdataset.storage.braces import braceexpand

_TCP = re.compile(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]\s]+):(\d+)")
_DNS = "dns://"
_IPC = re.compile(r"ipc://(\S+)")
_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){3}|localhost|\[::1\]|lo")
LOOKUP_SECONDS = 2.0
"""How often names and files are looked up."""
_STREAM = re.compile(r"zr?(push|pull|pub|sub)(\+[a-z]+)?://")


def addresses(urls: str | Sequence[str]) -> list[str]:
    """The addresses of some urls, looked up now; ValueError says what is wrong."""
    return [address for place in places(urls) for address in looked_up(place)]


def places(urls: str | Sequence[str]) -> list[str]:
    """The addresses of some urls, and what is to be looked up, checked; ValueError says what is wrong.

    >>> places(["tcp://cpu-{0..1}:7880", "dns://producers:7880", "@producers.txt"])
    ['tcp://cpu-0:7880', 'tcp://cpu-1:7880', 'dns://producers:7880', '@producers.txt']
    """
    found = [place for url in ([urls] if isinstance(urls, str) else urls) for place in braceexpand(str(url))]
    if not found:
        raise ValueError("name at least one producer: tcp://host:port")
    for place in found:
        if not place.startswith("@"):
            checked(_as_tcp(place))
    if len({*found}) < len(found):
        raise ValueError(f"an address is there twice: {max(found, key=found.count)}")
    return found


def is_looked_up(place: str) -> bool:
    """Whether it stands for addresses that may be others later."""
    return place.startswith(("@", _DNS))


def looked_up(place: str) -> list[str]:
    """The addresses for which a place stands now; OSError or ValueError say why there are none.

    >>> looked_up("tcp://cpu-0:7880"), "tcp://127.0.0.1:7880" in looked_up("dns://localhost:7880")
    (['tcp://cpu-0:7880'], True)
    """
    if place.startswith("@"):
        with open(place[1:], encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        return [checked(line) for line in lines if line and not line.startswith("#")]
    if not place.startswith(_DNS):
        return [place]
    host, _, port = place.removeprefix(_DNS).rpartition(":")
    found = {str(where[0]) for *_, where in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)}
    return [f"tcp://[{one}]:{port}" if ":" in one else f"tcp://{one}:{port}" for one in sorted(found)]


def checked(address: str) -> str:
    """An address that is one; a ValueError otherwise."""
    tcp = _TCP.fullmatch(address)
    if (tcp is None or int(tcp[2]) > 65535) and not _IPC.fullmatch(address):
        raise ValueError(f"{address!r} is no address of a producer: use tcp://host:port, or ipc:///path")
    return address


class Lookup:
    """The addresses of producers, looked up again and again: in a thread, since a name server may take its time."""

    def __init__(self, places: Sequence[str]) -> None:
        self._known = {place: [] if is_looked_up(place) else [place] for place in places}
        self.found = self._flat()
        self.failed: dict[str, str] = {}
        """Why places could not be looked up; the addresses that they had before count."""
        self._stop = Stop.apart()
        if any(map(is_looked_up, places)):
            Thread(target=self._run, name="lookup", daemon=True).start()

    def close(self) -> None:
        """Look no further."""
        self._stop.set()

    def _run(self) -> None:
        while True:
            for place in filter(is_looked_up, self._known):
                try:
                    self._known[place] = looked_up(place)
                    self.failed.pop(place, None)
                except (OSError, ValueError) as error:
                    self.failed[place] = str(error)
            self.found = self._flat()
            if self._stop.wait(LOOKUP_SECONDS):
                return

    def _flat(self) -> list[str]:
        return list(dict.fromkeys(address for found in self._known.values() for address in found))


def is_stream(url: object) -> bool:
    """Whether a url is one of the eight kinds of streams.

    >>> is_stream("zpull://127.0.0.1:7880"), is_stream("tcp://127.0.0.1:7880")
    (True, False)
    """
    return isinstance(url, str) and _STREAM.match(url) is not None


def is_remote(url: object) -> bool:
    """Whether batches come from a url: that of a producer, or a stream."""
    return is_stream(url) or (isinstance(url, str) and url.startswith(("tcp://", "ipc://", _DNS)))


def is_here(address: str) -> bool:
    """Whether only programs of this machine can be at an address.

    >>> [is_here(each) for each in ("tcp://127.0.0.1:7880", "tcp://[::1]:7880", "ipc:///run/a", "tcp://cpu-0:7880")]
    [True, True, True, False]
    """
    tcp = _TCP.fullmatch(_as_tcp(address))
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


def _as_tcp(place: str) -> str:
    return place.replace(_DNS, "tcp://", 1) if place.startswith(_DNS) else place


def zeromq() -> ModuleType:
    """The package zmq, or the error that says what to install."""
    try:
        imported("msgpack")  # both, before anything is open
        return imported("zmq")
    except ImportError as error:
        hint = "pip install 'webdataset[net]'"
        raise MissingPackageError(f"batches from other machines need {error.name}", hint=hint) from error
