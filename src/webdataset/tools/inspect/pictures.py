"""Draw images in a terminal: with the protocols of kitty, iTerm and sixel, or as coloured half blocks.

>>> import numpy as np
>>> half_blocks(np.zeros((2, 1, 3), np.uint8))
'\\x1b[38;2;0;0;0;48;2;0;0;0m▀\\x1b[0m'
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from webdataset.base.packages import package

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    Array = np.ndarray[Any, Any]

PROTOCOLS = ("kitty", "iterm", "sixel", "blocks", "text")

KITTY_CHUNK = 4096
COLOURS_PER_CHANNEL = 6


def protocol_of(terminal: str, program: str) -> str:
    """Return the protocol of a terminal, by the variables TERM and TERM_PROGRAM.

    >>> protocol_of("xterm-kitty", ""), protocol_of("xterm-256color", "iTerm.app"), protocol_of("dumb", "")
    ('kitty', 'iterm', 'text')
    """
    terminal, program = terminal.lower(), program.lower()
    if "kitty" in terminal or "ghostty" in (terminal, program) or "ghostty" in terminal:
        return "kitty"
    if program in ("iterm.app", "wezterm", "mintty", "vscode", "tabby"):
        return "iterm"
    if "sixel" in terminal or terminal in ("mlterm", "foot", "foot-extra", "yaft-256color", "contour"):
        return "sixel"
    return "text" if terminal in ("", "dumb") else "blocks"


def drawn(data: bytes, protocol: str, *, columns: int = 60, normalized: bool = False) -> str:
    """Draw an encoded image."""
    picture = _scaled(data, columns if protocol == "blocks" else columns * 8)
    if normalized:
        low, high = picture.convert("L").getextrema()
        picture = picture.point(lambda value: (value - low) * 255 / max(high - low, 1))
    if protocol == "kitty":
        return kitty(_png(picture))
    if protocol == "iterm":
        return iterm(_png(picture))
    import numpy as np

    pixels = np.asarray(picture)
    return sixel(pixels) if protocol == "sixel" else half_blocks(pixels)


def kitty(png: bytes) -> str:
    """Draw a PNG with kitty's protocol, in chunks.

    >>> kitty(b"x")
    '\\x1b_Ga=T,f=100,m=0;eA==\\x1b\\\\'
    """
    text = base64.b64encode(png).decode("ascii")
    pieces = [text[i : i + KITTY_CHUNK] for i in range(0, len(text), KITTY_CHUNK)] or [""]
    parts = []
    for number, piece in enumerate(pieces):
        first = "a=T,f=100," if number == 0 else ""
        parts.append(f"\x1b_G{first}m={int(number < len(pieces) - 1)};{piece}\x1b\\")
    return "".join(parts)


def iterm(image: bytes) -> str:
    """Draw an image file with iTerm's protocol.

    >>> iterm(b"x")
    '\\x1b]1337;File=inline=1;size=1:eA==\\x07'
    """
    return f"\x1b]1337;File=inline=1;size={len(image)}:{base64.b64encode(image).decode('ascii')}\a"


def sixel(pixels: Array) -> str:
    """Draw pixels (H x W x 3) as sixels, in 216 colours."""
    import numpy as np

    steps = COLOURS_PER_CHANNEL - 1
    levels = (pixels.astype(np.uint16) * steps + 127) // 255
    indices = levels[..., 0] * 36 + levels[..., 1] * 6 + levels[..., 2]
    parts = [f'\x1bPq"1;1;{pixels.shape[1]};{pixels.shape[0]}']
    for colour in np.unique(indices):
        red, green, blue = colour // 36, colour // 6 % 6, colour % 6
        parts.append(f"#{colour};2;{red * 100 // steps};{green * 100 // steps};{blue * 100 // steps}")
    parts += [_sixel_band(indices[top : top + 6]) for top in range(0, len(indices), 6)]
    return "".join(parts) + "\x1b\\"


def half_blocks(pixels: Array) -> str:
    """Draw pixels (H x W x 3) as text: each character shows two pixels, one above the other."""
    rows = []
    for y in range(0, len(pixels), 2):
        upper = pixels[y]
        lower = pixels[y + 1] if y + 1 < len(pixels) else upper
        cells = [
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀"
            for a, b in zip(upper.tolist(), lower.tolist(), strict=True)
        ]
        rows.append("".join(cells) + "\x1b[0m")
    return "\n".join(rows)


def _sixel_band(band: Array) -> str:
    import numpy as np

    lines = []
    for colour in np.unique(band):
        bits = np.zeros(band.shape[1], np.uint8)
        for row, line in enumerate(band):
            bits |= (line == colour).astype(np.uint8) << row
        lines.append(f"#{colour}" + "".join(chr(63 + bit) for bit in bits))
    return "$".join(lines) + "-"


def _scaled(data: bytes, width: int) -> Image:
    from webdataset.codecs.images import pillow_image

    picture = pillow_image(data, "rgb")
    if picture.width > width:
        picture = picture.resize((width, max(1, picture.height * width // picture.width)))
    return picture


def _png(picture: Image) -> bytes:
    package("PIL.Image", extra="image", purpose="to show images")
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    return stream.getvalue()
