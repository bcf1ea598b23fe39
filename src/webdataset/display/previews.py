"""Samples as pictures in a notebook: `dataset.preview(6)`."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from webdataset.base.printing import printable, short_repr
from webdataset.codecs.packages import is_array, is_tensor

from .kinds import kind_of
from .markup import columns, escaped
from .rasters import Picture, array_facts, heat_map, image_picture
from .sounds import waveform_picture
from .videos import video_picture

SIZE = 192
MOST_TEXT = 400
MOST_FIELDS = 12

_CARD = (
    "display:inline-block;vertical-align:top;width:200px;margin:4px;padding:6px;border:1px solid #8884;"
    "border-radius:8px;overflow:hidden;font-size:85%"
)
_PICTURE = "display:block;max-width:192px;max-height:192px;margin:0 auto 4px;border-radius:4px"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:7em;overflow:auto"


class Preview:
    """Some items of a dataset, shown as pictures in a notebook and as text in a terminal.

    >>> Preview([{"__key__": "a", "cls": 3, "txt": "hello"}])
    a
      cls  3
      txt  'hello'
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        parts = []
        for number, item in enumerate(self.items):
            rows = [[printable(name, 40), _in_words(value)] for name, value in fields_of(item).items()]
            parts.append("\n".join([_title(item, number), *([columns(rows, indent="  ")] if rows else [])]))
        return "\n".join(parts) or "no samples"

    def _repr_html_(self) -> str:
        cards = [_card(item, number) for number, item in enumerate(self.items)]
        return f"<div>{''.join(cards) or 'no samples'}</div>"


def fields_of(item: object) -> dict[str, Any]:
    """The fields of a sample; those of a tuple have numbers.

    >>> fields_of((1, "a")), fields_of({"__key__": "k", "cls": 1})
    ({'0': 1, '1': 'a'}, {'cls': 1})
    """
    if isinstance(item, Mapping):
        return {str(name): value for name, value in item.items() if not str(name).startswith("__")}
    if isinstance(item, (tuple, list)):
        return {str(place): value for place, value in enumerate(item)}
    return {"0": item}


def picture_of(name: str, value: Any, size: int = SIZE) -> Picture | None:
    """A value as a picture, if it is one: bytes by the field's name, arrays and tensors by their shape."""
    if isinstance(value, bytes):
        kind = kind_of(name)
        make = {"audio": waveform_picture, "video": video_picture}.get(kind)
        return image_picture(name, value, size) if kind == "image" else None if make is None else make(value, size)
    if type(value).__module__.startswith("PIL."):
        return heat_map(value.convert("RGB"), size)
    if (is_array(value) or is_tensor(value)) and getattr(value, "ndim", 0) >= 2:
        return heat_map(value, size)
    return None


def _card(item: object, number: int) -> str:
    pictures, texts = [], []
    for place, (name, value) in enumerate(fields_of(item).items()):
        if place >= MOST_FIELDS:
            texts.append("...")
            break
        try:
            picture = picture_of(name, value)
        except Exception as error:
            texts.append(f"{escaped(name)}: <b>{escaped(' '.join(str(error).split())[:200])}</b>")
            continue
        if picture is not None:
            data = base64.b64encode(picture.data).decode("ascii")
            alt = f"{escaped(name)} of {escaped(_title(item, number))}"
            pictures.append(f'<img style="{_PICTURE}" alt="{alt}" src="data:{picture.type};base64,{data}">')
        texts.append(f"<b>{escaped(name)}</b> {escaped(_in_words(value))}")
    rows = "".join(f'<div style="{_TEXT}">{text}</div>' for text in texts)
    head = f'<div style="overflow:hidden;text-overflow:ellipsis">{escaped(_title(item, number))}</div>'
    return f'<div style="{_CARD}">{"".join(pictures)}{head}{rows}</div>'


def _title(item: object, number: int) -> str:
    key = item.get("__key__") if isinstance(item, Mapping) else None
    return printable(key, 100) if isinstance(key, str) else f"item {number}"


def _text(data: bytes) -> str:
    """Short bytes as the text that they are, if they are one."""
    try:
        text = data.decode("utf-8") if len(data) <= MOST_TEXT else ""
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""


def _in_words(value: object) -> str:
    if is_array(value) or is_tensor(value):
        facts = array_facts(value)
        shape = " x ".join(map(str, facts["shape"])) or "scalar"
        ends = f", {facts['min']:.4g} to {facts['max']:.4g}" if "min" in facts else ""
        return f"{facts['dtype']} {shape}{ends}"
    if isinstance(value, bytes):
        return _text(value) or f"{len(value):,} bytes"
    return printable(short_repr(value, MOST_TEXT), MOST_TEXT)
