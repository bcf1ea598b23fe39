"""What the page shows of samples and fields: cards for the wall, each field by its kind, pictures of them.

Everything is cut to what a page can show, so that neither a field of any size nor its contents can take the memory or
the time of the viewer. Texts go to the page as JSON, never as markup.
"""

from __future__ import annotations

import re
from typing import Any

from webdataset.autodecode import Decoder, morehandlers
from webdataset.base.printing import printable
from webdataset.base.redact import redacted
from webdataset.codecs.compression import gunzip_bounded
from webdataset.display.kinds import PICTURES, kind_of, overlay_of
from webdataset.display.rasters import Picture, array_facts, heat_map, image_facts, image_picture, overlay_picture
from webdataset.display.sounds import waveform, waveform_picture
from webdataset.display.trees import arrays_in, tree
from webdataset.display.videos import video_facts, video_picture
from webdataset.errors import DecodingError

from .samples import StoredField, StoredSample

MOST_DECODED = 64 << 20
"""Bytes of a field that are decoded."""
MOST_TEXT = 200_000
MOST_LABEL = 4096
HEX_BYTES = 4096
LABEL_CHARACTERS = 160

_OBJECT = re.compile(r"<_io\.\w+ object at 0x[0-9a-f]+>")
_SHAPE = re.compile(rb"'shape': \(([^)]*)\)")
_decoder = Decoder([morehandlers])


def card(sample: StoredSample) -> dict[str, Any]:
    """What the wall shows of a sample: its key, its fields, the best one for a picture, and a few words."""
    kinds = {name: kind_of(name) for name in sample.fields}
    return {
        "number": sample.number,
        "key": printable(sample.key, 500),
        "shard": sample.shard,
        "fields": [{"name": name, "kind": kinds[name], "size": field.size} for name, field in sample.fields.items()],
        "picture": best_picture(sample),
        "class": _words(sample, kinds, ("number",)),
        "label": _words(sample, kinds, ("text", "json")),
    }


def sample_facts(sample: StoredSample) -> dict[str, Any]:
    """What the page of a sample says at once; its fields are asked for one by one."""
    return {
        "number": sample.number,
        "key": printable(sample.key, 5000),
        "url": redacted(sample.url),
        "shard": sample.shard,
        "place": sample.place,
        "bytes": sample.size,
        "picture": best_picture(sample),
        "fields": [
            {"name": name, "kind": kind_of(name), "size": field.size, "overlay": overlay_of(name)}
            for name, field in sample.fields.items()
        ],
    }


def best_picture(sample: StoredSample) -> str | None:
    """The field that stands for the sample on the wall: an image, else a video, array or sound."""
    ranked = sorted(
        (PICTURES.index(kind), overlay_of(name) is not None, place, name)
        for place, name in enumerate(sample.fields)
        if (kind := kind_of(name)) in PICTURES
    )
    return next((name for *_, name in ranked if not _is_vector(sample.fields[name])), None)


def _is_vector(field: StoredField) -> bool:
    """Whether a field is a line of numbers, by the header of its file: its text says more of a sample."""
    if not field.name.lower().endswith("npy"):
        return False
    try:
        shape = _SHAPE.search(field.beginning(256))
    except Exception:
        return False
    return shape is not None and len(shape[1].strip(b" ,").split(b",")) < 2


def content(field: StoredField, *, start: int = 0) -> dict[str, Any]:
    """A field, shown by its kind; with the reason in words where it cannot be. `start` is for bytes."""
    kind = kind_of(field.name)
    facts: dict[str, Any] = {"name": field.name, "kind": kind, "size": field.size, "overlay": overlay_of(field.name)}
    try:
        return facts | _SHOWN[kind](field)
    except Exception as error:
        return facts | {"error": told(error), **_hex_or_nothing(field, start)}


def hex_page(field: StoredField, start: int) -> dict[str, Any]:
    """Some bytes of a field."""
    start = max(0, min(start, field.size))
    data = field.read_part(start, min(field.size, start + HEX_BYTES))
    return {"start": start, "hex": data.hex(), "size": field.size}


def value_of(field: StoredField, limit: int = MOST_DECODED) -> Any:
    """The value of a field as the library decodes it; texts that no codec knows, too."""
    value = _decoder.decode1(field.name, field.read(limit))
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    return value


def picture(field: StoredField, size: int, item: str = "") -> Picture:
    """A field as a picture; `item` is the way to an array inside of a value."""
    kind = kind_of(field.name)
    if kind == "image":
        return image_picture(field.name, _plain(field), size)
    if kind == "audio":
        return waveform_picture(_plain(field), size)
    if kind == "video":
        return video_picture(_plain(field), size)
    arrays = arrays_in(value_of(field))
    if not arrays:
        raise DecodingError("there is no array in it")
    values = arrays[item] if item in arrays else next(iter(arrays.values()))
    overlay = overlay_of(field.name)
    return heat_map(values, size) if overlay is None else overlay_picture(values, overlay, size)


def told(error: BaseException) -> str:
    """An error in one line, without secrets."""
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    hint = getattr(error, "hint", None)
    text = _OBJECT.sub("the data", f"{message}; {hint}" if hint else str(message))
    return redacted(printable(" ".join(text.split()), 500))


def _plain(field: StoredField) -> bytes:
    """The bytes of a field, decompressed if its name says so."""
    data = field.read(MOST_DECODED)
    return gunzip_bounded(data) if field.name.lower().endswith(".gz") else data


def _image(field: StoredField) -> dict[str, Any]:
    facts = image_facts(_plain(field))
    image_picture(field.name, _plain(field), 32)  # a header is only a claim
    return facts


def _audio(field: StoredField) -> dict[str, Any]:
    return {"sound": waveform(_plain(field))}


def _video(field: StoredField) -> dict[str, Any]:
    return {"video": video_facts(_plain(field))} if field.size <= MOST_DECODED else {}


def _text(field: StoredField) -> dict[str, Any]:
    if field.name.lower().endswith(".gz"):
        data = _plain(field)
        size, data = len(data), data[:MOST_TEXT]
    else:
        size, data = field.size, field.beginning(MOST_TEXT)
    text = data.decode("utf-8", "backslashreplace" if size == len(data) else "ignore")
    return {"text": text, "cut": size > len(data)}


def _json(field: StoredField) -> dict[str, Any]:
    return {"tree": tree(value_of(field))}


def _array(field: StoredField) -> dict[str, Any]:
    value = value_of(field)
    arrays = arrays_in(value)
    shown = [{"item": path, **array_facts(array)} for path, array in arrays.items()]
    return {"arrays": shown} if "" in arrays else {"arrays": shown, "tree": tree(value)}


def _value(field: StoredField) -> dict[str, Any]:
    value = value_of(field)
    return _array(field) if arrays_in(value) else {"tree": tree(value)}


def _other(field: StoredField) -> dict[str, Any]:
    """Text, if it is one; else bytes."""
    beginning = field.beginning(MOST_TEXT)
    if b"\0" not in beginning:
        try:
            beginning.decode("utf-8") if field.size == len(beginning) else beginning[:-4].decode("utf-8")
            return _text(field)
        except UnicodeDecodeError:
            pass  # shown as bytes
    return hex_page(field, 0)


_SHOWN = {
    "image": _image,
    "audio": _audio,
    "video": _video,
    "text": _text,
    "number": _text,
    "json": _json,
    "array": _array,
    "value": _value,
    "other": _other,
}


def _hex_or_nothing(field: StoredField, start: int) -> dict[str, Any]:
    try:
        return hex_page(field, start)
    except Exception:
        return {}


def _words(sample: StoredSample, kinds: dict[str, str], wanted: tuple[str, ...]) -> str:
    """The beginning of the first field of one of these kinds."""
    for kind in wanted:
        for name, field in sample.fields.items():
            if kinds[name] == kind and not name.lower().endswith(".gz"):
                try:
                    text = field.beginning(MOST_LABEL).decode("utf-8", "replace")
                except Exception:  # noqa: S112 - the page of the sample says what is wrong
                    continue
                return printable(" ".join(text.split()), LABEL_CHARACTERS)
    return ""
