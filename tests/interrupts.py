"""Ctrl-C at any moment at which the interpreter looks for signals: a function begins, or a call of C code is over."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from waiting import HANG_SECONDS

MOMENTS = ("call", "c_return")


def interrupted(function: Callable[[], object], moment: int, inside: tuple[str, ...] = ("",)) -> bool:
    """Call it, and raise KeyboardInterrupt at that moment, counted from 0; False if it was over before.

    Only moments `inside` files whose names end so are counted.
    """
    left = moment

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in MOMENTS and frame.f_code.co_filename.endswith(inside):
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


def different_moments(function: Callable[[], object], inside: tuple[str, ...]) -> list[int]:
    """Call it, and return the first moment at each place of the code, as it is reached from its caller."""
    moments: dict[object, int] = {}
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event in MOMENTS and frame.f_code.co_filename.endswith(inside):
            callers = [
                one and (one.f_code, one.f_lineno) for one in (frame.f_back, frame.f_back and frame.f_back.f_back)
            ]
            moments.setdefault((frame.f_code, frame.f_lasti, event, *callers), count)
            count += 1

    sys.setprofile(look)
    try:
        function()
    finally:
        sys.setprofile(None)
    return sorted(moments.values())


def in_another_thread(function: Callable[[], object]) -> list[object]:
    """What it returns there, in a list; none if it hangs."""
    returned: list[object] = []
    thread = threading.Thread(target=lambda: returned.append(function()), daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    return returned
