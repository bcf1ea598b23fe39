"""Small functions that programs import from `webdataset.utils`."""

from __future__ import annotations

import fnmatch
import functools
import glob
import importlib
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeVar

from .base.settings import settings
from .base.stages import PipelineStage
from .base.workers import make_seed, pytorch_worker_info, pytorch_worker_seed
from .errors import ObsoleteError
from .storage.urls import braceexpand

__all__ = [
    "ObsoleteException",
    "PipelineStage",
    "compute_sample_weights",
    "deprecated",
    "fnmatch_with_braces",
    "glob_with_braces",
    "guess_batchsize",
    "identity",
    "is_iterable",
    "lookup_sym",
    "make_seed",
    "obsolete",
    "pytorch_worker_info",
    "pytorch_worker_seed",
    "repeatedly",
    "repeatedly0",
    "safe_eval",
]

Function = TypeVar("Function", bound=Callable[..., Any])
ObsoleteException = ObsoleteError


def identity(x: object) -> Any:
    """The argument itself."""
    return x


def is_iterable(obj: object) -> bool:
    """Can this be iterated over, text apart?

    >>> is_iterable([1]), is_iterable("abc")
    (True, False)
    """
    return hasattr(obj, "__iter__") and not isinstance(obj, (str, bytes))


def guess_batchsize(batch: Any) -> int:
    """The number of samples in a batch: the length of its first column."""
    return len(batch[0])


def repeatedly(
    source: Iterable[Any],
    nepochs: int | None = None,
    nbatches: int | None = None,
    nsamples: int | None = None,
    batchsize: Callable[..., int] = guess_batchsize,
) -> Iterator[Any]:
    """Read a source again and again, up to a number of passes, batches or samples.

    Args:
        source: what to read
        nepochs: the most passes
        nbatches: the most items
        nsamples: the most samples, counted by `batchsize`
        batchsize: a function of an item: how many samples it has

    >>> list(repeatedly([1, 2], nbatches=3))
    [1, 2, 1]
    """
    epochs = range(sys.maxsize if nepochs is None else nepochs)
    batches: Iterator[Any] = chain.from_iterable(source for _ in epochs)
    if nbatches is not None:
        batches = islice(batches, nbatches)
    total = 0
    for batch in batches:
        yield batch
        if nsamples is not None:
            total += batchsize(batch)
            if total >= nsamples:
                return


def repeatedly0(loader: Iterable[Any], nepochs: int = sys.maxsize, nbatches: int = sys.maxsize) -> Iterator[Any]:
    """Read a loader again and again, at most `nbatches` batches of each pass."""
    for _ in range(nepochs):
        yield from islice(loader, nbatches)


def compute_sample_weights(n_w_pairs: Iterable[tuple[int, float]]) -> Any:
    """Each dataset's share, size times weight, relative to the largest; from pairs of (size, weight).

    >>> compute_sample_weights([(10, 1), (20, 1)]).tolist()
    [0.5, 1.0]
    """
    import numpy as np

    shares = np.array([size * weight for size, weight in n_w_pairs], dtype=float)
    return shares / shares.max()


def fnmatch_with_braces(filename: str, pattern: str) -> bool:
    """Does the name match one of the patterns that the braces stand for?"""
    return any(fnmatch.fnmatch(filename, one) for one in braceexpand(pattern))


def glob_with_braces(pattern: str) -> list[str]:
    """The files that match any of the patterns that the braces stand for."""
    return [path for one in braceexpand(pattern) for path in glob.glob(one)]


def lookup_sym(sym: str, modules: Iterable[str]) -> Any:
    """The first object of this name in these modules, or None."""
    for name in modules:
        found = getattr(importlib.import_module(name), sym, None)
        if found is not None:
            return found
    return None


def safe_eval(s: str, expr: str = "{}") -> Any:
    """The builtin of this name; anything that is not a plain name is refused.

    >>> safe_eval("len")([1, 2])
    2
    """
    if re.fullmatch(r"[A-Za-z0-9_]+", s) is None:
        raise ValueError(f"safe_eval: illegal characters in: {s!r}")
    return eval(expr.format(s))  # noqa: S307 - a bare name in the caller's own expression


def deprecated(arg: object = None) -> Any:
    """Mark a function as deprecated: its use warns. Takes an optional reason."""

    def mark(function: Function, reason: str = "") -> Function:
        @functools.wraps(function)
        def wrapper(*args: object, **kw: object) -> Any:
            warnings.warn(f"{function.__name__} is deprecated {reason}".strip(), DeprecationWarning, stacklevel=2)
            return function(*args, **kw)

        return wrapper  # type: ignore[return-value]

    return mark(arg) if callable(arg) else functools.partial(mark, reason=str(arg or ""))


def obsolete(func: Any = None, *, reason: str | None = None) -> Any:
    """Mark a function as obsolete: its use is an error unless ALLOW_OBSOLETE=1."""
    if func is None:
        return functools.partial(obsolete, reason=reason)

    @functools.wraps(func)
    def wrapper(*args: Any, **kw: Any) -> Any:
        if not settings.allow_obsolete:
            raise ObsoleteError(f"{func.__name__} is obsolete", hint=reason or "ALLOW_OBSOLETE=1 allows it")
        return func(*args, **kw)

    return wrapper


class _Utils(types.ModuleType):
    """`utils.enforce_security = True` reaches the setting that the whole package obeys."""

    @property
    def enforce_security(self) -> bool:
        return settings.secure

    @enforce_security.setter
    def enforce_security(self, value: bool) -> None:
        settings.secure = value


sys.modules[__name__].__class__ = _Utils
