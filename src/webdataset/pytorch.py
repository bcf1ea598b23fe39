"""The torch classes older programs import from here; empty stand-ins where torch is not installed."""

from __future__ import annotations

from typing import Any

_NAMES = {"IterableDataset": "torch.utils.data", "DataLoader": "torch.utils.data", "TorchTensor": "torch"}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = __import__(_NAMES[name], fromlist=["*"])
    except ImportError:
        return type(name, (), {})
    return getattr(module, "Tensor" if name == "TorchTensor" else name)
