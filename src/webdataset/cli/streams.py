"""The three standard streams of a command, of which a shell may have closed some (`wl ... >&-`)."""

from __future__ import annotations

import os
import sys

closed: list[str] = []
"""Those that were closed when the command began."""


def occupy_closed_streams() -> None:
    """Give streams that are closed a file, so that no other one takes their number.

    What is read from or written to them is an error then; only what is said on stderr goes nowhere.
    """
    for number, name, flags in ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_RDWR)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - as Python's own
            closed.append(name)
