"""Show samples as lines of text, and images if the terminal can display them.

>>> list(text_lines({"__key__": "a", "cls": b"7"}))
["__key__             \\t'a'", "cls                 \\tb'7'"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from webdataset.autodecode import IMAGE_EXTENSIONS
from webdataset.base.printing import short_repr

from .fieldtexts import field_text
from .listing import shown
from .pictures import drawn

Sample = Mapping[str, Any]

NAME_WIDTH = 20
VALUE_WIDTH = 60


def text_lines(sample: Sample, *, width: int = VALUE_WIDTH) -> Iterator[str]:
    """Yield one line per field, sorted: the name in 20 columns, a tab, and the value's repr cut to a width."""
    for name in sorted(sample):
        if name.startswith("__") and name != "__key__":
            continue
        yield f"{shown(name):<{NAME_WIDTH}}\t{short_repr(sample[name], width)}"


def value_lines(sample: Sample, *, width: int = VALUE_WIDTH) -> Iterator[str]:
    """Yield the key, then one line per field, sorted and aligned: what it holds, decoded if it is text or a number.

    >>> list(value_lines({"__key__": "a", "cls": b"7", "json": b"[1]"}))
    ['a', '  cls   7', '  json  [1]']
    """
    yield shown(str(sample.get("__key__", "")))
    names = [name for name in sorted(sample) if not name.startswith("__")]
    longest = min(max((len(shown(name)) for name in names), default=0), NAME_WIDTH)
    for name in names:
        yield f"  {shown(name):<{longest}}  {field_text(name, sample[name], width=width)}"


def terminal_lines(
    sample: Sample,
    protocol: str,
    *,
    columns: int = 60,
    text: Callable[[Sample], Iterator[str]] | None = value_lines,
    normalized: bool = False,
) -> Iterator[str]:
    """Yield the text of a sample, then its images; `normalized` stretches them from black to white."""
    if text is not None:
        yield from text(sample)
    if protocol == "text":
        return
    for name in sorted(sample):
        if is_image(name):
            try:
                picture = drawn(sample[name], protocol, columns=columns, normalized=normalized)
            except Exception as error:
                yield f"{shown(name)}: cannot show the image: {shown(str(error))[:200]}"
                continue
            yield f"{shown(name)}:"
            yield picture


def is_image(field: str) -> bool:
    """Whether a field is an image, by its name.

    >>> is_image("left.JPG"), is_image("cls")
    (True, False)
    """
    return field.rpartition(".")[2].lower() in IMAGE_EXTENSIONS and not field.startswith("__")
