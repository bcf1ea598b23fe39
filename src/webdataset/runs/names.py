"""Where a run is kept if the user does not say: beside its outputs, so that all workers can reach it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence

from webdataset.storage.stores.lookup import STORES
from webdataset.storage.urls import local_path, scheme_of

FOLDER = ".runs"


def default_place(command: str, outputs: Sequence[str], words: Sequence[str] = ()) -> str:
    """Return the folder or prefix of a run, the same for the same outputs, or for the same command if it has none.

    >>> default_place("map", ["s3://bucket/data/out-{}.tar"]).rpartition("-")[0]
    's3://bucket/data/.runs/map'
    """
    first = outputs[0] if outputs else ""
    path = local_path(first) if first else None
    if path is not None:
        base = os.path.dirname(os.path.abspath(path))
    elif scheme_of(first) in STORES:
        base = first.rpartition("/")[0]
    else:
        base = os.getcwd()
    while "{" in base:  # a pattern of folders
        base = os.path.dirname(base)
    key = "\0".join([os.path.abspath(path) if path is not None else first, *words])
    name = re.sub(r"[^\w.-]+", "-", command).strip("-.")[:40] or "run"
    return f"{base}/{FOLDER}/{name}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
