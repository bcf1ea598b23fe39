"""The programs of examples/, as modules of the test's own process, or run as a user runs them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
IMAGENET = EXAMPLES / "imagenet"


@contextlib.contextmanager
def loaded(path: Path) -> Iterator[ModuleType]:
    """A program as a module; the modules beside it that it imports are forgotten afterwards."""
    before, threads = set(sys.modules), torch.get_num_threads()
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(path.parent))
        torch.set_num_threads(threads)
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(EXAMPLES)) or name == "imagenet":
                del sys.modules[name]


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program, and look at how it ends."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    words = [sys.executable, program, *arguments]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)
