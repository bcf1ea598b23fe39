"""One line about the value of a field: `JPEG 128x128 RGB, 1.8 kB`, `'a cat'`, `float32 3 x 4, 176 bytes`.

>>> field_text("cls", b"7"), field_text("txt", b"a cat"), field_text("bin", b"\\xff\\x00")
('7', "'a cat'", '2 bytes: ff 00')
"""

from __future__ import annotations

import json
from typing import Any

from webdataset.autodecode import IMAGE_EXTENSIONS, Decoder, gzfilter
from webdataset.base.printing import printable, short_repr
from webdataset.base.units import counted, size_text
from webdataset.codecs.imageheaders import image_header
from webdataset.codecs.media import AUDIO_EXTENSIONS, VIDEO_EXTENSIONS, sound_info, video_info
from webdataset.codecs.packages import is_array, is_tensor
from webdataset.tar.large import LargeMember

WIDTH = 70
HEX_BYTES = 16
MOST_DECODED = 1 << 24
"""Larger fields are told by their size: decoding them for one line would take too long."""


def field_text(name: str, value: Any, *, width: int = WIDTH) -> str:
    """What a field holds, in a line of about this width."""
    if isinstance(value, LargeMember):
        return f"{size_text(len(value))}, too large to look at"
    if isinstance(value, bytes):
        return _stored(name, value, width)
    return _value(value, width)


def _stored(name: str, data: bytes, width: int) -> str:
    extension = name.rpartition(".")[2].lower()
    if extension in IMAGE_EXTENSIONS and (header := image_header(data)) is not None:
        return f"{header}, {size_text(len(data))}"
    if extension in AUDIO_EXTENSIONS and (sound := sound_info(data)) is not None:
        channels = {1: "mono", 2: "stereo"}.get(sound.channels, counted(sound.channels, "channel"))
        return f"{extension.upper()} {sound.rate:,} Hz {channels}, {sound.seconds:.1f} s, {size_text(len(data))}"
    if extension in VIDEO_EXTENSIONS and (video := video_info(data)) is not None:
        frames = f"{counted(video.frames, 'frame')} at {video.fps:g} fps, {video.seconds:.1f} s"
        return f"{extension.upper()} {video.width}x{video.height}, {frames}, {size_text(len(data))}"
    if extension in IMAGE_EXTENSIONS or len(data) > MOST_DECODED:
        return _bytes(data, width)
    try:
        value = Decoder([]).decode1(name, data)
    except Exception as error:
        return f"{_bytes(data, width)} ({printable(str(error) or type(error).__name__, 60)})"
    if isinstance(value, bytes):
        inner = gzfilter(name, data)
        return _bytes(value if inner is None else inner.data, width)
    text = _value(value, width)
    return f"{text}, {size_text(len(data))}" if is_array(value) or is_tensor(value) else text


def _value(value: Any, width: int) -> str:
    if isinstance(value, bytes):
        return _bytes(value, width)
    if is_array(value) or is_tensor(value):
        shape = " x ".join(map(str, value.shape)) or "number"
        return f"{str(value.dtype).removeprefix('torch.')} {shape}"
    if isinstance(value, str):
        return _cut(repr(value[: 2 * width]), width, len(value), "character")
    if isinstance(value, (dict, list)):
        try:
            return _cut(printable(json.dumps(value, ensure_ascii=False, default=str)), width, len(value), "entry")
        except (ValueError, RecursionError):
            pass
    return printable(short_repr(value, width))


def _bytes(data: bytes, width: int) -> str:
    """Text if it is text, else the first bytes in hex."""
    if data and b"\0" not in data[:1000]:
        try:
            return _cut(repr(data.decode("utf-8")[: 2 * width]), width, len(data), "byte")
        except UnicodeDecodeError:
            pass
    start = data[:HEX_BYTES].hex(" ")
    return size_text(len(data)) + (f": {start}{' ...' if len(data) > HEX_BYTES else ''}" if data else "")


def _cut(text: str, width: int, count: int, noun: str) -> str:
    if len(text) <= width:
        return text
    many = f"{count:,} entries" if noun == "entry" and count != 1 else counted(count, noun)
    return f"{text[: width - 3]}... ({many})"
