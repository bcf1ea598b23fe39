"""Which field of a sample is meant by "jpg;png"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .transform.lazy import missing_field


def field_named(sample: Mapping[str, Any], alternatives: Sequence[str]) -> str:
    """The first of these fields that the sample has; an error lists those it has instead.

    >>> field_named({"__key__": "a", "png": b"...", "cls": b"7"}, ["jpg", "png"])
    'png'
    """
    for name in alternatives:
        if name in sample:
            return name
    raise missing_field(";".join(alternatives), sample).at(url=sample.get("__url__"))
