"""What kind of thing a field is, by its name: an image, sound, text, an array and so on.

>>> [kind_of(name) for name in ("jpg", "left.PNG", "wav", "mp4", "json", "json.gz", "cls", "npy", "xyz")]
['image', 'image', 'audio', 'video', 'json', 'json', 'number', 'array', 'other']
"""

from __future__ import annotations

import re

from webdataset.codecs.images import IMAGE_EXTENSIONS
from webdataset.codecs.media import AUDIO_EXTENSIONS, VIDEO_EXTENSIONS

TEXTS = frozenset(
    ["txt", "text", "transcript", "caption", "html", "htm", "xml", "svg", "csv", "tsv", "md", "yaml", "yml", "toml"]
    + ["srt", "vtt", "log", "py"]
)
NUMBERS = frozenset(["cls", "cls2", "index", "inx", "id", "class", "count"])
ARRAYS = frozenset(["npy", "npz", "ten", "tb", "tenbin", "pth", "pt", "safetensors"])
VALUES = frozenset(["pyd", "pickle", "pkl", "mp", "msg", "msgpack", "cbor"])
NO_IMAGES = frozenset(["mpg", "mpeg", "h5", "hdf", "ps", "eps", "svg"])
"""Extensions that Pillow lists as images and that are videos, data or programs."""

MASK = re.compile(r"(?:^|[._-])(?:mask|masks|seg|segm|segmentation|label|labels|labelmap|instance|semantic)(?:$|[._-])")
DEPTH = re.compile(r"(?:^|[._-])(?:depth|disparity|disp)(?:$|[._-])")

PICTURES = ("image", "video", "array", "audio")
"""Kinds that can be shown as a picture, the best first."""


def kind_of(field: str) -> str:
    """The kind of a field: image, audio, video, text, json, number, array, value or other."""
    extension = plain_extension(field)
    if extension in IMAGE_EXTENSIONS and extension not in NO_IMAGES:
        return "image"
    if extension in ("json", "jsn"):
        return "json"
    for kind, extensions in _KINDS.items():
        if extension in extensions:
            return kind
    return "other"


def plain_extension(field: str) -> str:
    """The last extension of a field, in lower case, without the `.gz` of a compressed one.

    >>> plain_extension("meta.JSON.gz"), plain_extension("gz")
    ('json', 'gz')
    """
    name = field.lower()
    name = name[:-3] if name.endswith(".gz") else name
    return name.rpartition(".")[2]


def overlay_of(field: str) -> str | None:
    """ "mask" or "depth" if the name says that the field belongs on top of an image; else None.

    >>> overlay_of("mask.png"), overlay_of("depth.npy"), overlay_of("jpg")
    ('mask', 'depth', None)
    """
    name = field.lower()
    return "mask" if MASK.search(name) else "depth" if DEPTH.search(name) else None


_KINDS = {
    "audio": AUDIO_EXTENSIONS,
    "video": VIDEO_EXTENSIONS,
    "text": TEXTS,
    "number": NUMBERS,
    "array": ARRAYS,
    "value": VALUES,
}
