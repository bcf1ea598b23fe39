"""What a call returns or raises."""

from __future__ import annotations


def outcome(iterator):
    """All items, and the error that ended them."""
    items = []
    try:
        for item in iterator:
            items.append(item)  # noqa: PERF402 - those before an error count
    except Exception as exn:
        return items, repr(exn)
    return items, None
