"""Standard streams that the shell has closed (`wl ... >&-`)."""

from __future__ import annotations

import os
import sys

closed: list[str] = []
"""The names of those that were closed when the command started."""


def occupy_closed_streams() -> None:
    """Open a file for closed streams, so that no other file gets their descriptor.

    Reading or writing them is an error then, except that messages on stderr are discarded.
    """
    for number, name, flags in ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_RDWR)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - as Python's own
            closed.append(name)
