"""The description of a dataset as a table, in text and in HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webdataset.base.units import counted, size_text

from .markup import columns, number_text, table

if TYPE_CHECKING:
    from .describing import Description, FieldDescription, Range

HEAD = ("field", "samples", "type", "shape", "values", "length", "size")


def text_of(description: Description) -> str:
    """A description as lines of text in columns."""
    rows = _rows(description)
    shown = [place for place, _ in enumerate(HEAD) if any(row[place] for row in rows)]
    head = [HEAD[place] for place in shown]
    return "\n".join([_title(description), columns([[row[place] for place in shown] for row in rows], head=head)])


def html_of(description: Description) -> str:
    """A description as a table."""
    return table(_rows(description), head=HEAD, title=_title(description))


def _title(description: Description) -> str:
    return f"{counted(description.samples, 'sample')}, {size_text(description.bytes)}"


def _rows(description: Description) -> list[list[str]]:
    return [
        [
            name,
            number_text(field.count),
            _kinds(field),
            "; ".join(field.as_dict().get("shape_range", ())),
            _ends(field.range),
            _ends(field.lengths),
            _sizes(field),
        ]
        for name, field in sorted(description.fields.items())
    ]


def _kinds(field: FieldDescription) -> str:
    kinds = field.modes or field.dtypes or field.types
    return ", ".join(kind if n == field.count else f"{kind} ({n:,})" for kind, n in kinds.most_common(3))


def _ends(numbers: Range) -> str:
    if not numbers.count:
        return ""
    low, high = (number_text(end) if abs(end) < 1e15 else f"{end:.4g}" for end in numbers.ends())
    return low if low == high else f"{low} .. {high}"


def _sizes(field: FieldDescription) -> str:
    if not field.sizes.most:
        return ""
    low, high = size_text(field.sizes.least), size_text(field.sizes.most)
    return low if low == high else f"{low} .. {high}"
