"""Samples over ZeroMQ, from one process to another: zpush://, zpull://, zpub://, zsub:// and their reversals.

A url is `zpush://host:port` or, over another transport, `zpush+ipc:///run/samples`. PUSH and SUB connect, PULL and PUB
bind; zrpush, zrpull, zrpub and zrsub do it the other way round. Port 0 binds a free port, which is passed to `bound`.
Whoever reaches a bound port can send or receive samples, so it must be on loopback unless `WDS_ALLOW_BIND=1` is set.
Each sample is one message: a msgpack map of `__key__` and the fields' bytes. The record `{"__EOF__": true}` ends the
stream.

>>> ChannelAddress.of("zpush+ipc:///run/samples")
ChannelAddress(kind='PUSH', binds=False, endpoint='ipc:///run/samples')
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from webdataset.base.packages import imported
from webdataset.base.reports import Report, current_report
from webdataset.base.settings import settings
from webdataset.errors import MissingPackageError, SampleError, SecurityError, StorageError
from webdataset.handlers import Handler, ask, checked_handler, reraise_exception
from webdataset.writing.transactions import Transaction

Sample = dict[str, Any]
Bound = Callable[[str], None]
"""Called with the url of the port that was bound, if the url had port 0."""

KINDS = {
    "zpush": ("PUSH", False), "zpull": ("PULL", True), "zpub": ("XPUB", True), "zsub": ("SUB", False),
    "zrpush": ("PUSH", True), "zrpull": ("PULL", False), "zrpub": ("XPUB", False), "zrsub": ("SUB", True),
}  # fmt: skip
"""Scheme -> kind of socket, and whether it binds. XPUB is a PUB that knows its subscribers."""

QUEUE_LENGTH = 100
"""Messages that are queued on each side."""

PATIENCE_MS = 60_000
"""How long a sender waits for its receivers to disconnect: ZeroMQ may lose what they have not received."""

END = "__EOF__"

_LOOPBACK = re.compile(r"tcp://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]|::1|lo):[^:]*$")
_URL = re.compile(r"(z[a-z]+)(?:\+([a-z]+))?://([^#]+)", re.DOTALL)


class ChannelAddress(NamedTuple):
    """The parts of a channel's url."""

    kind: str
    binds: bool
    endpoint: str

    @classmethod
    def of(cls, url: str) -> ChannelAddress:
        """Parse a url; ValueError if it is not a channel."""
        found = _URL.fullmatch(url)
        if found is None or found.group(1) not in KINDS:
            raise ValueError(f"{url!r} is not a channel; use zpush://host:port, or zpush+ipc:///path")
        scheme, transport, place = found.groups()
        return cls(*KINDS[scheme], f"{transport or 'tcp'}://{place}")

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines can reach what is bound here.

        >>> [ChannelAddress.of(f"zpull://{host}:7880").is_open_to_others for host in ("127.0.0.1", "[::1]", "*")]
        [False, False, True]
        """
        return self.binds and self.endpoint.startswith("tcp:") and not _LOOPBACK.match(self.endpoint)


def received(url: str, handler: Handler = reraise_exception, *, bound: Bound | None = None) -> Iterator[Sample]:
    """Receive samples until the sender signals the end of the stream."""
    return _received(url, checked_handler(handler), current_report(), bound)


def _received(url: str, handler: Handler, report: Report, bound: Bound | None) -> Iterator[Sample]:
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
    """Sends samples to a channel, or each sample to a random one of several.

    `end=False` does not signal the end, so receivers go on waiting. A publisher waits for its first subscriber.
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
                    hint = "signal the end of the stream, or use tcp"
                    raise StorageError("over ipc the last samples may be lost without it", url=url, hint=hint)
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
        """Signal the end of the stream, and wait until it is sent."""
        for channel in self._channels:
            if self._end:
                channel.send_last(_packed({END: True}))
            channel.close()

    def abort(self) -> None:
        """Close without waiting."""
        for channel in self._channels:
            channel.close(at_once=True)


class _Channel:
    """A socket with its own context, so that closing it does not wait for other sockets' messages."""

    def __init__(self, url: str, *kinds: str, bound: Bound | None = None) -> None:
        zmq = _zmq()
        address = ChannelAddress.of(url)
        if address.kind not in kinds:
            other = "reading: zpull, zsub, zrpull, zrsub" if "PULL" in kinds else "writing: zpush, zpub, zrpush, zrpub"
            raise StorageError(f"this channel goes the other way; for {other}", url=url)
        if address.is_open_to_others and not settings.allow_bind:
            hint = "bind 127.0.0.1, or set WDS_ALLOW_BIND=1 if the network can be trusted"
            raise SecurityError("whoever reaches this port could send or receive samples", url=url, hint=hint)
        self._context = zmq.Context()
        self._socket = self._context.socket(getattr(zmq, address.kind))
        self._publishes = address.kind == "XPUB"
        self._has_subscriber = not self._publishes
        self._disconnects = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) if "PUSH" in kinds else None
        self._sees_unsubscribing = self._publishes and address.binds
        self._socket.setsockopt(zmq.SNDHWM, QUEUE_LENGTH)
        self._socket.setsockopt(zmq.RCVHWM, QUEUE_LENGTH)
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
        if not self._has_subscriber:
            self._socket.recv()  # the first subscription
            self._has_subscriber = True
        self._socket.send(message)

    def send_last(self, message: bytes) -> None:
        """Send the end, and wait until the receiver, or a publisher's last one, has disconnected."""
        while self._disconnects is not None and self._disconnects.poll(0):
            self._disconnects.recv_multipart()  # earlier ones
        self.send(message)
        if not self._sees_unsubscribing and self._disconnects is not None:
            self._disconnects.poll(PATIENCE_MS)
        while self._sees_unsubscribing and self._socket.poll(PATIENCE_MS):
            if self._socket.recv()[:1] == b"\0":
                return

    def close(self, *, at_once: bool = False) -> None:
        if not self._socket.closed:
            if self._disconnects is not None:
                self._socket.disable_monitor()
                self._disconnects.close(linger=0)  # or the context would wait for it
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
    """Parse and check a message: a sample, or None at the end."""
    import msgpack

    try:
        record = msgpack.unpackb(message, raw=False, unicode_errors="surrogateescape")
    except (ValueError, msgpack.UnpackException) as error:
        raise SampleError(f"a message is not msgpack: {error}") from error
    if isinstance(record, dict) and END in record:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("__key__"), (str, bytes)):
        raise SampleError("a message is not a sample: it has no __key__")
    sample: Sample = {"__key__": _text(record.pop("__key__"))}
    for field, data in record.items():
        if not isinstance(field, str) or not isinstance(data, (bytes, str)):
            raise SampleError(f"a message is not a sample: its field {field!r} is not bytes", key=sample["__key__"])
        if not field.startswith("_"):
            sample[field] = data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")
    return sample


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")


def _zmq() -> ModuleType:
    try:
        imported("msgpack")  # fail before anything is open
        return imported("zmq")
    except ImportError as error:
        hint = "pip install 'webdataset[net]'"
        raise MissingPackageError(f"samples over ZeroMQ need {error.name}", hint=hint) from error
