"""Format a description as text, with a histogram per field, or as an image.

>>> print(bars([(0.0, 2.0, 3), (2.0, 4.0, 1)], width=3))
         0 .. 2             3 ###
         2 .. 4             1 #
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, repeat
from types import ModuleType
from typing import Any

from webdataset.base.packages import imported
from webdataset.base.units import counted, size_text
from webdataset.display.describing import Description, FieldDescription, Range, shape_range
from webdataset.errors import MissingPackageError

from .listing import shown

Bins = Sequence[tuple[float, float, int]]

MOST_SETS = 5
PLOT_BINS = 30


def lines(description: Description, *, histograms: bool = True, seen: str = "") -> Iterator[str]:
    """Return the lines that `wl info` prints; `seen` says how much of the dataset the description is of."""
    yield from heading(description, seen=seen)
    for name, field in sorted(description.fields.items()):
        yield ""
        yield shown(name)
        for label, text in facts(field, description.samples):
            yield f"  {label:<9}{text}"
        if histograms:
            yield from _histogram(field)


def heading(description: Description, *, seen: str = "") -> Iterator[str]:
    """Return the lines about the dataset as a whole: its samples, and the sets of fields that they have."""
    shards = f" in {counted(len(description.shards), 'shard')}" if description.shards else ""
    part = f" ({seen})" if seen else ""
    yield f"{counted(description.samples, 'sample')}{shards}, {size_text(description.bytes)}{part}"
    sets = description.field_sets.most_common()
    for names, n in sets[:MOST_SETS]:
        yield f"  {n:>8,} with {' '.join(map(shown, names)) or 'no fields'}"
    if len(sets) > MOST_SETS:
        yield f"  {sum(n for _, n in sets[MOST_SETS:]):>8,} with one of {len(sets) - MOST_SETS} other sets of fields"


def fields_table(description: Description) -> Iterator[tuple[str, str, str]]:
    """Return rows for a table: the field's name (in its first row only), a label, and the fact itself."""
    for name, field in sorted(description.fields.items()):
        names = chain([shown(name)], repeat(""))
        yield from ((next(names), label, text) for label, text in facts(field, description.samples))


def all_histograms(description: Description) -> Iterator[str]:
    """Return the lines of the histograms of all fields."""
    for name, field in sorted(description.fields.items()):
        for number, line in enumerate(_histogram(field)):
            yield line if number else f"\n{shown(name)}, {line.strip()}"


def bars(bins: Bins, *, width: int = 40) -> str:
    """Draw a histogram with one line per bin."""
    most = max((n for _, _, n in bins), default=1) or 1
    rows = []
    for low, high, n in bins:
        bar = "#" * (-(-n * width // most))
        span = f"{_number(low):>10} .. {_number(high):<8}" if low < high else f"{_number(low):>22}"
        rows.append(f"{span} {n:>6} {bar}".rstrip())
    return "\n".join(rows)


def plot(description: Description, path: object, *, format: str | None = None) -> None:
    """Plot a histogram of each field's values, or of its sizes if it has no numbers.

    The result goes to a file, as PNG, PDF or SVG by its extension, or to a stream.
    """
    pyplot = drawing_package()
    fields = sorted(description.fields.items())
    figure, axes = pyplot.subplots(len(fields) or 1, 1, figsize=(7, 2.5 * (len(fields) or 1)), squeeze=False)
    for axis, (name, field) in zip(axes[:, 0], fields, strict=False):
        label, numbers = _measured(field)
        finite = [number for number in numbers.kept if abs(number) < float("inf")]
        different = Counter(finite)
        if len(different) <= PLOT_BINS and all(number == int(number) for number in finite):
            # few whole numbers: a visible bar for each
            gap = min((high - low for low, high in pairwise(sorted(different))), default=1.0)
            span = max(finite, default=0.0) - min(finite, default=0.0)
            axis.bar(list(different), list(different.values()), width=max(0.8 * gap, span / (2 * PLOT_BINS)))
        else:
            axis.hist(finite, bins=PLOT_BINS)
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.set_title(f"{name}: {label}".replace("$", r"\$"))
    save_figure(figure, path, format)


def save_figure(figure: Any, path: Any, format: str | None) -> None:
    """Write a figure to a file or a stream, and close it."""
    figure.tight_layout()
    if hasattr(path, "write"):
        picture = io.BytesIO()  # matplotlib seeks in what it writes, except in PNG
        figure.savefig(picture, format=format)
        path.write(picture.getvalue())
    else:
        figure.savefig(path, format=format)
    drawing_package().close(figure)


def drawing_package() -> ModuleType:
    """Import pyplot, without a display."""
    try:
        matplotlib = imported("matplotlib")
        matplotlib.use("Agg")
        return imported("matplotlib.pyplot")
    except ImportError as error:
        hint = "pip install 'webdataset[plot]'"
        raise MissingPackageError("plots need matplotlib", hint=hint) from error


def facts(field: FieldDescription, samples: int) -> Iterator[tuple[str, str]]:
    """Return the facts about a field, each with its label; `samples` is how many samples the dataset has."""
    if field.count < samples:
        yield "in", f"{field.count:,} of {samples:,} samples"
    yield "type", _counted(field.types, field.count)
    if field.modes:
        yield "stored", _counted(field.modes, field.count)
    if field.dtypes:
        yield "dtype", _counted(field.dtypes, field.count)
    if field.shapes:
        yield "shape", "; ".join(shape_range(field.shapes))
    if field.rates:
        yield "rate", _counted(field.rates, field.count)
    if field.frames.count:
        yield "frames", _span(field.frames, "")
    if field.seconds.count:
        yield "seconds", _span(field.seconds, f", total {field.seconds.total:,.1f}")
    if field.keys:
        yield "keys", _counted(field.keys, field.count, 12)
    if field.range.count:
        yield "values", f"{_number(field.range.least)} .. {_number(field.range.most)}, mean {_number(field.range.mean)}"
    if field.lengths.count:
        yield "length", f"{_number(field.lengths.least)} .. {_number(field.lengths.most)}"
    least, most = size_text(field.sizes.least), size_text(field.sizes.most)
    yield "size", f"{least} .. {most}, mean {size_text(field.sizes.mean)}, total {size_text(field.sizes.total)}"
    for text, n in field.errors.most_common(3):
        yield "error", f"{n} x {shown(text)}"


def _histogram(field: FieldDescription) -> Iterator[str]:
    label, numbers = _measured(field)
    bins = numbers.histogram()
    if len(bins) > 1:
        yield f"  {label}:"
        yield bars(bins)


def _measured(field: FieldDescription) -> tuple[str, Any]:
    """Return the numbers that say most about a field."""
    if field.range.count:
        return ("means" if field.shapes else "values"), field.range
    if field.seconds.count:
        return "seconds", field.seconds
    return ("lengths", field.lengths) if field.lengths.count else ("bytes", field.sizes)


def _span(numbers: Range, more: str) -> str:
    return f"{_number(numbers.least)} .. {_number(numbers.most)}, mean {_number(numbers.mean)}{more}"


def _counted(counts: Counter[Any], total: int, most: int = 5) -> str:
    texts = [shown(name) if n == total else f"{shown(name)} ({n:,})" for name, n in counts.most_common(most)]
    return ", ".join(texts) + (f", and {len(counts) - most} more" if len(counts) > most else "")


def _number(number: float) -> str:
    return f"{number:.4g}" if number != int(number) or abs(number) >= 1e15 else str(int(number))
