"""Show samples on a self-contained HTML page: images, sound, text and arrays.

Everything from the data is escaped or base64, media types come from our own table, and the page's policy forbids
scripts and requests: nothing in the data can run or call home.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webdataset.autodecode import Decoder, morehandlers
from webdataset.base.printing import short_repr
from webdataset.codecs.packages import is_array, is_tensor
from webdataset.display.markup import escaped
from webdataset.errors import WebDatasetError

from .showing import is_image
from .tables import plain_value

Sample = Mapping[str, Any]

MOST_TEXT = 4000
MOST_NUMBERS = 200
MOST_MEDIA_BYTES = 20_000_000

IMAGE_TYPES = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp"}
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "m4a": "audio/mp4"}
VIDEO_TYPES = {"mp4": "video/mp4", "webm": "video/webm", "ogv": "video/ogg", "mov": "video/quicktime"}

POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; form-action 'none'"

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em;
  color: #222; background: #fff }
section { border: 1px solid #ccc; border-radius: 6px; padding: .5em 1em; margin: 1em 0 }
h2 { font-size: 1em; margin: .3em 0; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .4em 1em; margin: 0 }
dt { font-weight: 600; max-width: 20em; overflow-wrap: anywhere }
dd { margin: 0; min-width: 0 }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 20em; overflow: auto }
img, video { max-width: 100%; max-height: 30em; image-rendering: auto }
small { color: #666 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } small { color: #999 } }
"""


def page(samples: Iterable[Sample], *, title: str = "samples") -> Iterator[bytes]:
    """Yield the page in pieces, with one section per sample.

    >>> b"".join(page([{"__key__": "<script>", "cls": b"7"}])).count(b"<script")
    0
    """
    head = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escaped(title)}</h1>
"""
    yield head.encode()
    count = 0
    for count, sample in enumerate(samples, 1):  # noqa: B007 - used after the loop
        yield _section(sample).encode()
    yield f"<p><small>{count} samples</small></p>\n</body>\n</html>\n".encode()


def _section(sample: Sample) -> str:
    rows = []
    for name in sorted(sample):
        if not name.startswith("__"):
            value = sample[name]
            size = f" <small>{len(value)} bytes</small>" if isinstance(value, bytes) else ""
            rows.append(f"<dt>{escaped(name)}{size}</dt>\n<dd>{_shown(name, value)}</dd>")
    key = escaped(str(sample.get("__key__", "")))
    return f"<section>\n<h2>{key}</h2>\n<dl>\n" + "\n".join(rows) + "\n</dl>\n</section>\n"


def _shown(name: str, data: object) -> str:
    extension = name.rpartition(".")[2].lower()
    if isinstance(data, bytes):
        if is_image(name):
            return _image(extension, data)
        if extension in AUDIO_TYPES:
            return _media("audio", AUDIO_TYPES[extension], data)
        if extension in VIDEO_TYPES:
            return _media("video", VIDEO_TYPES[extension], data)
    return _value(name, data)


def _image(extension: str, data: bytes) -> str:
    """Embed an image, converted to PNG unless browsers know its format."""
    kind = IMAGE_TYPES.get(extension)
    try:
        if kind is None:
            kind, data = "image/png", _as_png(data)
    except Exception as error:
        return _note(f"cannot show the image: {error}")
    return _too_large(data) or f'<img alt="" src="data:{kind};base64,{_base64(data)}">'


def _media(tag: str, kind: str, data: bytes) -> str:
    return _too_large(data) or f'<{tag} controls preload="metadata" src="data:{kind};base64,{_base64(data)}"></{tag}>'


def _too_large(data: bytes) -> str:
    return _note(f"{len(data)} bytes, too large for a page") if len(data) > MOST_MEDIA_BYTES else ""


def _value(name: str, data: Any) -> str:
    try:
        value = _decoder.decode1(name, data) if isinstance(data, bytes) else data
    except (WebDatasetError, ValueError, TypeError, KeyError, EOFError, OverflowError, ArithmeticError) as error:
        return _note(f"cannot be decoded: {error}") + _text(repr(data[:100]))
    if is_array(value) or is_tensor(value):
        return _array(value)
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, str):
        return _text(value)
    try:
        return _text(json.dumps(plain_value(value), ensure_ascii=False, indent=1))
    except (WebDatasetError, ValueError, TypeError, RecursionError):
        return _text(short_repr(value, MOST_TEXT))


_decoder = Decoder([morehandlers])


def _array(value: Any) -> str:
    flat = value.reshape(-1)[:MOST_NUMBERS].tolist()
    more = ", ..." if value.reshape(-1).shape[0] > MOST_NUMBERS else ""
    shape = " x ".join(map(str, value.shape)) or "scalar"
    return _note(f"{shape} {value.dtype}") + _text(f"{str(flat)[1:-1]}{more}")


def _bytes(data: bytes) -> str:
    if b"\0" not in data:
        try:
            return _text(data.decode("utf-8"))
        except UnicodeDecodeError:
            pass  # shown as bytes
    return _text(repr(data[:MOST_NUMBERS]) + ("..." if len(data) > MOST_NUMBERS else ""))


def _text(text: str) -> str:
    cut = text[:MOST_TEXT] + (f"... ({len(text)} characters)" if len(text) > MOST_TEXT else "")
    return f"<pre>{escaped(cut)}</pre>"


def _note(text: str) -> str:
    return f"<small>{escaped(' '.join(text.split())[:300])}</small>"


def _as_png(data: bytes) -> bytes:
    from webdataset.codecs.images import pillow_image

    stream = io.BytesIO()
    pillow_image(data, "rgb").save(stream, format="PNG")
    return stream.getvalue()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
