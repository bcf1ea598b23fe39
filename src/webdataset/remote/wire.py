"""Batches as messages: a small header of plain data, and the memory of arrays as it is, each a frame of its own.

Nothing in a message is code. A header is msgpack, bounded in size, in depth and in what its containers hold; an array
is described by type and shape, which must fit the frame that holds it before any memory is touched. Arrays are not
copied by the sender: a receiver's arrays are the frames' memory, or that into which their parts are put together.

>>> import numpy as np
>>> header, *frames = packed_batch([(np.arange(3), ["a", "b"])], id=7)
>>> message, items = unpacked_batch(header, frames)
>>> message["id"], items
(7, [(array([0, 1, 2]), ['a', 'b'])])
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from webdataset.base.logs import Log
from webdataset.base.memory import large_array
from webdataset.base.packages import imported, loaded
from webdataset.codecs.dtypes import dtype_from, fits
from webdataset.errors import DecodingError, EncodingError, MissingPackageError, SampleError, WebDatasetError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from _typeshed import ReadableBuffer

log = Log(__name__)

VERSION = 2
"""Raised when messages change, or the order of epochs does: both sides must have the same."""
MAX_HEADER_BYTES = 64 << 20
MAX_REQUEST_BYTES = 1 << 16
PART_BYTES = 512 << 10
"""Bytes of a message: a large batch is sent in several, each of which shows that the producer lives."""
MOST_CHARACTERS = 100
"""Characters of a name in a request."""
MAX_DEPTH = 32
MAX_FRAMES = 1 << 16
INLINE_BYTES = 1024
"""Bytes up to which an array or a value travels in the header: a frame has a price of its own."""
PLAIN = (type(None), bool, int, float, str, bytes)
OF_TORCH = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
"""Types that numpy does not have; their memory travels as that of unsigned integers."""

Frames = list[Any]
Message = dict[str, Any]


# -- messages without arrays -----------------------------------------------------------------------


def packed(message: Message) -> bytes:
    """A message of plain data."""
    return bytes(_msgpack().packb(message, use_bin_type=True, unicode_errors="surrogatepass"))


def unpacked(frame: ReadableBuffer, most: int = MAX_REQUEST_BYTES) -> Message:
    """The message in a frame; a SampleError if it is none, or a larger one than it may be.

    >>> unpacked(packed({"kind": "ping"}))
    {'kind': 'ping'}
    """
    data = memoryview(frame)
    if data.nbytes > most:
        raise SampleError(f"a message of {data.nbytes} bytes is too large: at most {most} are read")
    msgpack = _msgpack()
    try:
        message = msgpack.unpackb(data, raw=False, strict_map_key=False, unicode_errors="surrogatepass")
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise SampleError(f"a message cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise SampleError("a message does not say what kind it is: is this a program of ours that sends it?")
    return message


def whole(message: Message, name: str, most: int, least: int = 0) -> int:
    """A number in a message, which must be between two; a SampleError otherwise.

    >>> whole({"epoch": 3}, "epoch", most=9)
    3
    """
    value = message.get(name)
    if type(value) is not int or not least <= value <= most:
        raise SampleError(f"{name} must be a number from {least} to {most}, got {str(value)[:40]!r}")
    return value


def words(message: Message, name: str) -> str:
    """A short text in a message; a SampleError otherwise.

    >>> words({"job": "train"}, "job")
    'train'
    """
    value = message.get(name)
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS:
        raise SampleError(f"{name} must be a text of at most {MOST_CHARACTERS} characters, got {str(value)[:40]!r}")
    return value


def described_error(error: BaseException, id: int) -> Message:
    """An error as a message; one of ours says itself where it is."""
    last = [] if isinstance(error, WebDatasetError) else traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({last[0].filename}, line {last[0].lineno})" if last else ""
    log.info("a batch could not be made: %s: %s%s", type(error).__name__, error, where)
    return {"kind": "error", "id": id, "type": type(error).__name__, "text": f"{str(error)[:4000]}{where}"}


# -- batches ---------------------------------------------------------------------------------------


def packed_batch(items: Sequence[Any], **fields: object) -> Frames:
    """A header and the frames of a step's items."""
    frames: Frames = []
    tree = [_described(item, frames, f"item {number}", 0) for number, item in enumerate(items)]
    header = packed({"kind": "batch", **fields, "items": tree, "sizes": [_size(frame) for frame in frames]})
    if len(header) > MAX_HEADER_BYTES or len(frames) > MAX_FRAMES:
        raise EncodingError(
            f"a batch of {len(frames)} arrays with {len(header)} bytes of other values is too large to be sent",
            hint="collate its values into arrays",
        )
    return [header, *frames]


def unpacked_batch(header: ReadableBuffer, frames: Sequence[Any]) -> tuple[Message, list[Any]]:
    """The message, and the items, whose arrays are the memory of the frames."""
    message = unpacked(header, MAX_HEADER_BYTES)
    return message, batch_items(message, frames)


def batch_items(message: Message, frames: Sequence[Any]) -> list[Any]:
    """The items of a batch whose header was read already."""
    tree, sizes = message.get("items"), message.get("sizes")
    views = [memoryview(frame) for frame in frames]
    if not isinstance(tree, list) or sizes != [view.nbytes for view in views]:
        raise SampleError("a batch is damaged: its frames are not those that its header announces")
    reader = _Reader([view.cast("B") if view.nbytes else memoryview(b"") for view in views])
    try:
        return [reader.value(node, 0) for node in tree]
    except (SampleError, MissingPackageError):
        raise
    except (DecodingError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise SampleError(f"a batch is damaged: {type(error).__name__}: {str(error)[:200]}") from None


def in_parts(frames: Sequence[Any], most: int = PART_BYTES) -> Iterator[Frames]:
    """The frames of a batch, cut into pieces, as messages of at most so many bytes.

    >>> [[bytes(piece) for piece in part] for part in in_parts([b"header", b"data"], most=4)]
    [[b'head'], [b'er', b'da'], [b'ta']]
    """
    part: Frames = []
    room = most
    for frame in frames:
        view, start = memoryview(frame), 0
        while start < view.nbytes or not start:
            piece = view[start : start + room]
            part.append(piece)
            start, room = start + max(piece.nbytes, 1), room - piece.nbytes
            if room <= 0:
                yield part
                part, room = [], most
    if part:
        yield part


class Incoming:
    """The frames of a batch that comes in parts.

    >>> incoming = Incoming([6, 4], largest=100)
    >>> [incoming.add(part) for part in in_parts([b"header", b"data"], most=4)]
    [False, False, True]
    >>> [bytes(frame) for frame in incoming.frames]
    [b'header', b'data']
    """

    def __init__(self, sizes: object, largest: int) -> None:
        if not isinstance(sizes, list) or not 1 <= len(sizes) <= MAX_FRAMES + 1:
            raise SampleError("a batch is damaged: it does not say what its frames are")
        for size in sizes:
            if type(size) is not int or size < 0:
                raise SampleError(f"a batch is damaged: {str(size)[:80]} is no size")
            if size > largest:
                raise SampleError(f"an array of {size} bytes is too large: at most {largest} are read (largest=)")
        self.frames: list[memoryview] = []
        self._sizes: list[int] = sizes
        self._open: memoryview | None = None
        self._filled = 0

    def add(self, pieces: Iterable[memoryview]) -> bool:
        """The next part; whether the batch is complete."""
        import numpy as np

        for piece in pieces:
            if len(self.frames) == len(self._sizes):
                raise SampleError("a batch is damaged: there is more of it than was announced")
            size = self._sizes[len(self.frames)]
            if self._open is None and piece.nbytes == size:
                self.frames.append(piece)  # it came in one piece, and is not copied
                continue
            if self._open is None:
                # memory is taken from the system as it is filled
                self._open, self._filled = large_array((size,), np.dtype("u1")).data, 0
            end = self._filled + piece.nbytes
            if end > size:
                raise SampleError("a batch is damaged: a frame is larger than was announced")
            self._open[self._filled : end] = piece
            self._filled = end
            if end == size:
                self.frames.append(self._open)
                self._open = None
        return len(self.frames) == len(self._sizes)


def size_of(frames: Sequence[Any]) -> int:
    """Bytes of all frames of a message."""
    return sum(_size(frame) for frame in frames)


# -- values to nodes -------------------------------------------------------------------------------
#
# A node is a plain value that stands for itself, or a list whose first element says what it is:
#   ["l", nodes] list   ["t", nodes] tuple   ["d", keys, nodes] dict
#   ["a", dtype, shape] array, ["x", dtype, shape] tensor: the next frame; with bytes as fourth element those
#   ["o", shape, nodes] array of objects   ["n", dtype, bytes] number of numpy   ["b"] bytes: the next frame
#   ["i", text] an integer beyond 64 bits


def _described(value: Any, frames: Frames, path: str, depth: int) -> object:
    kind = type(value)
    if kind is bytes and len(value) > INLINE_BYTES:
        frames.append(value)
        return ["b"]
    if kind is int and not -(1 << 63) <= value < 1 << 64:
        return ["i", str(value)]
    if kind in PLAIN:
        return value
    if depth >= MAX_DEPTH:
        raise EncodingError(f"{path} of a batch is nested too deeply to be sent: at most {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return _described_dict(value, frames, path, depth)
    if isinstance(value, (list, tuple)):
        nodes = [_described(inner, frames, f"{path}[{number}]", depth + 1) for number, inner in enumerate(value)]
        return ["t" if isinstance(value, tuple) else "l", nodes]
    return _described_array(value, frames, path, depth)


def _described_dict(value: dict[Any, Any], frames: Frames, path: str, depth: int) -> list[Any]:
    for key in value:
        if type(key) not in (str, int, bool, bytes):
            raise EncodingError(f"{path} of a batch has a key of type {type(key).__name__}: use text or numbers")
    nodes = [_described(inner, frames, f"{path}[{key!r}]", depth + 1) for key, inner in value.items()]
    return ["d", list(value), nodes]


def _described_array(value: object, frames: Frames, path: str, depth: int) -> object:
    import numpy as np

    if isinstance(value, (bytearray, memoryview)):
        return _described(bytes(value), frames, path, depth)
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        return ["n", value.dtype.str, value.tobytes()] if value.dtype.kind not in "OV" else _refuse(value, path)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            if value.dtype != np.dtype(object):
                _refuse(value, path)
            nodes = [_described(inner, frames, f"{path}[{n}]", depth + 1) for n, inner in enumerate(value.ravel())]
            return ["o", list(value.shape), nodes]
        return _node("a", _type_name(value.dtype), value.shape, _memory(value), frames)
    torch = loaded("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _described_tensor(torch, value, frames, path)
    return _refuse(value, path)


def _described_tensor(torch: ModuleType, value: torch.Tensor, frames: Frames, path: str) -> list[Any]:
    if value.layout is not torch.strided or value.is_quantized:
        _refuse(value, path)
    name = str(value.dtype).removeprefix("torch.")
    value = value.detach().cpu().contiguous()
    shape = tuple(value.shape)
    if name in OF_TORCH:
        value = value.reshape(-1).view(torch.uint8 if value.element_size() == 1 else torch.int16)
    try:
        array = value.resolve_conj().resolve_neg().numpy()
    except TypeError:
        return _refuse(value, path)
    return _node("x", name if name in OF_TORCH else array.dtype.str, shape, _memory(array), frames)


def _node(kind: str, dtype: object, shape: tuple[int, ...], memory: memoryview, frames: Frames) -> list[Any]:
    if memory.nbytes <= INLINE_BYTES:
        return [kind, dtype, list(shape), bytes(memory)]
    frames.append(memory)
    return [kind, dtype, list(shape)]


def _memory(array: np.ndarray[Any, Any]) -> memoryview:
    """The array's bytes, without copying them if they lie side by side."""
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view("u1").data if array.nbytes else memoryview(b"")


def _type_name(dtype: np.dtype[Any]) -> object:
    if dtype.name in OF_TORCH:  # those of the package ml_dtypes
        return dtype.name
    return dtype.str if dtype.fields is None else _plain_fields(dtype.descr)


def _plain_fields(description: Iterable[Any]) -> list[Any]:
    return [[list(part) if isinstance(part, tuple) else part for part in field] for field in description]


def _refuse(value: object, path: str) -> NoReturn:
    raise EncodingError(
        f"{path} of a batch is a {type(value).__module__}.{type(value).__name__}, which is not sent",
        hint="make it an array, a number, text, bytes, or a list, tuple or dict of those; nothing is pickled",
    )


# -- nodes to values -------------------------------------------------------------------------------


class _Reader:
    def __init__(self, frames: list[memoryview]) -> None:
        self._frames = iter(frames)

    def value(self, node: object, depth: int) -> Any:
        if not isinstance(node, list):
            if isinstance(node, PLAIN):
                return node
            raise SampleError(f"a batch is damaged: a value is a {type(node).__name__}")
        if depth > MAX_DEPTH:
            raise SampleError(f"a batch is damaged: its values are nested deeper than {MAX_DEPTH} levels")
        kind, *rest = node
        if kind in ("l", "t"):
            (nodes,) = rest
            found = [self.value(inner, depth + 1) for inner in nodes]
            return tuple(found) if kind == "t" else found
        if kind == "d":
            keys, nodes = rest
            return dict(zip(keys, [self.value(inner, depth + 1) for inner in nodes], strict=True))
        if kind == "o":
            return self._objects(*rest, depth=depth)
        if kind == "b":
            return bytes(self._next())
        if kind == "i":
            return int(str(rest[0])[:4000])
        if kind == "n":
            return _number(*rest)
        if kind in ("a", "x"):
            return self._array(kind, *rest)
        raise SampleError(f"a batch is damaged: there is no kind of value {str(kind)[:20]!r}")

    def _next(self) -> memoryview:
        frame = next(self._frames, None)
        if frame is None:
            raise SampleError("a batch is damaged: it has fewer frames than arrays")
        return frame

    def _objects(self, shape: list[int], nodes: list[Any], *, depth: int) -> np.ndarray[Any, Any]:
        import numpy as np

        if math.prod(_checked_shape(shape)) != len(nodes):
            raise SampleError("a batch is damaged: an array of objects has another number of them")
        array = np.empty(len(nodes), dtype=object)
        for number, node in enumerate(nodes):
            array[number] = self.value(node, depth + 1)
        return array.reshape(shape)

    def _array(self, kind: str, dtype: object, shape: list[int], inline: bytes | None = None) -> object:
        import numpy as np

        memory = self._next() if inline is None else bytearray(inline)
        sizes = _checked_shape(shape)
        if isinstance(dtype, str) and dtype in OF_TORCH:
            return _foreign_type(dtype, sizes, memory)
        found = dtype_from(_fields(dtype))
        size = len(memory)
        if found.hasobject or math.prod(sizes) * found.itemsize != size or not fits(sizes, found.itemsize, size):
            raise SampleError(f"a batch is damaged: {size} bytes are no array of shape {sizes} of {found}")
        array = np.frombuffer(memory, dtype=found).reshape(sizes) if size else np.empty(sizes, dtype=found)
        if not array.flags.writeable:
            array = array.copy()
        torch = loaded("torch")
        return torch.from_numpy(array) if kind == "x" and torch is not None else array


def _foreign_type(name: str, shape: tuple[int, ...], memory: memoryview | bytearray) -> object:
    import numpy as np

    torch = loaded("torch")
    width = 1 if name.startswith("float8") else 2
    if math.prod(shape) * width != len(memory):
        raise SampleError(f"a batch is damaged: {len(memory)} bytes are no array of shape {shape} of {name}")
    raw = np.frombuffer(memory, dtype="u1" if width == 1 else "i2")
    raw = raw if raw.flags.writeable else raw.copy()
    if torch is not None:
        return torch.from_numpy(raw).view(getattr(torch, name)).reshape(shape)
    try:
        ml_dtypes = imported("ml_dtypes")
    except ImportError:
        hint = "import torch in the training program, pip install ml_dtypes, or send another type"
        raise MissingPackageError(f"numpy has no {name}, which a batch holds", hint=hint) from None
    return raw.view(getattr(ml_dtypes, name)).reshape(shape)


def _number(dtype: object, data: bytes) -> object:
    import numpy as np

    found = dtype_from(_fields(dtype))
    if found.hasobject or found.itemsize != len(data):
        raise SampleError(f"a batch is damaged: {len(data)} bytes are no {found}")
    return np.frombuffer(data, dtype=found)[0]


def _checked_shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > MAX_DEPTH or any(type(n) is not int or n < 0 for n in shape):
        raise SampleError(f"a batch is damaged: {str(shape)[:80]} is no shape")
    return tuple(shape)


def _fields(description: object) -> object:
    """A type as numpy describes it: msgpack has no tuples."""
    if not isinstance(description, list):
        return description
    return [tuple(tuple(part) if i == 2 else _fields(part) for i, part in enumerate(field)) for field in description]


def _size(frame: ReadableBuffer) -> int:
    return len(frame) if isinstance(frame, (bytes, bytearray)) else int(memoryview(frame).nbytes)


def _msgpack() -> ModuleType:
    try:
        return imported("msgpack")
    except ImportError as error:
        hint = "pip install 'webdataset[net]'"
        raise MissingPackageError("batches from other machines need msgpack", hint=hint) from error
