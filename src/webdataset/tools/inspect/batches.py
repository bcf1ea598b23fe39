"""Look at batches: what their fields are, how large their values, and their images as samples that can be shown."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from math import sqrt
from types import ModuleType
from typing import TYPE_CHECKING, Any

from webdataset.base.packages import package
from webdataset.base.printing import short_repr
from webdataset.codecs.packages import is_array, is_tensor
from webdataset.handlers import close
from webdataset.remote.loader import RemoteLoader

if TYPE_CHECKING:
    import numpy as np

MOST_KINDS = 20


def remote_batches(urls: Sequence[str], count: int | None, **options: Any) -> Iterator[Any]:
    """Some batches from producers or streams; a trainer that reads them, too, is not disturbed."""
    import secrets

    loader = RemoteLoader(urls, job=f"look-{secrets.token_hex(4)}", rank=0, world_size=1, **options)
    with closing(loader):
        batches = iter(loader)
        try:
            yield from islice(batches, count)
        finally:
            close(batches)


def fields_of(batch: object) -> dict[str, Any]:
    """The fields of a batch by name: those of a dict, or the places in a tuple.

    >>> fields_of((1, 2)), fields_of({"a": 1})
    ({'0': 1, '1': 2}, {'a': 1})
    """
    if isinstance(batch, dict):
        return {str(name): value for name, value in batch.items()}
    values = batch if isinstance(batch, (list, tuple)) else [batch]
    return {str(number): value for number, value in enumerate(values)}


class FieldStatistics:
    """The values of one field over batches: counts, types and shapes, and min, max, mean and deviation of numbers.

    >>> import numpy as np
    >>> field = FieldStatistics()
    >>> field.add(np.array([1.0, 3.0])); field.add(np.array([5.0]))
    >>> field.mean, field.low, field.high, field.kinds
    (3.0, 1.0, 5.0, {'float64 (2,)': 1, 'float64 (1,)': 1})
    """

    def __init__(self) -> None:
        self.count = 0
        self.low, self.high = float("inf"), float("-inf")
        self.mean = self._squares = 0.0
        self.kinds: dict[str, int] = {}

    def add(self, value: Any) -> None:
        """Another batch's value."""
        import numpy as np

        if is_tensor(value):
            value = value.detach().cpu()
            value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
        kind = f"{value.dtype} {value.shape}" if is_array(value) else f"{type(value).__name__} of {_length(value)}"
        if kind in self.kinds or len(self.kinds) < MOST_KINDS:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if is_array(value) and value.dtype.kind in "biuf" and value.size:
            self._add_numbers(np.asarray(value, dtype=np.float64))

    def _add_numbers(self, numbers: np.ndarray[Any, Any]) -> None:
        count, mean = numbers.size, float(numbers.mean())
        squares = float(((numbers - mean) ** 2).sum())
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        total, apart = self.count + count, mean - self.mean
        self._squares += squares + apart * apart * self.count * count / total
        self.mean += apart * count / total
        self.count = total

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return sqrt(self._squares / self.count) if self.count else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        numbers = {"n": self.count, "min": self.low, "max": self.high, "mean": self.mean, "std": self.deviation}
        return {"kinds": self.kinds} | (numbers if self.count else {})


def statistics(batches: Iterable[Any]) -> dict[str, FieldStatistics]:
    """The statistics of every field."""
    found: dict[str, FieldStatistics] = {}
    for batch in batches:
        for name, value in fields_of(batch).items():
            found.setdefault(name, FieldStatistics()).add(value)
    return found


def statistics_lines(found: dict[str, FieldStatistics]) -> Iterator[str]:
    """The statistics as a table."""
    yield f"{'field':<12} {'min':>11} {'max':>11} {'mean':>11} {'std':>11} {'n':>12}  type and shape of a batch"
    for name, field in found.items():
        kinds = ", ".join(f"{kind} x{times}" for kind, times in field.kinds.items())
        numbers = [f"{value:>11.4g}" for value in (field.low, field.high, field.mean, field.deviation)]
        shown = [*numbers, f"{field.count:>12}"] if field.count else [" " * 11] * 4 + [" " * 12]
        yield f"{name:<12} {' '.join(shown)}  {kinds}"


def samples_of(batch: object, number: int) -> Iterator[dict[str, Any]]:
    """The samples of a batch, for showing: what looks like an image is one."""
    fields = fields_of(batch)
    sizes = [
        len(value) for value in fields.values() if hasattr(value, "__len__") and not isinstance(value, (str, bytes))
    ]
    for row in range(min(sizes, default=0)):
        sample: dict[str, Any] = {"__key__": f"batch {number}, sample {row}"}
        for name, values in fields.items():
            if name == "__key__":
                sample[name] += f": {values[row]}"
            elif hasattr(values, "__len__") and not isinstance(values, (str, bytes)):
                shown, value = _shown(name, values[row])
                sample[shown] = value
        yield sample


def _shown(name: str, value: Any) -> tuple[str, Any]:
    import numpy as np

    if is_tensor(value):
        value = (value.float() if value.is_floating_point() else value).cpu().numpy()
    pixels = _pixels(np, value) if is_array(value) else None
    if isinstance(value, str):
        return name, value.encode("utf-8", "replace")
    if pixels is None:
        return name, short_repr(value.tolist() if is_array(value) else value, 200).encode("utf-8", "replace")
    stream = io.BytesIO()
    package("PIL.Image", extra="image", purpose="to show images").fromarray(pixels).save(stream, "PNG")
    return f"{name}.png", stream.getvalue()


def _pixels(np: ModuleType, value: np.ndarray[Any, Any]) -> Any:
    """An array as an image of 8 bits, if it has the shape of one; floats are stretched from black to white."""
    if value.ndim == 3 and value.shape[0] in (1, 3, 4) and value.shape[-1] not in (1, 3, 4):
        value = np.moveaxis(value, 0, -1)
    is_image = (value.ndim == 3 and value.shape[-1] in (1, 3, 4)) or value.ndim == 2
    if not is_image or min(value.shape[:2]) < 4 or value.dtype.kind not in "buif":
        return None
    if value.ndim == 3 and value.shape[-1] == 1:
        value = value[..., 0]
    if value.dtype == np.uint8:
        return np.ascontiguousarray(value)
    value = np.nan_to_num(value.astype(np.float32))
    low, high = float(value.min()), float(value.max())
    if not (low >= 0 and high <= 1):
        value = (value - low) / max(high - low, 1e-9)
    return np.ascontiguousarray((value * 255).round().astype(np.uint8))


def _length(value: object) -> int:
    return len(value) if hasattr(value, "__len__") else 1
