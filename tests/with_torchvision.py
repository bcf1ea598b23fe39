"""torchvision for tests, also where its compiled half cannot be loaded because torch is the build without CUDA."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

_operators: list[Any] = []


def torchvision() -> ModuleType:
    """The package with its transforms; tests that need it are left out where it is not installed."""
    try:
        return pytest.importorskip("torchvision")
    except RuntimeError:  # operator torchvision::nms does not exist
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _operators.append(library)  # they go with it
    import torchvision

    return torchvision  # type: ignore[no-any-return]
