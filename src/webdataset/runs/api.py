"""Runs from Python: `jobs` and `distributed_map_unordered`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from webdataset.base.logs import progress_bar
from webdataset.errors import WebDatasetError
from webdataset.storage.urls import as_url

from .control import RunController
from .digests import function_digest
from .engines import engine_named
from .engines.base import Engine
from .functions import FunctionError, dumped
from .items import Item, absolute, checked, with_short_names, with_versions
from .names import default_place
from .options import TaskOptions, options_file
from .places import Place
from .plans import RunPlan, RunProgram, write_plan
from .records import DONE, AttemptRecord
from .runs import Run, is_wanted


class RunError(WebDatasetError):
    """Shards that could not be done."""


@dataclass
class JobDone:
    """An item that is done, or was given up after all retries."""

    item: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ok: bool
    error: str
    record: AttemptRecord

    @property
    def result(self) -> Any:
        """What the function returned, if JSON can say it."""
        return self.record.result


def jobs(
    function: Callable[..., Any],
    shards: Iterable[Any],
    *,
    on: object = None,
    state: str | None = None,
    redo: str | None = None,
    version: str | None = None,
    options: str | None = None,
    progress: bool = False,
    take_over: bool = False,
    **more: object,
) -> Iterator[JobDone]:
    """Call `function` for every (input, output) pair of `shards`, and yield each as it is done or given up.

    `on` names the engine: local, dask, ray, slurm, k8s or argo; or it is a Client of Dask, whose cluster is used.

    What an earlier run has done is left out, if neither the input nor the code has changed. Outputs are names of shards
    to write; local ones appear only when the function has returned. `state` is the folder or prefix in which the run is
    kept, by default beside the outputs; `redo` is failed, all, or a pattern of names; `version` stands for the
    function's code; `options` is a TOML or YAML file; other arguments, `more`, are its options: cpus, memory, retries,
    timeout, workers, address and the like. `progress` shows a bar of tqdm. Only one process at a time does a run;
    `take_over` takes it from another one that hangs.

    >>> import os, tempfile, webdataset as wds
    >>> def copied(source, target):
    ...     with open(source, "rb") as file, open(target, "wb") as copy:
    ...         return copy.write(file.read())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.tar", "w") as file:
    ...         _ = file.write("hello")
    ...     [(done.item, done.ok, done.result) for done in wds.jobs(copied, [(f"{folder}/a.tar", f"{folder}/b.tar")])]
    [('b', True, 5)]
    """
    given = (options_file(options) if options else {}) | more
    task_options = TaskOptions.of(given)
    engine = engine_named(on or "local", task_options)
    items = with_short_names([_item(number, shard) for number, shard in enumerate(shards)])
    name = getattr(function, "__name__", type(function).__name__)
    first = next((url for item in items for url in item.outputs), None)
    run = Run(state or default_place(name, [f"{first.rpartition('/')[0] or '.'}/{{}}"] if first else []))
    try:
        data = dumped(function)
    except FunctionError as error:
        if on is not None:
            raise
        warnings.warn(f"{error}; its items are done one after the other, in this process", stacklevel=2)
        return _in_this_process(function, items, progress)
    sources: dict[str, str] = {}
    digest = function_digest(function, version, sources)
    program = RunProgram({"kind": "function", "name": name}, digest, {"function.pickle": data}, sources)
    plan = plan_of(run.place, program, task_options, items)
    return _done(run, plan, engine, redo=redo, progress=progress, take_over=take_over)


def distributed_map_unordered(function: Callable[..., Any], shards: Iterable[Any], **options: Any) -> list[Any]:
    """Call `function` for every (input, output) pair of `shards`, and return the results in the order they come.

    The `options` are those of `jobs`. Shards that fail even after retries are an error in the end.

    >>> import tempfile, webdataset as wds
    >>> def empty(source, target):
    ...     open(target, "w").close()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open(f"{folder}/a.tar", "w").close()
    ...     wds.distributed_map_unordered(empty, [(f"{folder}/a.tar", f"{folder}/b.tar")])
    [None]
    """
    results, failures = [], []
    for done in jobs(function, shards, **options):
        if done.ok:
            results.append(done.result)
        else:
            failures.append(done)
    if failures:
        first = failures[0]
        count = len(failures) + len(results)
        message = f"{len(failures)} of {count} shards failed, the first one {first.item}: {first.error}"
        raise RunError(message, hint="call it again to do what is missing")
    return results


def plan_of(place: Place, program: RunProgram, options: TaskOptions, items: Iterable[Item]) -> RunPlan:
    """Make a plan: check the items, look at their inputs, write it down."""
    return write_plan(place, program, options, with_versions(checked(map(absolute, items))))


def _done(
    run: Run, plan: RunPlan, engine: Engine, *, redo: str | None, progress: bool, take_over: bool
) -> Iterator[JobDone]:
    with run.owned(plan, engine.name, take_over=take_over) as generation, closing(engine):
        wanted = [number for number, item, standing in run.standings(plan) if is_wanted(item, standing, redo)]
        controller = RunController(run, plan, engine, wanted, generation)
        with _bar(len(wanted), progress) as step:
            try:
                for record in controller:
                    step()
                    yield _job_done(plan, record)
                controller.finish()
            except BaseException:  # an interrupt, or a caller that has heard enough
                controller.cancel()
                raise
    if controller.stopped:
        raise RunError(f"the run was stopped: {controller.stopped}", url=run.url)


@contextmanager
def _bar(total: int, progress: bool) -> Iterator[Callable[[], object]]:
    """What moves the bar by one, if there is to be one."""
    if not progress:
        yield lambda: None
        return
    with progress_bar("jobs", "shards", total) as bar:
        yield bar.update


def _job_done(plan: RunPlan, record: AttemptRecord) -> JobDone:
    item = plan.item(record.number)
    return JobDone(item.name, item.inputs, item.outputs, record.status == DONE, record.error, record)


def _item(number: int, shard: object) -> Item:
    """Make an item of a pair, each side of which may be several urls, or of a single input."""
    if isinstance(shard, (str, os.PathLike)):
        return Item(as_url(shard), (as_url(shard),))
    if not isinstance(shard, Sequence) or len(shard) != 2:
        raise TypeError(f"shards are (input, output) pairs, or inputs; got {shard!r}")
    inputs, outputs = map(_urls, shard)
    return Item(outputs[0] if outputs else str(number), inputs, outputs)


def _urls(side: object) -> tuple[str, ...]:
    if side is None:
        return ()
    if isinstance(side, (list, tuple)):
        return tuple(map(as_url, side))
    return (as_url(side),)


def _in_this_process(function: Callable[..., Any], items: Sequence[Item], progress: bool) -> Iterator[JobDone]:
    """Do items without processes, records or retries, for functions that can live only here."""
    with _bar(len(items), progress) as step:
        for number, item in enumerate(checked(items)):
            result = function(*item.inputs, *item.outputs)
            record = AttemptRecord(item.name, DONE, number=number, final=True, result=result)
            step()
            yield JobDone(item.name, item.inputs, item.outputs, True, "", record)
