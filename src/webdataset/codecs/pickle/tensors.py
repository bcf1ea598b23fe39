"""torch's part of the list: tensors, whose bytes torch itself stores as a pickle inside the pickle."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from webdataset.codecs.compression import check_decoded
from webdataset.codecs.dtypes import is_shape
from webdataset.codecs.packages import torch_package

from .builders import Builder, Name, check
from .torchfiles import load_checked

if TYPE_CHECKING:
    import torch

    from .machine import Machine


def find_torch(full: str) -> tuple[Any, Builder | None] | None:
    """The object for one of torch's names on the stack, and its builder."""
    if full in BUILDERS:
        return Name(full), BUILDERS[full]
    torch = torch_package()
    value = getattr(torch, full.removeprefix("torch."), None)
    return (value, None) if isinstance(value, torch.dtype) else None


def _load_from_bytes(machine: Machine, args: tuple[Any, ...]) -> object:
    """A storage. torch would load these bytes with its unrestricted unpickler; weights_only is the safe one."""
    check(len(args) == 1 and type(args[0]) is bytes, "a tensor", "of other things than bytes")
    machine.charge(len(args[0]))
    return load_checked(args[0])


def _rebuild_tensor(machine: Machine, args: tuple[Any, ...]) -> object:  # noqa: ARG001
    torch = torch_package()
    check(6 <= len(args) <= 7, "a tensor", "with such arguments")
    storage, offset, size, stride, requires_grad, hooks = args[:6]
    check(isinstance(storage, torch.storage.TypedStorage), "a tensor", "without its bytes")
    check(type(offset) is int and offset >= 0, "a tensor", "at such an offset")
    check(is_shape(size) and is_shape(stride) and len(size) == len(stride), "a tensor", "of such a shape")
    check(_lies_inside(storage, offset, size, stride), "a tensor", "that reaches outside its bytes")
    check_decoded(math.prod(size) * storage.dtype.itemsize)
    check(type(hooks) in (OrderedDict, type(None)) and not hooks, "a tensor", "with hooks")
    # the typed storage's own methods warn that it is deprecated, but it is what pickles hold
    tensor = torch.tensor([], dtype=storage.dtype).set_(storage._untyped_storage, offset, size, stride)
    tensor.requires_grad = requires_grad is True
    return tensor


def _rebuild_parameter(machine: Machine, args: tuple[Any, ...]) -> object:  # noqa: ARG001
    torch = torch_package()
    check(len(args) == 3 and isinstance(args[0], torch.Tensor) and not args[2], "a parameter", "with such arguments")
    return torch.nn.Parameter(args[0], args[1] is True)


def _size(machine: Machine, args: tuple[Any, ...]) -> object:  # noqa: ARG001
    check(len(args) == 1 and is_shape(args[0]), "a torch.Size", "of other things than sizes")
    return torch_package().Size(args[0])


def _device(machine: Machine, args: tuple[Any, ...]) -> object:  # noqa: ARG001
    named = 1 <= len(args) <= 2 and type(args[0]) is str and len(args[0]) <= 32
    check(named and all(type(index) is int for index in args[1:]), "a torch.device", "with such arguments")
    return torch_package().device(*args)


BUILDERS: dict[str, Builder] = {
    "torch.storage._load_from_bytes": _load_from_bytes,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch.Size": _size,
    "torch.device": _device,
}


def _lies_inside(
    storage: torch.storage.TypedStorage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> bool:
    """torch itself would enlarge the storage instead."""
    if 0 in size:
        return True
    last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    return bool((last + 1) * storage.dtype.itemsize <= storage._untyped_storage.nbytes())
