"""Find the field of a sample that a list of alternatives such as "jpg;png" names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .transform.lazy import missing_field


def field_named(sample: Mapping[str, Any], alternatives: Sequence[str]) -> str:
    """Return the first of these fields that the sample has; the error lists the fields it has.

    >>> field_named({"__key__": "a", "png": b"...", "cls": b"7"}, ["jpg", "png"])
    'png'
    """
    for name in alternatives:
        if name in sample:
            return name
    raise missing_field(";".join(alternatives), sample).at(url=sample.get("__url__"))
