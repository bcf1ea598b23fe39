"""Tenbin: arrays as aligned binary chunks.

A chunk is the 8 bytes `~TenBin~`, the payload's length as an int64, the payload, and zeros up to a multiple
of 64 counted from the payload. An array is a header chunk and a data chunk; the header holds int64 words:
dtype, info string (both 8 ASCII bytes), number of dimensions, dimensions.

>>> import numpy as np
>>> data = encode_buffer([np.arange(6, dtype="float32").reshape(2, 3)], infos=["abc"])
>>> len(data), decode_buffer(data, infos=True)
(160, ([array([[0., 1., 2.],
       [3., 4., 5.]], dtype=float32)], ['abc']))
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from .dtypes import fits

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

magic_str = "~TenBin~"
magic_bytes = magic_str.encode("ascii")
magic: int = struct.unpack("@q", magic_bytes)[0]

short_to_long = {
    "f2": "float16", "f4": "float32", "f8": "float64",
    "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
}  # fmt: skip
long_to_short = {name: short for short, name in short_to_long.items()}

MAX_DIMENSIONS = 9
ALIGNMENT = 64

Infos = bool | Sequence[str]


def encode_buffer(l: Sequence[Array], infos: Sequence[str] | None = None) -> bytearray:  # noqa: E741 given by the API
    """A list of arrays as one buffer; each array may carry an info string of up to 8 characters."""
    if not isinstance(l, (list, tuple)):
        raise ValueError(f"a list of arrays is needed, got {type(l).__name__}")
    return encode_chunks(encode_list(l, infos))


def decode_buffer(buf: object, infos: Infos = False) -> Any:
    """The arrays in a buffer, as views of it; with infos=True also the info strings.

    A list of strings as `infos` is compared with the info strings found: a difference is a ValueError.
    """
    return decode_list(decode_chunks(buf), infos)


def encode_list(l: Iterable[Array], infos: Sequence[str] | None = None) -> list[Any]:  # noqa: E741 given by the API
    """Header and data of every array, as a flat list of chunks."""
    arrays = list(l)
    strings = [""] * len(arrays) if infos is None else infos
    if isinstance(strings, str) or len(strings) != len(arrays):
        raise ValueError(f"one info string per array is needed: {len(arrays)} arrays, infos {strings!r}")
    chunks: list[Any] = []
    for array, info in zip(arrays, strings, strict=True):
        chunks += [encode_header(array, info), bytedata(array)]
    return chunks


def decode_list(l: Sequence[Any], infos: Infos = False) -> Any:  # noqa: E741 given by the API
    """Arrays out of header and data chunks; `infos` as in `decode_buffer`."""
    import numpy as np

    if len(l) % 2:
        raise ValueError(f"the last array has a header but no data ({len(l)} chunks)")
    arrays, strings = [], []
    for header, data in zip(l[0::2], l[1::2], strict=True):
        shape, dtype, info = decode_header(header)
        if math.prod(shape) * dtype.itemsize != bytelen(data) or not fits(shape, dtype.itemsize, bytelen(data)):
            raise ValueError(f"the header says shape {shape} of {dtype}, the data has {bytelen(data)} bytes")
        arrays.append(np.frombuffer(data, dtype=dtype).reshape(shape))
        strings.append(info)
    return check_infos(arrays, strings, infos)


def encode_chunks(l: Iterable[Any]) -> bytearray:  # noqa: E741 given by the API
    """Payloads as one buffer of chunks."""
    result = bytearray()
    for payload in l:
        data = bytedata(payload)
        result += _frame(bytelen(data))
        result += data
        result += bytes(-bytelen(data) % ALIGNMENT)
    return result


def decode_chunks(buf: Any) -> list[Any]:
    """The payloads of a buffer of chunks, as views of it."""
    view = memoryview(buf).cast("B")
    chunks, position = [], 0
    while position < len(view):
        length = _payload_length(view[position : position + 16])
        start = position + 16
        if length > len(view) - start:
            raise ValueError(f"a chunk of {length} bytes is cut: only {len(view) - start} are there")
        chunks.append(view[start : start + length])
        position = start + roundup(length)
    return chunks


def write(stream: BinaryIO, l: Iterable[Array], infos: Sequence[str] | None = None) -> None:  # noqa: E741 as above
    """Write arrays to a stream."""
    for chunk in encode_list(l, infos):
        write_chunk(stream, chunk)


def read(stream: BinaryIO, n: int = sys.maxsize, infos: Infos = False) -> Any:
    """Read up to n arrays from a stream."""
    chunks: list[bytes] = []
    while len(chunks) < 2 * n and (chunk := read_chunk(stream)) is not None:
        chunks.append(chunk)
    return decode_list(chunks, infos)


def write_chunk(stream: BinaryIO, buf: object) -> None:
    """Write one chunk to a stream."""
    stream.write(encode_chunks([buf]))


def read_chunk(stream: BinaryIO) -> bytes | None:
    """Read one chunk from a stream; None at its end."""
    frame = stream.read(16)
    if not frame:
        return None
    length = _payload_length(frame)
    padded = _read_exactly(stream, roundup(length), needed=length)
    return padded[:length]


def save(fname: str, *args: Array, infos: Sequence[str] | None = None, nocheck: bool = False) -> None:
    """Write arrays to a file; its name should end in .ten, unless nocheck."""
    _check_name(fname, nocheck)
    with open(fname, "wb") as stream:
        write(stream, args, infos=infos)


def load(fname: str, infos: Infos = False, nocheck: bool = False) -> Any:
    """Read the arrays of a file."""
    _check_name(fname, nocheck)
    with open(fname, "rb") as stream:
        return read(stream, infos=infos)


def encode_header(a: Array, info: str = "") -> memoryview:
    """The header of an array: dtype, info, dimensions."""
    import numpy as np

    short = long_to_short.get(a.dtype.name)
    if short is None:
        raise ValueError(f"unsupported array type {a.dtype}; the types are {' '.join(long_to_short)}")
    if a.ndim > MAX_DIMENSIONS:
        raise ValueError(f"too many dimensions: {a.ndim}, at most {MAX_DIMENSIONS}")
    return np.array([str64(short), str64(info), a.ndim, *a.shape], dtype="i8").data.cast("B")


def decode_header(h: Any) -> tuple[tuple[int, ...], np.dtype[Any], str]:
    """Shape, dtype and info string of an array's header."""
    import numpy as np

    if bytelen(h) % 8 or bytelen(h) < 24:
        raise ValueError(f"an array's header cannot have {bytelen(h)} bytes")
    words = [int(word) for word in np.frombuffer(h, dtype="i8")]
    name, ndim, shape = unstr64(words[0]), words[2], tuple(words[3:])
    if name not in short_to_long:
        raise ValueError(f"unknown array type {name!r}")
    if ndim != len(shape) or ndim > MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise ValueError(f"impossible shape: {ndim} dimensions, {shape[:10]}")
    return shape, np.dtype(short_to_long[name]), unstr64(words[1])


def check_infos(data: list[Any], infos: Sequence[str], required_infos: Infos | None = None) -> Any:
    """Return the arrays, with their infos if asked; raise ValueError if infos are required and differ.

    >>> check_infos([1], ["a"]), check_infos([1], ["a"], True), check_infos([1], ["a"], ["a"])
    ([1], ([1], ['a']), [1])
    """
    if required_infos is False or required_infos is None:
        return data
    if required_infos is True:
        return data, infos
    if list(required_infos) != list(infos):
        raise ValueError(f"the infos are {list(infos)}, required are {list(required_infos)}")
    return data


check_info = check_infos


def check_acceptable_input_type(data: Any, allow64: bool) -> None:
    """Raise ValueError unless every array has a dtype tenbin knows; 64 bit ones only if allowed."""
    for array in [data] if hasattr(data, "dtype") else data:
        if array.dtype.name not in long_to_short:
            raise ValueError(f"unsupported array type {array.dtype}")
        if not allow64 and array.dtype.itemsize == 8:
            raise ValueError("64 bit arrays are not allowed unless explicitly enabled")


def bytelen(a: object) -> int:
    """The number of bytes of an array or buffer."""
    if hasattr(a, "nbytes"):
        return int(a.nbytes)
    if isinstance(a, (bytes, bytearray)):
        return len(a)
    raise ValueError(f"{type(a).__name__} has no bytes")


def bytedata(a: object) -> bytes | bytearray | memoryview:
    """The bytes of an array in C order, native byte order; buffers as they are."""
    import numpy as np

    if isinstance(a, (bytes, bytearray, memoryview)):
        return a
    if isinstance(a, (np.ndarray, np.generic)):
        native = np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("="))
        return native.reshape(-1).view("u1").data
    raise ValueError(f"an array is needed, got {type(a).__name__}")


def str64(s: str) -> int:
    """Up to 8 ASCII characters as an int64.

    >>> str64("f4"), unstr64(13414)
    (13414, 'f4')
    """
    data = s.encode("ascii")
    if len(data) > 8:
        raise ValueError(f"at most 8 characters fit, got {s!r}")
    word: int = struct.unpack("@q", data.ljust(8, b"\0"))[0]
    return word


def unstr64(i: int) -> str:
    """The characters in an int64."""
    return struct.pack("@q", i).rstrip(b"\0").decode("ascii")


def roundup(n: int, k: int = ALIGNMENT) -> int:
    """The next multiple of k.

    >>> roundup(0), roundup(1), roundup(64)
    (0, 64, 64)
    """
    return -(-n // k) * k


def _frame(length: int) -> bytes:
    return magic_bytes + struct.pack("@q", length)


def _payload_length(frame: bytes | memoryview) -> int:
    if len(frame) < 16:
        raise ValueError(f"a chunk is cut in its first {len(frame)} bytes")
    found, length = struct.unpack("@qq", frame)
    if found != magic:
        raise ValueError("a chunk does not begin with the magic bytes ~TenBin~")
    if length < 0:
        raise ValueError(f"a chunk claims {length} bytes")
    return int(length)


def _read_exactly(stream: BinaryIO, size: int, *, needed: int) -> bytes:
    """Read in pieces, so that memory grows with what arrives, not with what a length field claims."""
    pieces, rest = [], size
    while rest and (piece := stream.read(min(rest, 1 << 20))):
        pieces.append(piece)
        rest -= len(piece)
    if size - rest < needed:
        raise ValueError(f"a chunk of {needed} bytes is cut: only {size - rest} are there")
    return b"".join(pieces)


def _check_name(fname: str, nocheck: bool) -> None:
    if not nocheck and not str(fname).endswith(".ten"):
        raise ValueError(f"the file name should end in .ten, got {fname!r}; nocheck=True takes any name")
