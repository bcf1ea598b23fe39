"""One round of one peer, in a process and an environment of its own; compare.py starts it.

    python measure.py PEER KIND '{"name": "A", "field": "jpg", ...}'

The last line of its output is JSON: samples, seconds by the clock, CPU time of this process and its children, the first
result, the peak of memory. With `"check": true` what came out is described instead, so that peers can be compared.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

THUMBNAIL = 4


def main() -> None:
    peer, kind, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    module = importlib.import_module(f"peers.{peer}")
    sys.path.append(sys.path.pop(0))  # names of the benchmarks must not hide packages
    check, repeat, only = (options.pop(name, usual) for name, usual in (("check", False), ("repeat", 1), ("only", 0)))
    if kind == "prepare":
        prepared = getattr(module, "prepare", None)
        if prepared is not None:
            prepared(_case(options))
        result: dict[str, Any] = {}
    elif kind == "write":
        result = written(module.write, options)
    elif check:
        result = {"check": CHECKS[kind](getattr(module, kind)(_case(options)))}
    else:
        result = timed(getattr(module, kind), _case(options), kind, repeat, only)
    if "cpu" in result and getattr(module, "WORKERS_APART", False):
        result["cpu"] = 0.0
    result["version"] = version(module)
    sys.stdout.write("\n" + json.dumps(result) + "\n")
    sys.stdout.flush()
    os._exit(0)  # some peers leave threads that never end


def _case(options: dict[str, Any]) -> Any:
    from peers.case import Case

    return Case(**options)


def timed(make: Callable[[Any], Any], case: Any, kind: str, repeat: int, only: int) -> dict[str, float]:
    """Read everything, `repeat` times, or `only` this many items."""
    warm(make, case)
    samples, first = 0, 0.0
    wall, cpu = time.perf_counter(), cpu_seconds()
    for _ in range(repeat):
        items = iter(make(case))
        item = next(items)
        first = first or time.perf_counter() - wall
        samples += _rest[kind](item, islice(items, only - 1) if only else items)
        del items, item
    seconds = time.perf_counter() - wall
    return {"samples": samples, "wall": seconds, "cpu": cpu_seconds() - cpu, "first": first, "peak": peak_megabytes()}


def warm(make: Callable[[Any], Any], case: Any) -> None:
    """Take one item, untimed: what is imported, compiled or started at first use is so then."""
    items = iter(make(case))
    next(items)
    if hasattr(items, "close"):
        items.close()
    del items
    gc.collect()  # worker processes of the abandoned pass end here
    _one_thread_each()


def _one_thread_each() -> None:
    """Worker processes are the parallelism here; those of torch would fight for the cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _bytes(item: Any, items: Iterator[Any]) -> int:
    samples, size = 1, len(item)
    for item in items:  # noqa: PLR1704 - the first was taken apart from the others
        samples += 1
        size += len(item)
    assert size > samples
    return samples


def _pairs(item: Any, items: Iterator[Any]) -> int:
    assert len(item) == 2
    return 1 + sum(1 for _ in items)


def _batches(item: Any, items: Iterator[Any]) -> int:
    samples = len(item[1])
    for _, labels in items:
        samples += len(labels)
    return samples


_rest: dict[str, Callable[[Any, Iterator[Any]], int]] = {
    "raw": _bytes,
    "shuffled": _bytes,
    "exact": _bytes,
    "rgb": _pairs,
    "train": _batches,
}


def written(write: Callable[[Any, str], None], options: dict[str, Any]) -> dict[str, float]:
    import tempfile

    from peers.case import Case

    folder = options.pop("output")
    samples = [{"__key__": key, options["field"]: data, "cls": label} for key, data, label in Case(**options).samples()]
    with tempfile.TemporaryDirectory(dir=folder) as target:
        wall, cpu = time.perf_counter(), cpu_seconds()
        write(samples, target)
        seconds = time.perf_counter() - wall
        cpu = cpu_seconds() - cpu
    return {"samples": len(samples), "wall": seconds, "cpu": cpu, "first": 0.0, "peak": peak_megabytes()}


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


def version(module: Any) -> str:
    try:
        return importlib.metadata.version(module.DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "?"


# -- what came out, so that it can be compared ---------------------------------------------------


def bytes_check(items: Iterator[Any]) -> dict[str, Any]:
    """How many there are, and a hash of all that does not depend on their order."""
    count = total = 0
    for item in items:
        count += 1
        total += int.from_bytes(hashlib.sha256(bytes(item)).digest()[:16], "big")
    return {"count": count, "hash": f"{total % (1 << 128):032x}"}


def rgb_check(items: Iterator[Any]) -> dict[str, Any]:
    """The size and a thumbnail of every picture, by its label."""
    import numpy as np

    found = {}
    for image, label in items:
        pixels = np.asarray(image).astype(np.float32)
        height, width = (side // THUMBNAIL * THUMBNAIL for side in pixels.shape[:2])
        parts = pixels[:height, :width].reshape(THUMBNAIL, height // THUMBNAIL, THUMBNAIL, width // THUMBNAIL, 3)
        found[int(label)] = [*pixels.shape, *parts.mean(axis=(1, 3, 4)).round(1).ravel().tolist()]
    return {"count": len(found), "pictures": found}


def train_check(batches: Iterator[Any]) -> dict[str, Any]:
    """The labels, the shape, and mean and deviation of all values."""
    import numpy as np

    labels: list[int] = []
    shapes, kinds, means, deviations = set(), set(), [], []
    for images, numbers in batches:
        values = np.asarray(images)
        shapes.add(values.shape[1:])
        kinds.add(str(values.dtype))
        means.append(float(values.mean()))
        deviations.append(float(values.std()))
        labels += [int(number) for number in np.asarray(numbers).reshape(-1)]
    found = {
        "count": len(labels),
        "labels": len(set(labels)),
        "shapes": sorted(map(list, shapes)),
        "kinds": list(kinds),
    }
    return found | {"mean": float(np.mean(means)), "deviation": float(np.mean(deviations))}


CHECKS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "raw": bytes_check,
    "shuffled": bytes_check,
    "exact": bytes_check,
    "rgb": rgb_check,
    "train": train_check,
}

if __name__ == "__main__":
    main()
