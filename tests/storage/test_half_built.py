"""Streams whose constructor failed, or was interrupted: they go without a word."""

from __future__ import annotations

import subprocess
import sys

# In this mode every Python prints what a finalizer raises, as 3.13 and newer always do.
PROGRAM = """
import importlib, io, pkgutil, sys
import webdataset, wids

def subclasses(kind):
    for each in kind.__subclasses__():
        yield from (each, *subclasses(each))

for package in (webdataset, wids):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
found = {kind for kind in subclasses(io.IOBase) if kind.__module__.split(".")[0] in ("webdataset", "wids")}
for kind in found:
    kind.__new__(kind)
print(*sorted(kind.__name__ for kind in found))
"""


def test_every_kind_of_stream_can_be_given_up_half_built() -> None:
    words = [sys.executable, "-X", "dev", "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert {"HttpStream", "SshStream", "Response", "ReadAhead", "Upload", "Pipe"} <= set(done.stdout.split())
    assert done.stderr == ""
