"""What `torch.save` wrote, loaded and checked.

`weights_only` keeps a file from running code, but torch believes the rest of it: indices of sparse tensors that lie
outside of them crash the process when they are used, and a tensor may claim more bytes than the file has.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from webdataset.base.settings import settings
from webdataset.codecs.compression import check_decoded, check_expansion, zip_pieces
from webdataset.codecs.packages import torch_package
from webdataset.errors import DecodingError, SecurityError, UnsafePickleError, WebDatasetError

from .keys import check_keys

if TYPE_CHECKING:
    import torch

LEGACY_PICKLES = 4
"""Before the tensors' bytes, torch 1.5 and older wrote a magic number, a version, facts on the machine, the object."""
SWITCHES = (
    "allow it with torch.serialization.add_safe_globals, or, if you trust the data to run code, "
    "decode(allow_pickle=True), WDS_ALLOW_PICKLE=1 or WDS_PYTORCH_WEIGHTS_ONLY=0"
)


def encode_pth(value: object) -> bytes:
    """The `value`, anything torch.save takes, as it writes it."""
    stream = io.BytesIO()
    torch_package().save(value, stream)
    return stream.getvalue()


def decode_pth(data: bytes, *, weights_only: bool | None = None) -> Any:
    """What torch.save wrote into `data`, on the CPU; only tensors and plain data, unless the program allows more.

    `weights_only=False` allows any object, True allows none; None asks `WDS_PYTORCH_WEIGHTS_ONLY`.
    """
    if settings.secure:
        raise SecurityError("torch.load is refused in secure mode (WDS_SECURE, enforce_security)")
    if weights_only is None:
        weights_only = settings.pytorch_weights_only
    return load_checked(data) if weights_only else _load(data, weights_only=False)


def decode_pth_trusted(data: bytes) -> Any:
    """What torch.save wrote, any object."""
    return decode_pth(data, weights_only=False)


def load_checked(data: bytes) -> Any:
    """Tensors and plain data; an error if a tensor is not what the file can hold."""
    size = _unpacked_size(data)
    _check_keys(data)
    value = _load(data, weights_only=True)
    _check_tensors(tensors_in([value]), size)
    return value


def tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors and storages in nested dicts, lists and tuples, each once."""
    torch = torch_package()
    kinds = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)
    pending, seen = list(values), set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        if isinstance(value, kinds):
            seen.add(id(value))
            yield value
        elif isinstance(value, (dict, list, tuple, set, frozenset)):
            seen.add(id(value))
            pending += [*value, *value.values()] if isinstance(value, dict) else value


def _load(data: bytes, *, weights_only: bool) -> Any:
    try:
        # not from a file on disk: there torch before 2.6 takes archives of old, and runs what is in them
        return torch_package().load(io.BytesIO(data), map_location="cpu", weights_only=weights_only)
    except pickle.UnpicklingError as exn:
        raise _refusal(exn) from exn


def _unpacked_size(data: bytes) -> int:
    """The bytes of all records in the file, which is a zip archive unless an old torch wrote it."""
    if not data.startswith(b"PK"):
        return len(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(record.file_size for record in archive.infolist())
    check_expansion(size, len(data))
    return size


def _check_keys(data: bytes) -> None:
    """torch builds dicts of whatever keys the file has."""
    if not data.startswith(b"PK"):
        check_keys(data, LEGACY_PICKLES)
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for record in archive.infolist():
            if record.filename.endswith(".pkl"):
                check_keys(b"".join(zip_pieces(archive, record)))


def _check_tensors(tensors: Iterable[Any], size: int) -> None:
    torch = torch_package()
    storages: dict[int, int] = {}
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.layout != torch.strided:
            _check_sparse(tensor)
            continue
        check_decoded(tensor.numel() * tensor.element_size())
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    if sum(storages.values()) > size:
        raise DecodingError(f"its tensors claim {sum(storages.values())} bytes, the file has {size}")


def _check_sparse(tensor: torch.Tensor) -> None:
    """Make it again from its parts, which torch then checks; loading them does not."""
    torch = torch_package()
    try:
        if tensor.layout == torch.sparse_coo:
            torch.sparse_coo_tensor(tensor._indices(), tensor._values(), tensor.shape, check_invariants=True)
            return
        rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        outer, inner = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
        torch.sparse_compressed_tensor(
            getattr(tensor, outer)(), getattr(tensor, inner)(), tensor.values(), tensor.shape,
            layout=tensor.layout, check_invariants=True,
        )  # fmt: skip
    except RuntimeError as exn:
        raise DecodingError(f"a sparse tensor is damaged: {exn}") from exn


def _refusal(exn: Exception) -> WebDatasetError:
    """torch's page of advice as one line: what was refused and how to allow it here."""
    if named := re.search(r"(?:GLOBAL|Unsupported class) (\S+)", str(exn)):  # the latter in torch 2.1
        return UnsafePickleError(f"the file asks for {named[1]}, which is not plain data", hint=SWITCHES)
    reason = re.search(r"Unsupported [^.\n]*", str(exn))
    return DecodingError(
        f"torch does not read it as tensors and plain data ({reason[0] if reason else 'not written by torch.save'})",
        hint=SWITCHES,
    )
