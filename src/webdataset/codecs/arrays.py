"""Arrays and tensors as the bytes of a field: npy, npz, tenbin, safetensors, pth."""

from __future__ import annotations

import io
import math
import pickle
import re
from typing import TYPE_CHECKING, Any

from webdataset.errors import DecodingError, EncodingError, SecurityError, UnsafePickleError, WebDatasetError
from webdataset.settings import settings

from .basic import kind_of
from .packages import is_array, is_tensor, package, torch_package
from .tenbin import decode_buffer, encode_buffer

if TYPE_CHECKING:
    import zipfile

    import numpy as np

    Array = np.ndarray[Any, Any]

FREE_BYTES = 64 << 20
TORCH_SWITCHES = (
    "allow it with torch.serialization.add_safe_globals, or, if you trust the data to run code, "
    "decode(allow_pickle=True), WDS_ALLOW_PICKLE=1 or WDS_PYTORCH_WEIGHTS_ONLY=0"
)


def encode_npy(value: Any) -> bytes:
    """An array or tensor in numpy's own format."""
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
    if min(shape, default=0) < 0 or count * dtype.itemsize > len(data) - start:
        raise DecodingError(f"the header says shape {shape} of {dtype}, but only {len(data) - start} bytes follow")
    array: Array = np.ndarray(shape, dtype, order="F" if fortran else "C")
    if count and dtype.itemsize:
        flat = np.frombuffer(data, np.uint8, count * dtype.itemsize, start)
        array.reshape(-1, order="A").view(np.uint8)[:] = flat
    return array


def encode_npz(value: Any) -> bytes:
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


def encode_ten(value: Any) -> bytes:
    """An array, or a list of arrays, in tenbin."""
    arrays = value if isinstance(value, (list, tuple)) else [value]
    return bytes(encode_buffer([as_array(array) for array in arrays]))


def decode_ten(data: bytes) -> list[Array]:
    """The list of arrays of a tenbin buffer, as views of it."""
    arrays: list[Array] = decode_buffer(data)
    return arrays


def encode_safetensors(value: Any) -> bytes:
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
    from importlib.util import find_spec

    library = "torch" if find_spec("torch") else "numpy"
    load = package(f"safetensors.{library}", extra="formats", purpose="for safetensors fields").load
    tensors: dict[str, Any] = load(data)
    return tensors


def encode_pth(value: Any) -> bytes:
    """Anything torch.save takes."""
    stream = io.BytesIO()
    torch_package().save(value, stream)
    return stream.getvalue()


def decode_pth(data: bytes, *, weights_only: bool | None = None) -> Any:
    """What torch.save wrote, on the CPU; only tensors and plain data, unless the program allows more."""
    if settings.secure:
        raise SecurityError("torch.load is refused in secure mode (WDS_SECURE, enforce_security)")
    if weights_only is None:
        weights_only = settings.pytorch_weights_only
    try:
        # not from a file on disk: there torch before 2.6 takes archives of old, and runs what is in them
        return torch_package().load(io.BytesIO(data), map_location="cpu", weights_only=weights_only)
    except pickle.UnpicklingError as exn:
        raise _torch_refusal(exn) from exn


def decode_pth_trusted(data: bytes) -> Any:
    """What torch.save wrote, any object."""
    return decode_pth(data, weights_only=False)


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


def check_expansion(size: int, stored: int) -> None:
    """Refuse what would expand beyond the limits."""
    if size > settings.max_decoded_bytes:
        raise DecodingError(
            f"it would expand to {size} bytes, the limit is {settings.max_decoded_bytes}",
            hint="WDS_MAX_DECODED_BYTES raises it",
        )
    if size > FREE_BYTES and size > settings.max_ratio * stored:
        raise DecodingError(f"{stored} bytes would expand to {size}, more than {settings.max_ratio} times as many")


def _torch_refusal(exn: Exception) -> WebDatasetError:
    """torch's page of advice as one line: what was refused and how to allow it here."""
    if named := re.search(r"(?:GLOBAL|Unsupported class) (\S+)", str(exn)):  # the latter in torch 2.1
        return UnsafePickleError(f"the file asks for {named[1]}, which is not plain data", hint=TORCH_SWITCHES)
    reason = re.search(r"Unsupported [^.\n]*", str(exn))
    return DecodingError(
        f"torch does not read it as tensors and plain data ({reason[0] if reason else 'not written by torch.save'})",
        hint=TORCH_SWITCHES,
    )


def _npy_header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    import numpy as np

    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    if version == (3, 0):  # as 2.0, with UTF-8 field names, for which numpy has no public reader
        return _header_3_0(stream)
    raise DecodingError(f"unknown version {version} of the npy format")


def _header_3_0(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    import ast
    import struct

    import numpy as np

    (length,) = struct.unpack("<I", stream.read(4))
    if length > 10_000:
        raise DecodingError(f"a header of {length} bytes")
    header = ast.literal_eval(stream.read(length).decode("utf-8"))
    shape = header["shape"]
    if not all(isinstance(size, int) for size in shape):
        raise DecodingError(f"impossible shape {shape!r}")
    return tuple(shape), bool(header["fortran_order"]), np.lib.format.descr_to_dtype(header["descr"])


def _npz_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[str, Any]:
    data = archive.read(member)
    if member.filename.endswith(".npy"):
        return member.filename.removesuffix(".npy"), decode_npy(data)
    return member.filename, data
