"""Arrays and tensors as the bytes of a field: npy, npz, tenbin, safetensors."""

from __future__ import annotations

import ast
import functools
import io
import math
import re
from typing import TYPE_CHECKING, Any

from webdataset.base.packages import is_installed, package
from webdataset.errors import DecodingError, EncodingError, SecurityError

from .basic import kind_of
from .compression import check_expansion, zip_pieces
from .dtypes import dtype_from, fits, is_shape
from .packages import is_array, is_tensor
from .tenbin import decode_buffer, encode_buffer

if TYPE_CHECKING:
    import zipfile

    import numpy as np

    Array = np.ndarray[Any, Any]

NPY_MAGIC = b"\x93NUMPY"
NPY_HEADERS = {(1, 0): (2, "latin-1"), (2, 0): (4, "latin-1"), (3, 0): (4, "utf-8")}
"""By version: the bytes of the header's length, and its encoding."""
MAX_NPY_HEADER = 64 << 10


def encode_npy(value: object) -> bytes:
    """The `value`, an array or tensor, in numpy's own format."""
    import numpy as np

    stream = io.BytesIO()
    np.lib.format.write_array(stream, as_array(value), allow_pickle=False)
    return stream.getvalue()


def decode_npy(data: bytes) -> Array:
    """An array in numpy's own format; its header is believed only as far as the bytes are there."""
    import numpy as np

    stream = io.BytesIO(data)
    shape, fortran, dtype = _npy_header(stream)
    if dtype.hasobject:
        raise SecurityError("an array of Python objects is a pickle, which is not loaded; store it as .pyd")
    start, count = stream.tell(), math.prod(shape)
    if not fits(shape, dtype.itemsize, len(data) - start):
        raise DecodingError(f"the header says shape {shape} of {dtype}, but only {len(data) - start} bytes follow")
    array: Array = np.ndarray(shape, dtype, order="F" if fortran else "C")
    if count and dtype.itemsize:
        flat = np.frombuffer(data, np.uint8, count * dtype.itemsize, start)
        array.reshape(-1, order="A").view(np.uint8)[:] = flat
    return array


def encode_npz(value: object) -> bytes:
    """A dict of arrays as a compressed zip archive, byte for byte as numpy.savez_compressed makes it."""
    import zipfile

    import numpy as np

    if not isinstance(value, dict):
        raise EncodingError(f"a dict of arrays is needed, got {kind_of(value)}")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in value.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, as_array(array), allow_pickle=False)
    return stream.getvalue()


def decode_npz(data: bytes) -> dict[str, Any]:
    """The arrays of a zip archive, by name."""
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        check_expansion(sum(member.file_size for member in members), len(data))
        return dict(_npz_member(archive, member) for member in members)


def encode_ten(value: object) -> bytes:
    """An array, or a list of arrays, in tenbin."""
    arrays = value if isinstance(value, (list, tuple)) else [value]
    return bytes(encode_buffer([as_array(array) for array in arrays]))


def decode_ten(data: bytes) -> list[Array]:
    """The list of arrays of a tenbin buffer, as views of it."""
    arrays: list[Array] = decode_buffer(data)
    return arrays


def encode_safetensors(value: object) -> bytes:
    """A dict of arrays or tensors in safetensors."""
    if not isinstance(value, dict):
        raise EncodingError(f"a dict of arrays or tensors is needed, got {kind_of(value)}")
    if value and all(is_tensor(item) for item in value.values()):
        save = package("safetensors.torch", extra="formats", purpose="for safetensors fields").save
        tensors = {str(name): tensor.detach().contiguous() for name, tensor in value.items()}
    else:
        save = package("safetensors.numpy", extra="formats", purpose="for safetensors fields").save
        tensors = {str(name): as_array(array, contiguous=True) for name, array in value.items()}
    data: bytes = save(tensors)
    return data


def decode_safetensors(data: bytes) -> dict[str, Any]:
    """The dict of tensors (arrays, where torch is not installed) of a safetensors field."""
    library = "torch" if is_installed("torch") else "numpy"
    load = package(f"safetensors.{library}", extra="formats", purpose="for safetensors fields").load
    tensors: dict[str, Any] = load(data)
    return tensors


def as_array(value: Any, *, contiguous: bool = False) -> Array:
    """A numpy array of an array, numpy scalar or tensor; Python objects cannot be stored as arrays."""
    import numpy as np

    if is_tensor(value):
        value = value.detach().cpu().numpy()
    if not is_array(value):
        raise EncodingError(f"an array or tensor is needed, got {kind_of(value)}; numpy.asarray makes one")
    array: Array = np.asarray(value)
    if array.dtype.hasobject:
        raise EncodingError("an array of Python objects would be a pickle; store it under .pyd")
    return np.ascontiguousarray(array).reshape(array.shape) if contiguous else array


def _npy_header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and data type as the header has them, which is read here since numpy believes its data type."""
    magic, version = stream.read(6), tuple(stream.read(2))
    if magic != NPY_MAGIC or version not in NPY_HEADERS:
        raise DecodingError(f"not an npy file of a known version (it begins with {magic + bytes(version)!r})")
    length, encoding = NPY_HEADERS[version]
    size = int.from_bytes(stream.read(length), "little")
    if size > MAX_NPY_HEADER:
        raise DecodingError(f"an npy header of {size} bytes, at most {MAX_NPY_HEADER} are read")
    return _parsed_header(stream.read(size).decode(encoding))


@functools.lru_cache(maxsize=128)
def _parsed_header(text: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Kept, since the arrays of a dataset have few shapes, and evaluating the text takes longer than all else."""
    header = _literal(text)
    if (
        type(header) is not dict
        or header.keys() != {"descr", "fortran_order", "shape"}
        or not is_shape(header["shape"])
    ):
        raise DecodingError("the npy header is damaged")
    return header["shape"], bool(header["fortran_order"]), dtype_from(header["descr"])


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except SyntaxError:  # Python 2 wrote long integers with an L
        return ast.literal_eval(re.sub(r"\b(\d+)L\b", r"\1", text.strip()))
    except (RecursionError, MemoryError):
        raise DecodingError("the npy header is nested too deeply") from None


def _npz_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[str, Any]:
    data = b"".join(zip_pieces(archive, member))
    if member.filename.endswith(".npy"):
        return member.filename.removesuffix(".npy"), decode_npy(data)
    return member.filename, data
