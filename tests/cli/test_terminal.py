"""Pictures in terminals: what a terminal understands is what it gets."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest
from PIL import Image


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (255, 0, 0)).save(stream, "PNG")
    return make_shard(files=[("a.png", stream.getvalue())])


def shown_in_terminal(shard: str, answer: bytes = b"", **variables: str) -> bytes:
    """What `wl show` writes to a terminal that answers a question about itself with `answer`."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("TERM", "TERM_PROGRAM")}
    command = [sys.executable, "-m", "webdataset", "show", "-q", shard]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment | variables) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
                if b"\x1b[c" in piece:
                    os.write(ours, answer)
        except OSError:  # how a terminal ends on Linux
            pass
        finally:
            os.close(ours)
        assert process.wait() == 0
    return shown


def test_kitty_gets_its_protocol(shard: str) -> None:
    assert b"\x1b_Ga=T,f=100" in shown_in_terminal(shard, TERM="xterm-kitty")


def test_iterm_gets_its_protocol(shard: str) -> None:
    assert b"\x1b]1337;File=inline=1" in shown_in_terminal(shard, TERM="xterm-256color", TERM_PROGRAM="iTerm.app")


def test_a_terminal_that_says_it_knows_sixel_gets_sixel(shard: str) -> None:
    assert b"\x1bPq" in shown_in_terminal(shard, b"\x1b[?62;4;22c", TERM="xterm-256color")


def test_a_terminal_that_says_it_does_not_gets_half_blocks(shard: str) -> None:
    shown = shown_in_terminal(shard, b"\x1b[?62;22c", TERM="xterm-256color")
    assert "▀".encode() in shown
    assert b"\x1bPq" not in shown


def test_a_dumb_terminal_gets_text(shard: str) -> None:
    shown = shown_in_terminal(shard, TERM="dumb")
    assert b"a.png" not in shown
    assert shown.count(b"\r\n") == 3
    assert b"\x1b" not in shown
