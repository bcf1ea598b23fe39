"""What commands print, harmless to a terminal; and what images the terminal can show, by its name and by asking it.

Text that came out of data may hold what a terminal takes for orders. So all text of commands goes through `out` and
`err`, which escape it where a terminal shows it, and only there; what we ourselves say to the terminal goes to `draw`.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from webdataset.base.printing import harmless

ANSWER_SECONDS = 0.2
ERASED = "\r\x1b[K"


def out(text: str) -> None:
    """Print text on stdout."""
    _write(sys.stdout, text)


def err(text: str) -> None:
    """Print text on stderr."""
    _write(sys.stderr, text)


def replace_line(text: str) -> None:
    """Print a line on stderr, a terminal, in place of the one that is there."""
    sys.stderr.write(ERASED + harmless(text))


def draw(text: str) -> None:
    """Write what is meant for the terminal itself, such as pictures, to stdout."""
    sys.stdout.write(text)


def _write(stream: TextIO, text: str) -> None:
    stream.write(harmless(text) if stream.isatty() else text)


def protocol() -> str:
    """Return kitty, iterm, sixel, blocks or, if stdout is not a terminal, text."""
    if not sys.stdout.isatty():
        return "text"
    from webdataset.base.settings import settings
    from webdataset.tools.inspect.pictures import protocol_of

    found = protocol_of(*settings.terminal)
    return "sixel" if found == "blocks" and _supports_sixel() else found


def columns() -> int:
    """Return the terminal's width."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def _supports_sixel() -> bool:
    """Ask for the terminal's attributes; 4 among them is sixel."""
    if not sys.stdin.isatty():
        return False
    try:
        import termios
        import tty
    except ImportError:  # Windows
        return False
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        draw("\x1b[c")
        sys.stdout.flush()
        answer = _answer(keyboard)
    except (OSError, termios.error):
        return False
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
    return b"4" in answer.strip(b"\x1b[?c").split(b";")


def _answer(keyboard: int) -> bytes:
    import select

    answer = b""
    while not answer.endswith(b"c") and select.select([keyboard], [], [], ANSWER_SECONDS)[0]:
        answer += os.read(keyboard, 64)
    return answer
