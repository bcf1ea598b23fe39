"""Threads or processes? What `workers="auto"` takes, and why.

Threads pass batches by reference and start at once, but only one of them runs Python at a time. The decoders and stages
of this package spend their time in code that lets the others go on; a program's own functions may or may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from webdataset.base.stages import Stage
from webdataset.codecs.packages import torch_if_installed


class Choice(NamedTuple):
    """What kind of workers to take, and the reason."""

    workers: str
    reason: str


def chosen_workers(dataset: object) -> Choice:
    """Threads if nothing in the dataset's stages is the program's own, else processes.

    >>> import webdataset as wds
    >>> chosen_workers(wds.WebDataset("a.tar", shardshuffle=False).decode("rgb8").batched(8)).workers
    'thread'
    >>> chosen_workers(wds.WebDataset("a.tar", shardshuffle=False).map(len)).reason
    "'map' calls a function of the program's own, which may hold the GIL"
    """
    foreign = next(_foreign_in(dataset), None)
    if foreign is None:
        return Choice("thread", "all stages release the GIL")
    if torch_if_installed() is None:
        return Choice("thread", "worker processes need torch, which is not installed")
    return Choice("process", foreign)


def _foreign_in(dataset: object) -> Iterator[str]:
    """What in a dataset is the program's own."""
    stages = getattr(dataset, "pipeline", None)
    if not _is_ours(type(dataset)) or not isinstance(stages, list):
        yield "the dataset is the program's own, and may hold the GIL"
        return
    for stage in stages:
        if isinstance(getattr(stage, "pipeline", None), list):
            yield from _foreign_in(stage)
        elif isinstance(stage, Stage):
            if not (_is_ours(stage.f) and all(map(_is_harmless, _options(stage)))):
                yield f"{stage.filter.__name__!r} calls a function of the program's own, which may hold the GIL"
        elif not (_is_ours(stage) or _is_ours(type(stage)) or isinstance(stage, (list, tuple))):
            yield f"{getattr(stage, '__name__', type(stage).__name__)!r} is the program's own, and may hold the GIL"


def _options(stage: Stage) -> Iterator[Any]:
    for value in [*stage.args, *(value for name, value in stage.kw.items() if name != "handler")]:
        yield from value.values() if isinstance(value, dict) else [value]


def _is_harmless(value: object) -> bool:
    """Whether an option is no function, or one of ours, with all that it is made of."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_harmless, value))
    if not callable(value):
        return True
    parts: Iterable[Any] = getattr(value, "steps", ())
    return (_is_ours(value) or _is_ours(type(value))) and all(map(_is_harmless, parts))


def _is_ours(thing: object) -> bool:
    module = getattr(thing, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in ("webdataset", "wids")
