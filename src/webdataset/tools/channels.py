"""Samples over ZeroMQ, from one process to another: zpush://, zpull://, zpub://, zsub:// and their reversals.

A url is `zpush://host:port` or, over another transport, `zpush+ipc:///run/samples`. PUSH and SUB connect, PULL and PUB
bind; zrpush, zrpull, zrpub and zrsub do it the other way round. Who binds port 0 gets a free one, and is told which
(`bound`). Whoever reaches a bound port can send samples or take them, so that it must be on loopback unless
`WDS_ALLOW_BIND=1` is set. Each sample is one message: a msgpack map of `__key__` and the fields' bytes. The record
`{"__EOF__": true}` ends the stream.

>>> Address.of("zpush+ipc:///run/samples")
Address(kind='PUSH', binds=False, endpoint='ipc:///run/samples')
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from webdataset.base.reports import current_report
from webdataset.base.settings import settings
from webdataset.base.transactions import Transaction
from webdataset.errors import MissingPackageError, SampleError, SecurityError, StorageError
from webdataset.handlers import Handler, ask, checked_handler, reraise_exception

Sample = dict[str, Any]
Bound = Callable[[str], None]
"""Told the url with the port that was free, where the given one has port 0."""

KINDS = {
    "zpush": ("PUSH", False), "zpull": ("PULL", True), "zpub": ("XPUB", True), "zsub": ("SUB", False),
    "zrpush": ("PUSH", True), "zrpull": ("PULL", False), "zrpub": ("XPUB", False), "zrsub": ("SUB", True),
}  # fmt: skip
"""Scheme -> kind of socket, and whether it binds. XPUB is a PUB that knows whether somebody listens."""

WAITING = 100
"""Messages that may wait on each side; more would only fill the memory."""

PATIENCE_MS = 60_000
"""How long a sender waits for its receivers to leave first: ZeroMQ may lose what they have not yet taken."""

END = "__EOF__"

_LOOPBACK = re.compile(r"tcp://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]|::1|lo):[^:]*$")
_URL = re.compile(r"(z[a-z]+)(?:\+([a-z]+))?://([^#]+)", re.DOTALL)


class Address(NamedTuple):
    """A url, taken apart."""

    kind: str
    binds: bool
    endpoint: str

    @classmethod
    def of(cls, url: str) -> Address:
        """What to open; ValueError for what is none of ours."""
        found = _URL.fullmatch(url)
        if found is None or found.group(1) not in KINDS:
            raise ValueError(f"{url!r} is no channel; write zpush://host:port, or zpush+ipc:///path")
        scheme, transport, place = found.groups()
        return cls(*KINDS[scheme], f"{transport or 'tcp'}://{place}")

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines can reach what is bound here.

        >>> [Address.of(f"zpull://{host}:7880").is_open_to_others for host in ("127.0.0.1", "[::1]", "*", "10.0.0.1")]
        [False, False, True, True]
        """
        return self.binds and self.endpoint.startswith("tcp:") and not _LOOPBACK.match(self.endpoint)


def is_channel(url: str) -> bool:
    """Whether a url names a ZeroMQ channel.

    >>> is_channel("zpull://127.0.0.1:7880"), is_channel("a.tar")
    (True, False)
    """
    found = _URL.match(url)
    return found is not None and found.group(1) in KINDS


def received(url: str, handler: Handler = reraise_exception, *, bound: Bound | None = None) -> Iterator[Sample]:
    """The samples that arrive, until the sender says that there are no more."""
    return _received(url, checked_handler(handler), current_report(), bound)


def _received(url: str, handler: Handler, report: Any, bound: Bound | None) -> Iterator[Sample]:
    with _Channel(url, "PULL", "SUB", bound=bound) as channel:
        while True:
            try:
                sample = _unpacked(channel.receive())
            except SampleError as error:
                if ask(handler, error.at(url=url), report, "samples_dropped"):
                    continue
                return
            if sample is None:
                return
            report.count("samples_read")
            yield {**sample, "__url__": url}


class Sender(Transaction):
    """Writes samples into one channel; into several, each sample into one of them by chance.

    `end=False` leaves the receivers waiting for more, from somebody else. A publisher waits for its first listener.
    """

    def __init__(
        self, urls: Iterable[str], *, end: bool = True, seed: int | None = None, bound: Bound | None = None
    ) -> None:
        self._end = end
        self._random = random.Random(seed)
        self._channels: list[_Channel] = []
        try:
            for url in urls:
                if not end and "+ipc:" in url:
                    hint = "send the end too, or use tcp"
                    raise StorageError("over ipc the last samples may be lost without an end", url=url, hint=hint)
                self._channels.append(_Channel(url, "PUSH", "XPUB", bound=bound))
        except BaseException:
            self.abort()
            raise

    def write(self, sample: Sample) -> None:
        """Send one sample of bytes."""
        message = _packed(sample)
        channels = self._channels
        (channels[0] if len(channels) == 1 else self._random.choice(channels)).send(message)

    def close(self) -> None:
        """Say that this was all, and wait until it is on its way."""
        for channel in self._channels:
            if self._end:
                channel.send_last(_packed({END: True}))
            channel.close()

    def abort(self) -> None:
        """Leave at once."""
        for channel in self._channels:
            channel.close(at_once=True)


class _Channel:
    """One socket with a context of its own, so that closing it waits for nobody else's messages."""

    def __init__(self, url: str, *kinds: str, bound: Bound | None = None) -> None:
        zmq = _zmq()
        address = Address.of(url)
        if address.kind not in kinds:
            other = "reading: zpull, zsub, zrpull, zrsub" if "PULL" in kinds else "writing: zpush, zpub, zrpush, zrpub"
            raise StorageError(f"this channel goes the other way; for {other}", url=url)
        if address.is_open_to_others and not settings.allow_bind:
            hint = "bind 127.0.0.1, or set WDS_ALLOW_BIND=1 if the network can be trusted"
            raise SecurityError("whoever reaches this port could send samples or take them", url=url, hint=hint)
        self._context = zmq.Context()
        self._socket = self._context.socket(getattr(zmq, address.kind))
        self._publishes = address.kind == "XPUB"
        self._listened = not self._publishes
        self._ends = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) if "PUSH" in kinds else None
        self._tells_of_last = self._publishes and address.binds
        self._socket.setsockopt(zmq.SNDHWM, WAITING)
        self._socket.setsockopt(zmq.RCVHWM, WAITING)
        self._socket.setsockopt(zmq.MAXMSGSIZE, settings.max_member_bytes)
        if address.kind == "SUB":
            self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        if self._publishes:
            self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        try:
            (self._socket.bind if address.binds else self._socket.connect)(address.endpoint)
        except zmq.ZMQError as error:
            self.close(at_once=True)
            raise StorageError(f"the channel cannot be opened: {error}", url=url) from error
        if bound is not None and address.binds and address.endpoint.endswith(":0"):
            port = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]
            bound(f"{url.removesuffix('0')}{port}")

    def receive(self) -> bytes:
        return bytes(self._socket.recv())

    def send(self, message: bytes) -> None:
        if not self._listened:
            self._socket.recv()  # the first subscription
            self._listened = True
        self._socket.send(message)

    def send_last(self, message: bytes) -> None:
        """Send the end, and wait until the receiver has gone; of a publisher's the last."""
        while self._ends is not None and self._ends.poll(0):
            self._ends.recv_multipart()  # they left earlier
        self.send(message)
        if not self._tells_of_last and self._ends is not None:
            self._ends.poll(PATIENCE_MS)
        while self._tells_of_last and self._socket.poll(PATIENCE_MS):
            if self._socket.recv()[:1] == b"\0":
                return

    def close(self, *, at_once: bool = False) -> None:
        if not self._socket.closed:
            if self._ends is not None:
                self._socket.disable_monitor()
                self._ends.close(linger=0)  # or the context would wait for it
            self._socket.close(linger=0 if at_once else -1)
            self._context.term()

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(at_once=True)


def _packed(sample: Sample) -> bytes:
    import msgpack

    return bytes(msgpack.packb(sample, use_bin_type=True, unicode_errors="surrogateescape"))


def _unpacked(message: bytes) -> Sample | None:
    """A sample; None at the end. What comes from the network is looked at before anybody believes it."""
    import msgpack

    try:
        record = msgpack.unpackb(message, raw=False, unicode_errors="surrogateescape")
    except (ValueError, msgpack.UnpackException) as error:
        raise SampleError(f"a message is no msgpack: {error}") from error
    if isinstance(record, dict) and END in record:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("__key__"), (str, bytes)):
        raise SampleError("a message is no sample: it has no __key__")
    sample: Sample = {"__key__": _text(record.pop("__key__"))}
    for field, data in record.items():
        if not isinstance(field, str) or not isinstance(data, (bytes, str)):
            raise SampleError(f"a message is no sample: its field {field!r} holds no bytes", key=sample["__key__"])
        if not field.startswith("_"):
            sample[field] = data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")
    return sample


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")


def _zmq() -> Any:
    try:
        import msgpack  # noqa: F401 - said here, before anything is open
        import zmq
    except ImportError as error:
        hint = "pip install 'webdataset[net]'"
        raise MissingPackageError(f"samples over ZeroMQ need {error.name}", hint=hint) from error
    return zmq
