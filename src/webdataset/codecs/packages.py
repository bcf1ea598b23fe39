"""Arrays and tensors, whose packages are imported when a field needs them."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from webdataset.base.packages import imported, package


def torch_package() -> ModuleType:
    """torch, or what to install."""
    return package("torch", extra="torch", purpose="for tensors")


@cache
def torch_if_installed() -> ModuleType | None:
    """torch, or None."""
    try:
        return imported("torch")
    except ImportError:
        return None


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor, found out without importing torch.

    >>> is_tensor([1, 2])
    False
    """
    return any(f"{kind.__module__}.{kind.__qualname__}" == "torch.Tensor" for kind in type(value).__mro__)


def is_array(value: object) -> bool:
    """Whether a value is a numpy array or scalar, found out without importing numpy.

    >>> is_array(3)
    False
    """
    return any(kind.__module__ == "numpy" and kind.__name__ in ("ndarray", "generic") for kind in type(value).__mro__)
