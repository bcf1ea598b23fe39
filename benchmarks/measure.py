"""One round of one peer, in a process and an environment of its own; compare.py starts it.

    python measure.py PEER KIND '{"name": "A", "field": "jpg", ...}'

The last line of its output is JSON: samples, the bytes that were read of them, seconds by the clock, CPU time of this
process and its children, the first result, the peak of memory; and `check`, what came out, to be compared with the
others'. Every byte that a peer gives is read while the clock runs: otherwise one that gives views of a memory map,
which nothing has read yet, would be measured at something else than one that gives bytes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

LARGE = 4096
"""From this size on numpy is faster than zlib."""
THUMBNAIL = 4
PICTURES = 256
"""Of so many labels one has a picture that is compared."""
STRIDE = 16
"""Of the pixels of a batch that is compared, one of so many in each direction counts."""

Figures = dict[str, Any]


def main() -> None:
    peer, kind, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    module = importlib.import_module(f"peers.{peer}")
    sys.path.append(sys.path.pop(0))  # names of the benchmarks must not hide packages
    result = MODES.get(kind, reading)(module, kind, options)
    if "cpu" in result and getattr(module, "WORKERS_APART", False):
        result["cpu"] = 0.0
    result["version"] = version(module)
    sys.stdout.write("\n" + json.dumps(result) + "\n")
    sys.stdout.flush()
    os._exit(0)  # some peers leave threads that never end


def version(module: Any) -> str:
    try:
        return importlib.metadata.version(module.DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "?"


def _case(options: Figures) -> Any:
    from peers.case import Case

    return Case(**options)


# -- what is timed -----------------------------------------------------------------------------


def preparing(module: Any, _: str, options: Figures) -> Figures:
    """Untimed: its own format."""
    if hasattr(module, "prepare"):
        module.prepare(_case(options))
    return {}


def importing(module: Any, _kind: str, _options: Figures) -> Figures:
    begun = begin()
    module.imported()
    return ended(begun) | {"samples": 1, "bytes": 0, "first": 0.0, "check": {}}


def reading(module: Any, kind: str, options: Figures) -> Figures:
    """Everything, `repeat` times, or `only` this many items."""
    repeat, only = options.pop("repeat", 1), options.pop("only", None)
    make, case = getattr(module, kind), _case(options)
    warm(make, case)
    first, found = 0.0, TAKEN[kind]()
    begun = begin()
    for _ in range(repeat):
        items = iter(make(case))
        item = next(items)
        first = first or time.perf_counter() - begun[0]
        found.take(islice(chain([item], items), only))
        del items, item
    return ended(begun) | found.figures() | {"first": first}


def writing(module: Any, _: str, options: Figures) -> Figures:
    """Samples that lie in memory; afterwards, untimed, the standard library reads what was written."""
    import tempfile

    folder = options.pop("output")
    case = _case(options)
    samples = [{"__key__": key, case.field: data, "cls": label} for key, data, label in case.samples()]
    with tempfile.TemporaryDirectory(dir=folder) as target:
        begun = begin()
        module.write(samples, target)
        figures = ended(begun)
        case.shards = sorted(os.path.join(target, name) for name in os.listdir(target) if name.endswith(".tar"))
        found = Bytes()
        found.take(data for _, data, _ in case.samples())
    return figures | found.figures() | {"first": 0.0}


MODES: dict[str, Callable[[Any, str, Figures], Figures]] = {
    "prepare": preparing,
    "import": importing,
    "write": writing,
}


def warm(make: Callable[[Any], Any], case: Any) -> None:
    """Take one item, untimed: what is imported, compiled or started at first use is so then."""
    items = iter(make(case))
    next(items)
    if hasattr(items, "close"):
        items.close()
    del items
    gc.collect()  # worker processes of the abandoned pass end here
    torch = sys.modules.get("torch")
    if torch is not None:  # worker processes are the parallelism here; torch's threads would fight for the cores
        torch.set_num_threads(1)
    checksum(bytes(LARGE))  # imports numpy


def begin() -> tuple[float, float]:
    return time.perf_counter(), cpu_seconds()


def ended(begun: tuple[float, float]) -> Figures:
    wall, cpu = time.perf_counter() - begun[0], cpu_seconds() - begun[1]
    return {"wall": wall, "cpu": cpu, "peak": peak_megabytes()}


def cpu_seconds() -> float:
    """CPU time of this process and of children that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def peak_megabytes() -> float:
    """The most memory that this process had, and the largest of its children."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(OSError, StopIteration), open("/proc/self/status") as status:
        own = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return (own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1000


# -- what is read of the items, and what is known of them afterwards ------------------------------


def checksum(data: Any) -> int:
    """A number that all bytes go into: the sum of 64-bit words, at the speed of memory; CRC-32 of what is small.

    >>> checksum(b"a") == checksum(memoryview(b"a")), checksum(b"a") == checksum(b"b")
    (True, False)
    >>> large = bytes(5001)
    >>> checksum(large) == checksum(large[:-1] + b"a"), checksum(large) == checksum(b"a" + large[1:])
    (False, False)
    """
    size = len(data)
    if size < LARGE:
        return zlib.crc32(data)
    import numpy as np

    words = np.frombuffer(data, np.uint64, size // 8)
    return hash((int(np.add.reduce(words)), zlib.crc32(data[size & -8 :])))


class Bytes:
    """Items of bytes, or views of them."""

    def __init__(self) -> None:
        self.samples = self.bytes = self.sum = 0

    def take(self, items: Iterable[Any]) -> None:
        samples = size = total = 0
        for item in items:
            samples += 1
            size += len(item)
            total += checksum(item)
        self.samples += samples
        self.bytes += size
        self.sum += total

    def figures(self) -> Figures:
        return {"samples": self.samples, "bytes": self.bytes, "check": self.check()}

    def check(self) -> Figures:
        return {"samples": self.samples, "checksum": f"{self.sum % (1 << 64):016x}"}

    def read(self, value: Any) -> Any:
        """Read all of an array."""
        import numpy as np

        array = np.ascontiguousarray(value)
        self.sum += checksum(memoryview(array).cast("B"))
        self.bytes += array.nbytes
        return array


class Pictures(Bytes):
    """Pairs of an array and a label; decoders differ, so thumbnails of some are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: dict[int, list[float]] = {}

    def take(self, items: Iterable[Any]) -> None:
        for image, label in items:
            self.samples += 1
            pixels = self.read(image)
            if int(label) % PICTURES == 0:
                self.pictures[int(label)] = [*pixels.shape, *thumbnail(pixels)]

    def check(self) -> Figures:
        return {"samples": self.samples, "pictures": self.pictures}


def thumbnail(pixels: Any) -> list[float]:
    """The means over the parts of a picture."""
    height, width = (side // THUMBNAIL * THUMBNAIL for side in pixels.shape[:2])
    parts = pixels[:height, :width].reshape(THUMBNAIL, height // THUMBNAIL, THUMBNAIL, width // THUMBNAIL, 3)
    return [round(float(mean), 1) for mean in parts.mean(axis=(1, 3, 4)).ravel()]


class Batches(Bytes):
    """Batches of random crops and their labels; labels, shape, and mean and deviation of some values are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: set[int] = set()
        self.shapes: set[tuple[int, ...]] = set()
        self.moments: list[tuple[float, float]] = []

    def take(self, items: Iterable[Any]) -> None:
        import numpy as np

        for images, labels in items:
            numbers = np.asarray(labels).reshape(-1).tolist()
            self.samples += len(numbers)
            values = self.read(images)
            some = values[..., ::STRIDE, ::STRIDE]
            self.moments.append((float(some.mean()), float(some.std())))
            self.shapes.add(values.shape[1:])
            self.labels.update(numbers)

    def check(self) -> Figures:
        mean, deviation = (sum(values) / len(self.moments) for values in zip(*self.moments, strict=True))
        found = {"samples": self.samples, "labels": len(self.labels), "shapes": sorted(map(list, self.shapes))}
        return found | {"mean": round(mean, 3), "deviation": round(deviation, 3)}


TAKEN: dict[str, type[Bytes]] = {
    "raw": Bytes,
    "shuffled": Bytes,
    "rgb": Pictures,
    "train": Batches,
}

if __name__ == "__main__":
    main()
