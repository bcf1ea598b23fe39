"""wl show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inspected import Capture, mixed_shard, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def test_show_prints_text_where_there_is_no_terminal(shard: str, capsysbinary: Capture) -> None:
    out = wl(capsysbinary, "show", "-c", "1", "-f", "cls txt", shard)[1].decode()
    assert [line.split() for line in out.splitlines() if line] == [["s0"], ["cls", "0"], ["txt", "'hello'"]]


@pytest.mark.parametrize(
    ("protocol", "sign"), [("kitty", b"\x1b_G"), ("iterm", b"\x1b]1337;File="), ("sixel", b"\x1bPq"), ("blocks", "▀")]
)
def test_show_draws_pictures(shard: str, capsysbinary: Capture, protocol: str, sign: bytes | str) -> None:
    out = wl(capsysbinary, "show", "-c", "1", "--protocol", protocol, shard)[1]
    assert (sign if isinstance(sign, bytes) else sign.encode()) in out


def test_show_survives_a_wrong_picture(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    code, out, _ = wl(capsysbinary, "show", "--protocol", "blocks", make_shard(files=[("a.png", b"no\x1b[2J")]))
    assert (code, b"png: cannot" in out, b"\x1b[2J" in out) == (0, True, False)


def test_show_writes_a_page(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    page = tmp_path / "page.html"
    assert wl(capsysbinary, "show", "--html", str(page), shard) == (0, b"", "")
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("data:image/png;base64,") == 10


def test_show_escapes_what_is_in_the_data(
    make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture
) -> None:
    attack = "<script>alert(1)<_script>"
    path = make_shard(
        files=[(f"{attack}.{attack}.txt", b"</pre><script>alert(1)</script>"), (f"{attack}.txt", b"<img>")]
    )
    page = tmp_path / "page.html"
    assert wl(capsysbinary, "show", "--html", str(page), path)[0] == 0
    assert "<script" not in page.read_text()
    assert "<img>" not in page.read_text()
