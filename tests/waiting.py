"""The only clock of the tests: it ends a wait that would never end, and measures nothing.

How long a thing takes says more about the machine than about the code. A test of speed counts what is done; a test
that something does not wait holds back what it must not wait for, for ever, and the limit of every test ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_SECONDS = 120.0


def soon(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> bool:
    """Wait until something holds; False if it never does."""
    end = time.monotonic() + seconds  # noqa: TID251 - the limit that ends a wait
    while not condition():
        if time.monotonic() > end:  # noqa: TID251
            return False
        time.sleep(0.002)
    return True
