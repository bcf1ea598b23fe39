"""Keys: who may ask a producer for batches, and whose batches a trainer believes (CurveZMQ).

A producer's file has its own pair of keys and the public keys of the trainers that it lets in; a trainer's has its
own pair and the producer's public key. Everything between them is encrypted, and authenticated both ways.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.private import OTHERS_WRITE
from webdataset.errors import SecurityError, StorageError

from .addresses import zeromq

if TYPE_CHECKING:
    import zmq

PRODUCER, TRAINER = "producer", "trainer"
MOST_BYTES = 1 << 20
DOMAIN = "webdataset"
"""Of the questions that a socket asks who guards it."""


class KeyFile(NamedTuple):
    """What a file of keys holds."""

    kind: str
    public: bytes
    secret: bytes
    server: bytes = b""
    """A trainer's: the public key of its producers."""
    trainers: tuple[tuple[str, bytes], ...] = ()
    """A producer's: the names and public keys of those that it lets in."""

    def __repr__(self) -> str:
        return f"<keys of a {self.kind}>"

    def serve(self, context: zmq.Context[Any], socket: zmq.Socket[Any]) -> Any:
        """Make a socket that is to be bound let in only who is in the list; stop() what is returned in the end."""
        zmq = zeromq()
        from zmq.auth.thread import ThreadAuthenticator

        allowed = {key for _, key in self.trainers}
        guard = ThreadAuthenticator(context)
        guard.start()
        guard.configure_curve_callback(DOMAIN, credentials_provider=_Allowed(allowed))
        # without a guard, because it has died or is being stopped, nobody is let in: else everybody would be
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public)
        return guard

    def connect(self, socket: zmq.Socket[Any]) -> None:
        """Make a socket that is to be connected show this key, and believe only the producer's."""
        zmq = zeromq()
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public)
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server)


class _Allowed:
    def __init__(self, keys: set[bytes]) -> None:
        self._keys = keys

    def callback(self, domain: object, key: bytes) -> bool:  # noqa: ARG002 - one list for all
        return key in self._keys


Keys = KeyFile | str | os.PathLike[str]
"""Keys, or the file in which they are."""


def keys_of(keys: Keys | None, kind: str) -> KeyFile | None:
    """The keys in a file, which must be of a producer or a trainer; None stays None."""
    if keys is None or isinstance(keys, KeyFile):
        found = keys
    else:
        found = read_keys(os.fspath(keys))
    if found is not None and found.kind != kind:
        raise SecurityError(
            f"these are the keys of a {found.kind}, and those of a {kind} are needed",
            url=None if keys is None or isinstance(keys, KeyFile) else os.fspath(keys),
            hint="`wl keygen serve.key train.key` makes both: the first for `wl serve`, the second for RemoteLoader",
        )
    return found


def read_keys(path: str) -> KeyFile:
    """The keys in a file; a SecurityError if it holds none."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = json.loads(file.read(MOST_BYTES))
        keys = KeyFile(
            data["kind"],
            _key(data["public"]),
            _key(data["secret"]),
            _key(data["server"]) if data["kind"] == TRAINER else b"",
            tuple((str(name), _key(key)) for name, key in data.get("trainers", {}).items()),
        )
    except OSError as error:
        raise StorageError(f"the keys cannot be read: {error.strerror}", url=path) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SecurityError("this file holds no keys", url=path, hint="`wl keygen` makes them") from None
    _check_mode(mode, path)
    return keys


def _check_mode(mode: int, path: str) -> None:
    """Refuse keys that others may replace, and warn of those that they may read; owners and links are the site's."""
    if stat.S_ISREG(mode) and mode & OTHERS_WRITE:
        raise SecurityError("other users may replace these keys", url=path, hint=f"chmod 600 {path}")
    if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.warn(f"other users can read the keys in {path}: chmod 600 {path}", stacklevel=4)


def make_keys(producer: str, trainers: list[str]) -> list[str]:
    """Write keys for a producer, unless it has some, and for new trainers, whom it lets in from now on."""
    zmq = zeromq()
    for path in trainers:
        if os.path.lexists(path):
            raise StorageError("there is such a file already, and it may be in use", url=path, hint="name a new one")
    if os.path.exists(producer):
        own = keys_of(producer, PRODUCER)
        assert own is not None
    else:
        public, secret = zmq.curve_keypair()
        own = KeyFile(PRODUCER, public, secret)
    names = dict(own.trainers)
    for path in trainers:
        public, secret = zmq.curve_keypair()
        names[_name(path, names)] = public
        _write(path, {"kind": TRAINER, "public": public, "secret": secret, "server": own.public})
    _write(producer, {"kind": PRODUCER, "public": own.public, "secret": own.secret, "trainers": names})
    return [producer, *trainers]


def _name(path: str, taken: dict[str, bytes]) -> str:
    name = stem = os.path.basename(path).rpartition(".")[0] or os.path.basename(path)
    number = 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name


def _write(path: str, content: dict[str, Any]) -> None:
    """Write a file that nobody else can read, whole or not at all."""
    text = json.dumps(content, indent=1, default=lambda key: key.decode("ascii")) + "\n"
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as error:
        raise StorageError(f"the keys cannot be written: {error.strerror}", url=path) from error


def _key(text: Any) -> bytes:
    key = text.encode("ascii")
    if len(key) != 40:
        raise ValueError("a key has 40 characters")
    return bytes(key)
