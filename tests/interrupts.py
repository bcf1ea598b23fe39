"""Ctrl-C at any moment at which the interpreter looks for signals: a function begins, or a call of C code is over."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from waiting import HANG_SECONDS

MOMENTS = ("call", "c_return")


def interrupted(function: Callable[[], object], moment: int) -> bool:
    """Call it, and raise KeyboardInterrupt at that moment, counted from 0; False if it was over before."""
    left = moment

    def look(_: FrameType, event: str, __: object) -> None:
        nonlocal left
        if event in MOMENTS:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return left < 0  # caught inside


def in_another_thread(function: Callable[[], object]) -> list[object]:
    """What it returns there, in a list; none if it hangs."""
    returned: list[object] = []
    thread = threading.Thread(target=lambda: returned.append(function()), daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    return returned
