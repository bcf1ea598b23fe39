"""Streams of batches under Tensorcom's eight kinds of urls, in its format: endless, anonymous, at most once.

    zpush  PUSH, connects     zrpush  PUSH, binds         zpull  PULL, binds        zrpull  PULL, connects
    zpub   PUB, binds         zrpub   PUB, connects       zsub   SUB, connects      zrsub   SUB, binds

A url is `zpush://host:port`, or `zpush+ipc:///path`; the topic of a SUB comes after `#`. A message is, for each
array, a header and its data (`webdataset.tenbin`). What the format has no place for is in the info string of the
first array, which old receivers do not look at: who sends, and the number of the message, by which a subscriber
counts what it has lost; the end of a stream; and an error of the sender.
"""

from __future__ import annotations

import itertools
import secrets
import string
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.iterables import TorchIterable
from webdataset.base.logs import Log
from webdataset.base.settings import settings
from webdataset.codecs import tenbin
from webdataset.errors import EncodingError, SampleError, StorageError, WorkerError
from webdataset.storage.braces import braceexpand

from .addresses import check_allowed, is_stream, zeromq
from .keys import PRODUCER, TRAINER, Keys, keys_of

if TYPE_CHECKING:
    import numpy as np
    import torch

log = Log(__name__)

KINDS = {
    "zpush": ("PUSH", False), "zpull": ("PULL", True), "zpub": ("XPUB", True), "zsub": ("SUB", False),
    "zrpush": ("PUSH", True), "zrpull": ("PULL", False), "zrpub": ("XPUB", False), "zrsub": ("SUB", True),
}  # fmt: skip
"""Scheme -> kind of socket, and whether it binds. XPUB is a PUB that knows its subscribers."""
QUEUE = 4
"""Batches that wait on each side: they are large."""
LINGER_MS = 60_000
END, FAILED = "~END", "~ERROR"
_DIGITS = string.digits + string.ascii_letters
MOST_NUMBERS = len(_DIGITS) ** 4


class StreamAddress(NamedTuple):
    """The parts of a stream's url."""

    url: str
    kind: str
    binds: bool
    endpoint: str
    topic: str

    @classmethod
    def of(cls, url: str) -> StreamAddress:
        """Parse a url; ValueError if it is not a stream.

        >>> StreamAddress.of("zsub://127.0.0.1:7880#train")[1:]
        ('SUB', False, 'tcp://127.0.0.1:7880', 'train')
        """
        scheme, found, rest = url.partition("://")
        kind, _, transport = scheme.partition("+")
        place, _, topic = rest.partition("#")
        if not found or kind not in KINDS or not place:
            raise ValueError(f"{url!r} is no stream: use zpush://host:port or zpush+ipc:///path, or {', '.join(KINDS)}")
        return cls(url, *KINDS[kind], f"{transport or 'tcp'}://{place}", topic)


class Statistics:
    """Counts items and bytes, and their rates, in all and of late.

    >>> statistics = Statistics(horizon=10)
    >>> statistics.add(1000)
    >>> statistics.count, statistics.total
    (1, 1000)
    """

    def __init__(self, horizon: int = 1000) -> None:
        self.count = self.total = 0
        self.start = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque(maxlen=max(horizon, 2))

    def add(self, size: int = 0) -> None:
        """One more item, of this many bytes."""
        self.count += 1
        self.total += size
        self._recent.append((time.monotonic(), size))

    def rate(self) -> float:
        """Items per second."""
        return self.count / max(time.monotonic() - self.start, 1e-9)

    def throughput(self) -> float:
        """Bytes per second."""
        return self.total / max(time.monotonic() - self.start, 1e-9)

    def recent_rate(self) -> float:
        """Items per second, of late."""
        return max(len(self._recent) - 1, 0) / self._span()

    def recent_throughput(self) -> float:
        """Bytes per second, of late."""
        return sum(size for _, size in itertools.islice(self._recent, 1, None)) / self._span()

    def summary(self) -> str:
        """Everything on one line."""
        recent = f"{self.recent_rate():.2f} batches/s, {self.recent_throughput() / 1e6:.1f} MB/s"
        return f"{recent}; {self.count} batches, {self.rate():.2f}/s, {self.throughput() / 1e6:.1f} MB/s in all"

    def _span(self) -> float:
        return max(self._recent[-1][0] - self._recent[0][0], 1e-9) if self._recent else 1.0


class StreamConnection:
    """One or several streams: `send()` and `serve()` for those that push or publish, iteration for the others.

    Takes Tensorcom's arguments. `epoch` is `len()`, and how many batches an iteration gives unless `total` does;
    `infos=True` gives `(arrays, infos)`, a list of strings is required of every batch; `raw=True` gives the frames as
    they come; `converters="torch"`, `device=` and `batch_transforms` (one function per array, in turn) are applied on
    arrival. `allow64` lets arrays of 64 bits be sent. `url` has braces for several streams, unless `noexpand`; `queue`
    batches wait on each side; `keys` is a file that `wl keygen` made, and `insecure=True` goes without; every `report`
    seconds the rates are logged, those of the latest `stats_horizon` batches; `multipart=False` sends a batch as one
    frame; `batch_count` is accepted. Nothing is lost while both sides live; what a subscriber has missed is counted in
    `lost`.

    >>> sink = Connection("zrpush+ipc:///tmp/doctest-connection")
    >>> source = Connection("zrpull+ipc:///tmp/doctest-connection")
    >>> import numpy as np
    >>> sink.send([np.arange(3, dtype="u1")])
    >>> source.recv()
    [array([0, 1, 2], dtype=uint8)]
    >>> source.close(), sink.close()
    (None, None)
    """

    sampler = batch_sampler = None
    batch_size = 1

    def __init__(  # noqa: PLR0917 - given by Tensorcom
        self,
        url: str | Sequence[str] | None = None,
        epoch: int = 100_000,
        total: int = -1,
        multipart: bool = True,
        infos: bool | Sequence[str] = False,
        device: object = None,
        allow64: bool = False,
        raw: bool = False,
        batch_transforms: Sequence[Callable[[Any], Any] | None] | None = None,
        batch_count: bool = True,
        converters: Any = None,
        report: float = -1,
        stats_horizon: int = 1000,
        noexpand: bool = False,
        *,
        keys: Keys | None = None,
        insecure: bool = False,
        queue: int = QUEUE,
    ) -> None:
        self.epoch = epoch
        self.total = total
        self.multipart = multipart
        self.infos = infos
        self.allow64 = allow64
        self.raw = raw
        self.batch_count = batch_count
        self.report = report
        self.noexpand = noexpand
        self.stats = Statistics(stats_horizon)
        self.lost = 0
        """Batches that a subscriber has missed."""
        self.batch_transforms = batch_transforms
        self._converter = _converter(converters, device)
        self._keys, self._insecure, self._queue = keys, insecure, queue
        self._socket: Any = None
        self._context: Any = None
        self._guard: Any = None
        self._disconnects: Any = None
        self._sender = _digits(secrets.randbelow(len(_DIGITS) ** 3), 3)
        self._sent = 0
        self._seen: dict[str, int] = {}
        """Sender -> the number of its latest batch."""
        self._ended: set[str] = set()
        self._has_subscriber = True
        self.addresses: list[StreamAddress] = []
        if url is not None:
            self.connect(url)

    # -- opening ---------------------------------------------------------------------------------

    def connect(self, url: str | Sequence[str], topic: str = "") -> None:
        """Connect to all streams of a `url` with braces, or bind; one socket has them all. `topic` is that of a SUB."""
        urls = [url] if isinstance(url, str) else list(url)
        expanded = urls if self.noexpand else [each for one in urls for each in braceexpand(one)]
        found = [StreamAddress.of(each) for each in expanded]
        if not found or len({address.kind for address in [*self.addresses, *found]}) != 1:
            raise ValueError(f"the urls of a connection must be of one kind: {', '.join(expanded)}")
        zmq = zeromq()
        for address in found:
            check_allowed(address.endpoint, self._keys, insecure=self._insecure or not address.binds)
        if self._socket is None:
            self._make(zmq, found[0].kind, binds=any(address.binds for address in found))
        for address in found:
            if address.kind == "SUB":
                self._socket.setsockopt(zmq.SUBSCRIBE, (topic or address.topic).encode())
            try:
                (self._socket.bind if address.binds else self._socket.connect)(address.endpoint)
            except zmq.ZMQError as error:
                self.close()
                raise StorageError(f"the stream cannot be opened: {error}", url=address.url) from None
        self.addresses += found

    def _make(self, zmq: ModuleType, kind: str, *, binds: bool) -> None:
        keys = keys_of(self._keys, PRODUCER if binds else TRAINER)
        self._context = zmq.Context()
        self._socket = self._context.socket(getattr(zmq, kind))
        for option, value in (
            (zmq.LINGER, LINGER_MS if kind in ("PUSH", "XPUB") else 0),
            (zmq.SNDHWM, self._queue),
            (zmq.RCVHWM, self._queue),
            (zmq.MAXMSGSIZE, settings.max_member_bytes),
            (zmq.IPV6, 1),
        ):
            self._socket.setsockopt(option, value)
        if kind in ("PUSH", "XPUB"):
            self._disconnects = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        if kind == "XPUB":
            self._socket.setsockopt(zmq.XPUB_NODROP, 1)
            self._has_subscriber = False
        if keys is not None and binds:
            self._guard = keys.serve(self._context, self._socket)
        elif keys is not None:
            keys.connect(self._socket)

    def close(self) -> None:
        """Close the connection; a sender waits until what it has sent is taken."""
        if self._socket is not None:
            if self._guard is not None:
                self._guard.stop()
            if self._disconnects is not None:
                self._socket.disable_monitor()
                self._disconnects.close(linger=0)
            self._socket.close()
            self._context.term()
            self._socket = None

    # -- sending ---------------------------------------------------------------------------------

    def send(self, data: Any, allow64: bool | None = None) -> None:
        """Send a batch, the list of arrays `data`; `allow64` is as for the connection, if given.

        The first publisher's batch waits for a subscriber.
        """
        arrays = as_arrays(data)
        tenbin.check_acceptable_input_type(arrays, self.allow64 if allow64 is None else allow64)
        infos = [""] * len(arrays) if isinstance(self.infos, bool) else list(self.infos)
        if infos and not infos[0]:
            infos[0] = f"~{self._sender}{_digits(self._sent % MOST_NUMBERS, 4)}"
        self._send(arrays, infos)
        self._sent += 1
        self.stats.add(sum(array.nbytes for array in arrays))

    write = send

    def _send(self, arrays: list[Any], infos: list[str]) -> None:
        if self._socket is None:
            raise StorageError("the connection is closed")
        if not self._has_subscriber:
            self._socket.recv()
            self._has_subscriber = True
        # copied, since the program may use its arrays again
        if self.multipart:
            self._socket.send_multipart([bytes(part) for part in tenbin.encode_list(arrays, infos)])
        else:
            self._socket.send(bytes(tenbin.encode_buffer(arrays, infos)))

    def end(self) -> None:
        """Say that the stream has ended, and wait until a receiver that understands it has disconnected.

        ZeroMQ may lose what it has not received yet.
        """
        import numpy as np

        while self._disconnects.poll(0):
            self._disconnects.recv_multipart()  # earlier ones
        self._send([np.frombuffer(self._sender.encode(), "u1")], [END])
        self._disconnects.poll(LINGER_MS)

    def serve(self, source: Iterable[Any], report: float | None = None) -> None:
        """Send all batches of a `source`, and that it has ended, or the error that has ended it.

        Every `report` seconds the rates are logged, if given.
        """
        import numpy as np

        shown = _Reporter(self.stats, self.report if report is None else report)
        try:
            for batch in source:
                self.send(batch)
                shown()
        except Exception as error:
            with suppress(Exception):
                text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:10_000]
                self._send([np.frombuffer(text, "u1")], [FAILED])
            raise
        self.end()

    # -- receiving -------------------------------------------------------------------------------

    def recv(self) -> Any:
        """Receive a batch; EOFError when all who have sent something have said that it was the last."""
        while True:
            if self._socket is None:
                raise StorageError("the connection is closed")
            parts = [frame.buffer for frame in self._socket.recv_multipart(copy=False)]
            try:
                chunks = parts if len(parts) > 1 else tenbin.decode_chunks(parts[0])
                arrays, infos = tenbin.decode_list(chunks, infos=True)
            except (ValueError, TypeError, UnicodeError, OverflowError) as error:
                raise SampleError(f"a message is no batch: {str(error)[:200]}", url=self._url()) from None
            if not self._is_end(arrays, infos):
                break
            if self._seen.keys() <= self._ended:
                raise EOFError("the stream has ended")
        self._look_at(arrays, infos)
        self.stats.add(sum(map(tenbin.bytelen, parts)))
        if self.raw:
            return parts
        infos = ["" if _is_number(info) else info for info in infos]
        arrays = [self._converter(self._transformed(number, array)) for number, array in enumerate(arrays)]
        return tenbin.check_infos(arrays, infos, self.infos)

    def _is_end(self, arrays: list[Any], infos: list[str]) -> bool:
        if infos != [END]:
            return False
        self._ended.add(bytes(arrays[0])[:8].decode("ascii", "replace"))
        return True

    def _look_at(self, arrays: list[Any], infos: list[str]) -> None:
        """An error, or the number of a message."""
        info = infos[0] if infos else ""
        if info == FAILED:
            raise WorkerError(f"the sender failed: {bytes(arrays[0]).decode('utf-8', 'replace')}", url=self._url())
        if not _is_number(info):
            return
        sender, number = info[1:4], _number(info[4:])
        before = self._seen.get(sender)
        if self.addresses[0].kind == "SUB" and before is not None:  # of a PUSH, others get the rest
            self.lost += (number - before - 1) % MOST_NUMBERS
        if before is None and len(self._seen) > 10_000:
            self._seen.clear()
        self._seen[sender] = number

    def _transformed(self, number: int, array: Any) -> Any:
        transforms = self.batch_transforms
        transform = transforms[number % len(transforms)] if transforms else None
        return array if transform is None else transform(array)

    def items(self, report: float | None = None) -> Iterator[Any]:
        """The batches: `total` of them if that is given, else `epoch`, or until the stream ends.

        Every `report` seconds the rates are logged, if given.
        """
        shown = _Reporter(self.stats, self.report if report is None else report)
        for _ in range(self.total if self.total >= 0 else self.epoch):
            try:
                batch = self.recv()
            except EOFError:
                self.close()  # which releases the senders
                return
            shown()
            yield batch

    def __iter__(self) -> Iterator[Any]:
        return self.items()

    def __len__(self) -> int:
        return self.epoch

    def __enter__(self) -> StreamConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _url(self) -> str:
        return self.addresses[0].url if self.addresses else ""


Connection = StreamConnection
"""The name that Tensorcom gives it."""


class TensorcomDataset(TorchIterable):
    """The batches of streams as a dataset, which connects to `urls` when it is read.

    `length` is what `len()` says; the other `options` are those of `Connection`.

    >>> len(TensorcomDataset("zsub://127.0.0.1:788{0..3}", length=100))
    100
    """

    def __init__(self, urls: str | Sequence[str], length: int = 100_000, **options: Any) -> None:
        self.urls = urls
        self.length = length
        self.options = options
        if is_stream(urls):
            StreamAddress.of(str(urls))

    def __iter__(self) -> Iterator[Any]:
        with Connection(self.urls, epoch=self.length, **self.options) as connection:
            yield from connection

    def __len__(self) -> int:
        return self.length


def zconnect(url: str, **options: Any) -> StreamConnection:
    """Open a stream: the same as `Connection(url, **options)`."""
    return Connection(url, **options)


class StreamSource:
    """The batches of streams as a loader reads them: endless, until the sender says that it has ended."""

    num_workers = 0
    dataset = None

    def __init__(
        self, urls: str | Sequence[str], *, keys: Keys | None, insecure: bool, finish: Callable[[Any], Any]
    ) -> None:
        self.urls = [each for url in ([urls] if isinstance(urls, str) else urls) for each in braceexpand(url)]
        for url in self.urls:
            address = StreamAddress.of(url)
            if address.kind in ("PUSH", "XPUB"):
                raise ValueError(f"{url} is a url for sending; to receive use zpull, zsub, zrpull or zrsub")
        self._options: dict[str, Any] = {"keys": keys, "insecure": insecure}
        self._finish = finish
        self._connection: StreamConnection | None = None
        self._lost = 0

    @property
    def lost(self) -> int:
        """Batches that were missed."""
        return self._lost + (0 if self._connection is None else self._connection.lost)

    def __iter__(self) -> Iterator[Any]:
        if self._connection is None:  # kept from pass to pass: a stream goes on
            self._connection = Connection(self.urls, **self._options)
        while True:
            try:
                batch = self._connection.recv()
            except EOFError:
                self.close()  # which releases the senders
                return
            yield self._finish(tuple(batch))

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._lost += connection.lost
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}


def as_arrays(batch: Any) -> list[Any]:
    """A batch as the arrays that the format has room for; an EncodingError says which value has none."""
    import numpy as np

    if isinstance(batch, np.ndarray) or hasattr(batch, "numpy"):
        batch = [batch]
    if not isinstance(batch, (list, tuple)):
        hint = "use to_tuple(...) before batched()"
        raise EncodingError(f"a stream carries lists or tuples of arrays, not a {type(batch).__name__}", hint=hint)
    arrays = []
    for number, value in enumerate(batch):
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        if isinstance(array, (bool, int, float)):
            array = np.asarray(array)
        if not isinstance(array, (np.ndarray, np.generic)) or array.dtype.name not in tenbin.long_to_short:
            kind = getattr(array, "dtype", type(array).__name__)
            hint = "send numbers, or serve an exact pipeline at tcp://host:port, which carries any plain values"
            raise EncodingError(f"a stream carries arrays of numbers; value {number} of a batch is {kind}", hint=hint)
        arrays.append(np.asarray(array))
    return arrays


class _Reporter:
    """Logs the rates at a fixed interval."""

    def __init__(self, statistics: Statistics, every: float) -> None:
        self._statistics, self._every = statistics, every
        self._shown = time.monotonic()

    def __call__(self) -> None:
        if self._every > 0 and time.monotonic() - self._shown > self._every:
            self._shown = time.monotonic()
            log.info("%s", self._statistics.summary())


def _converter(converters: object, device: object) -> Callable[[Any], Any]:
    if callable(converters):
        return converters
    if converters not in (None, "numpy", "torch", "torch_cuda"):
        raise ValueError(f'converters is "numpy", "torch", "torch_cuda" or a function, got {converters!r}')
    if converters in (None, "numpy") and device is None:
        return lambda array: array
    where = device or ("cuda" if converters == "torch_cuda" else "cpu")

    def to_torch(array: np.ndarray[Any, Any]) -> torch.Tensor:
        import torch

        return torch.from_numpy(array).to(where)

    return to_torch


def _digits(number: int, count: int) -> str:
    """A number in base 62, padded to `count` characters.

    >>> _digits(61, 4), _number("000Z")
    ('000Z', 61)
    """
    found = ""
    for _ in range(count):
        number, digit = divmod(number, len(_DIGITS))
        found = _DIGITS[digit] + found
    return found


def _number(text: str) -> int:
    number = 0
    for digit in text:
        number = number * len(_DIGITS) + _DIGITS.index(digit)
    return number


def _is_number(info: str) -> bool:
    return len(info) == 8 and info[0] == "~" and all(char in _DIGITS for char in info[1:])
