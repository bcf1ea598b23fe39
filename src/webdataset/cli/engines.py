"""Run commands on engines: the options --on and its like, the line of progress, the summary."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import grammar, terminal

if TYPE_CHECKING:
    from webdataset.runs.control import RunController
    from webdataset.runs.engines.base import Engine
    from webdataset.runs.items import Item
    from webdataset.runs.options import TaskOptions
    from webdataset.runs.plans import RunPlan, RunProgram
    from webdataset.runs.runs import Run, Submission

ENGINES = ("local", "dask", "ray", "slurm", "k8s", "argo")
GROUP = "on an engine"
INTERVAL = 0.5

TASK_OPTIONS = (
    *("cpus", "memory", "gpus", "image", "retries", "timeout", "shards_per_task", "max_failures", "workers"),
    *("address", "python", "retry_codes", "give_up_codes", "stop_codes"),
)
RUN_OPTIONS = (
    "on",
    "config",
    "env",
    "state",
    "redo",
    "take_over",
    "dry_run",
    "detach",
    "on_interrupt",
    "html",
    "manifest",
)
HERE_TOO = {"memory"}
"""Options that a command may have for itself."""


def add_engines(parser: grammar.Parser, default: str = "") -> None:
    """Add --on and what engines need; `default` is what help says of a line without --on."""
    before = {action.dest for action in parser._actions}
    add = parser.add_argument
    text = f"run on an engine{f' ({default})' if default else ', one task per shard; -o needs {}'}"
    add("--on", choices=ENGINES, help=text)
    add("--address", metavar="ADDRESS", help="a running Dask or Ray cluster")
    parser.number("--workers", type=grammar.positive, help="how many tasks run at a time (local: one per core)")
    parser.number("--shards-per-task", type=grammar.positive, help="how many shards a task has")
    parser.number("--cpus", type=grammar.positive, help="cores of each task (1)")
    if "memory" not in before:
        add("--memory", metavar="BYTES", type=grammar.size, help="memory of each task")
    parser.number("--gpus", help="GPUs of each task")
    add("--image", metavar="IMAGE", help="container image, for k8s and argo")
    add("--env", metavar="NAME=VALUE", action="append", type=_variable, help="environment of tasks; may be repeated")
    parser.number("--retries", help="how often a shard is tried again (2)")
    add("--timeout", metavar="SECONDS", type=grammar.seconds, help="time limit for one shard")
    parser.number("--max-failures", help="stop when more shards than this failed")
    for verdict, meaning in (("retry", "try again"), ("give-up", "give up the shard"), ("stop", "stop the run")):
        add(f"--{verdict}-codes", metavar="CODES", help=f"exit codes of the command that mean {meaning}: 3,7-9")
    add("--python", metavar="PROGRAM", help="the Python of the nodes, for slurm (the one that runs this)")
    add("--config", metavar="FILE", help="options in a TOML or YAML file, with a section for each engine")
    add("--state", metavar="URL", help="folder or prefix to keep the run in (.runs beside the outputs)")
    add("--redo", metavar="failed|all|PATTERN", help="do only failed shards; all; or those whose names match")
    parser.switch("--take-over", help="take the run from another process that does it, and hangs")
    text = "say what would be done; k8s, argo and slurm: print what would be submitted"
    parser.switch("--dry-run", help=f"{text}; for k8s, -o yaml after it writes the plan, too, for `kubectl apply -f -`")
    if "-o" in parser._option_string_actions:
        parser.set_defaults(manifest=None)  # -o sets it, too
    else:
        add(
            "-o", dest="manifest", choices=(grammar.MANIFEST,), help="with --dry-run, for k8s: the plan is written, too"
        )
    parser.switch("--detach", help="submit and return at once, for slurm and k8s")
    add("--on-interrupt", choices=("cancel", "leave"), default="cancel", help="what Ctrl-C does to tasks (cancel)")
    add("--html", metavar="FILE", help="write a page about the run at the end")


def check_without_engine(options: Namespace) -> None:
    """Refuse options of engines without an engine."""
    for name in (*TASK_OPTIONS, *RUN_OPTIONS):
        value = getattr(options, name, None)
        if name not in HERE_TOO and value not in (None, False) and (name, value) != ("on_interrupt", "cancel"):
            flag = "-o yaml" if name == "manifest" else "--" + name.replace("_", "-")
            raise grammar.UsageError(f"{flag} is for runs on an engine: add --on, one of {', '.join(ENGINES)}")


def run_on_engine(name: str, options: Namespace, defaults: Mapping[str, Any]) -> int:
    """Run a command once for each shard of its inputs; `defaults` are those of its options."""
    from webdataset.runs.items import shard_items
    from webdataset.runs.names import default_place

    if not options.inputs:
        raise grammar.UsageError("there is nothing to read: name shards")
    if "{}" not in options.output:
        text = "each shard needs an output of its own; write {} where its name goes: -o 'out-{}.tar'"
        raise grammar.UsageError(text)
    items = shard_items(options.inputs, options.output)
    facts = {"kind": "wl", "command": name, "options": _own_options(options, defaults), "files": _files_of(options)}
    return carry_out(options, default_place(name, [options.output]), facts, items)


def _own_options(options: Namespace, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the command itself that differ from their defaults."""
    aside = {*TASK_OPTIONS, *RUN_OPTIONS, "inputs", "output", "progress", "json", "quiet", "verbose"}
    given = {name: value for name, value in vars(options).items() if name not in aside}
    return {name: value for name, value in given.items() if name in defaults and value != defaults[name]}


def _files_of(options: Namespace) -> list[str]:
    """Return the files that the command's code is in."""
    files = [getattr(options, "script", None), (getattr(options, "load", None) or "").partition(":")[0]]
    return [path for path in files if path]


# -- a run ---------------------------------------------------------------------------------------------


def carry_out(options: Namespace, place: str, facts: dict[str, Any], items: Iterable[Item]) -> int:
    """Make the plan of a program and do what is left of it; `place` is where the run is kept without --state."""
    from webdataset.runs.api import plan_of
    from webdataset.runs.digests import digest_of
    from webdataset.runs.engines import engine_named
    from webdataset.runs.plans import RunProgram
    from webdataset.runs.runs import Run

    task_options = task_options_of(options)
    engine = engine_named(options.on, task_options)
    manifest = getattr(options, "manifest", None)
    if manifest and not (options.dry_run and engine.name in ("k8s", "argo")):
        raise grammar.UsageError(
            "-o yaml prints what `kubectl apply` takes: it goes with --dry-run and --on k8s or argo"
        )
    run = Run(options.state or place)
    try:
        sources: dict[str, str] = {}
        program = RunProgram(facts, digest_of(facts, sources=sources), sources=sources)
    except OSError as error:
        raise grammar.UsageError(f"cannot read {error.filename!r}: {error.strerror}") from None
    if options.dry_run and not manifest:
        return _dry_run(options, run, engine, program, items)
    plan = plan_of(run.place, program, task_options, items)
    _say(options, f"run {run.url}")
    follow_earlier(options, run, plan, task_options)
    return follow(options, run, plan, engine)


def task_options_of(options: Namespace) -> TaskOptions:
    """Return the options of tasks: those of --config, and the command line's."""
    from webdataset.base.settings import settings
    from webdataset.runs.options import TaskOptions, options_file

    path = options.config or settings.jobs_config
    given: dict[str, Any] = options_file(path) if path else {}
    options.on = options.on or given.pop("on", "local")
    given.pop("on", None)
    flags = {name: getattr(options, name, None) for name in TASK_OPTIONS}
    given |= {name: value for name, value in flags.items() if value is not None}
    if options.env:
        given["environment"] = given.get("environment", {}) | dict(options.env)
    return TaskOptions.of(given)


def _wanted(options: Namespace, run: Run, plan: RunPlan) -> list[int]:
    """Return the numbers of what is to be done, and say why, if there was an earlier run."""
    from webdataset.runs.runs import is_wanted

    counts: dict[str, int] = {}
    wanted = []
    for number, item, standing in run.standings(plan):
        counts[standing] = counts.get(standing, 0) + 1
        if is_wanted(item, standing, options.redo):
            wanted.append(number)
    if set(counts) != {"missing"}:
        told = ", ".join(f"{count} {standing}" for standing, count in sorted(counts.items()))
        _say(options, f"{plan.count} shards: {told}; {len(wanted)} to do")
    return wanted


def follow(options: Namespace, run: Run, plan: RunPlan, engine: Engine) -> int:
    """Become the owner of the run, do what is left of the plan, with progress, and return the exit code."""
    from webdataset.runs.control import RunController

    # by its name, since it runs any command, also those that are run here
    engine.run_command = staticmethod(import_module(f"{__package__}.tasks").run_own_command)
    if options.detach and engine.name not in ("slurm", "k8s"):
        raise grammar.UsageError(f"--detach is for slurm and k8s; tasks on {engine.name} end with this one")
    with run.owned(plan, engine.name, take_over=options.take_over) as generation:
        controller = RunController(run, plan, engine, _wanted(options, run, plan), generation)
        if engine.name == "argo" or getattr(options, "manifest", None):
            return _print_manifest(options, controller)
        if options.detach:
            return _detach(options, run, controller)
        with closing(engine):
            return watch(options, run, controller, controller.events())


def submitted(options: Namespace, run: Run, believed: TaskOptions | None = None) -> Iterator[tuple[Engine, Submission]]:
    """Yield the submissions that outlive the process that made them, each with its engine.

    Which cluster is asked, and how, is the user's own configuration, or these options: a plan may be a stranger's.
    """
    from webdataset.runs.engines import engine_named

    task_options = believed or task_options_of(options)
    for id in run.submissions():
        submission = run.read_submission(id)
        if submission.handle:
            engine = engine_named(submission.engine, task_options)
            planned = submission.plan.options.own.get(engine.name, {})
            if left_out := [name for name in engine.reaches if planned.get(name) != engine.own.get(name)]:
                text = f"{', '.join(left_out)} of [{engine.name}] in its plan is not used: --config FILE names your own"
                _say(options, text)
            with closing(engine):
                engine.attach(submission)
                yield engine, submission


def follow_earlier(options: Namespace, run: Run, plan: RunPlan, believed: TaskOptions) -> None:
    """Wait for tasks of the same plan that are still there; those of another plan must be cancelled first."""
    from webdataset.errors import StateError
    from webdataset.runs.control import RunController
    from webdataset.runs.records import generation_of
    from webdataset.runs.runs import is_wanted

    for engine, submission in submitted(options, run, believed):
        if engine.finished:
            continue
        if submission.plan.id != plan.id:
            hint = f"`wl jobs cancel {run.url}` ends them"
            raise StateError("tasks of an earlier plan of this run are still there", url=run.url, hint=hint)
        _say(options, f"tasks of submission {submission.id} are still there; following them")
        numbers = [number for number, item, why in run.standings(plan) if is_wanted(item, why, None)]
        wanted = sorted(set(numbers) & set(submission.numbers))
        controller = RunController(run, plan, engine, wanted, follow=generation_of(submission.id))
        for _ in shown(options, run, controller, controller.attached()):
            """What is left is told in the end."""


def watch(options: Namespace, run: Run, controller: RunController, events: Iterable[Any]) -> int:
    """Show what happens until everything has ended; then the summary."""
    for _ in shown(options, run, controller, events):
        """It is shown."""
    controller.finish()
    return _summary(options, run, controller)


def shown(options: Namespace, run: Run, controller: RunController, events: Iterable[Any]) -> Iterator[Any]:
    """Show what happens; after an interrupt tasks are cancelled or left, as asked."""
    display = RunDisplay(options)
    try:
        for record in events:
            yield record
            if record is not None and record.error:
                display.clear()
                _say(options, f"{record.item}: given up: {record.error}")
            display.show(controller.counts.facts())
    except BaseException as error:
        display.clear()
        if isinstance(error, KeyboardInterrupt) and options.on_interrupt == "leave":
            error.add_note(f"what was begun goes on; `wl jobs status {run.url}` shows how far they are")
            controller.leave()
        else:
            error.add_note(f"`wl jobs resume {run.url}`, or the same line again, does the rest")
            controller.cancel()
        raise
    display.clear()


def _detach(options: Namespace, run: Run, controller: RunController) -> int:
    if controller.numbers:
        controller.submit()
    controller.leave()
    _say(options, f"{len(controller.numbers)} shards submitted; `wl jobs status {run.url}` shows how far they are")
    return 0


def _print_manifest(options: Namespace, controller: RunController) -> int:
    """Write down the tasks and print the manifest, for `argo submit -` or `kubectl apply -f -`."""
    run, plan, engine, numbers = controller.run, controller.plan, controller.engine, controller.numbers
    generation = controller.generation
    assert generation is not None
    if numbers:
        generation.make_stages(plan)
        per_task = plan.options.shards_per_task or engine.shards_per_task(len(numbers))
        submission = run.submission(plan, engine.name, numbers, per_task, generation=generation)
        terminal.out(_manifest(engine, submission))
    generation.leave()
    _say(options, f"{len(numbers)} shards to do; `wl jobs status {run.url}` shows how far they are")
    return 0


def _manifest(engine: Engine, submission: Submission) -> str:
    """Return what an engine is given to submit; nothing for engines with futures."""
    text: str = engine.manifest_text(submission) if hasattr(engine, "manifest_text") else ""
    return text


def _dry_run(options: Namespace, run: Run, engine: Engine, program: RunProgram, items: Iterable[Item]) -> int:
    """Print what would be submitted, or which shards would be done."""
    import tempfile

    from webdataset.runs.api import plan_of
    from webdataset.runs.places import Place
    from webdataset.runs.runs import Submission, is_wanted

    with tempfile.TemporaryDirectory() as folder, closing(engine):
        plan = plan_of(Place(folder), program, engine.options, items)
        standings = run.standings(plan)
        wanted = [(number, item, why) for number, item, why in standings if is_wanted(item, why, options.redo)]
        plan.place = run.place
        per_task = engine.options.shards_per_task or engine.shards_per_task(len(wanted))
        submission = Submission("SUBMISSION", engine.name, plan, [number for number, _, _ in wanted], per_task)
        if wanted and (text := _manifest(engine, submission)):
            terminal.out(text)
        else:
            for _, item, why in wanted:
                terminal.out(f"{why}\t{item.name}\t{' '.join(item.inputs)}\t{' '.join(item.outputs)}\n")
    _say(options, f"{len(wanted)} of {plan.count} shards would be done, in {submission.count} tasks on {engine.name}")
    return 0


def _summary(options: Namespace, run: Run, controller: RunController) -> int:
    counts, failures = controller.counts, controller.failures
    counts.running = 0
    if options.html:
        from webdataset.runs.pages import page

        from .outputs import writing

        with writing(options.html) as stream:
            stream.write(page(run, controller.plan, counts.facts(), failures).encode())
    if options.json:
        failed = [{"item": record.item, "error": record.error} for record in failures]
        terminal.err(_json({"end": True, "run": run.url, **counts.facts(), "failures": failed}))
    elif not options.quiet:
        terminal.err(f"{counts.done} shards done, {counts.skipped} were done before, {counts.failed} failed, ")
        terminal.err(f"{_amounts(counts.facts())}\n")
        for record in failures[:20]:
            terminal.err(f"  {record.item}: {record.error}\n")
        if len(failures) > 20:
            terminal.err(f"  and {len(failures) - 20} more; `wl jobs status {run.url}` lists them\n")
    if controller.stopped:
        from webdataset.runs.api import RunError

        raise RunError(f"the run was stopped: {controller.stopped}", url=run.url)
    return 1 if failures else 0


def _amounts(facts: Mapping[str, Any]) -> str:
    samples = f"{facts['samples']} samples, " if facts["samples"] else ""
    return f"{samples}{facts['bytes'] / 1e6:.1f} MB in {facts['seconds']:.1f} s"


def _say(options: Namespace, text: str) -> None:
    if not (options.quiet or options.json):
        terminal.err(f"{text}\n")


def _json(facts: Mapping[str, Any]) -> str:
    import json

    return json.dumps(facts) + "\n"


def _variable(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (equals and name):
        import argparse

        raise argparse.ArgumentTypeError(f"expected a variable and its value, such as LANG=C, got {text!r}")
    return name, value


class RunDisplay:
    """One line for the whole run, on stderr: if that is a terminal, or the user asked for it."""

    def __init__(self, options: Namespace) -> None:
        self.json = options.json
        self.shown = not options.quiet and (options.progress or options.json or sys.stderr.isatty())
        self._shown_at = 0.0
        self._line = False

    def show(self, facts: Mapping[str, Any]) -> None:
        """Show the counts, twice a second at most."""
        now = time.monotonic()
        if not self.shown or now - self._shown_at < INTERVAL:
            return
        self._shown_at = now
        if self.json:
            terminal.err(_json(facts))
        else:
            self._line = sys.stderr.isatty()
            terminal.replace_line(run_line(facts)) if self._line else terminal.err(f"{run_line(facts)}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._line:
            terminal.replace_line("")
            self._line = False


def run_line(facts: Mapping[str, Any]) -> str:
    """Return the line.

    >>> facts = {"total": 9, "skipped": 0, "done": 3, "failed": 1, "running": 2, "eta": 65.0}
    >>> run_line({**facts, "samples_per_second": 120.0, "mb_per_second": 30.5})
    '3/9 shards, 1 failed, 2 running, 120 samples/s, 30.5 MB/s, 1:05 left'
    """
    parts = [f"{facts['skipped'] + facts['done']}/{facts['total']} shards"]
    parts += [f"{facts[name]} {name}" for name in ("failed", "running") if facts[name]]
    if facts["samples_per_second"]:
        parts.append(f"{facts['samples_per_second']:.0f} samples/s")
    parts.append(f"{facts['mb_per_second']:.1f} MB/s")
    if facts["eta"] is not None:
        minutes, seconds = divmod(int(facts["eta"]), 60)
        hours = f"{minutes // 60}:{minutes % 60:02d}" if minutes >= 60 else str(minutes)
        parts.append(f"{hours}:{seconds:02d} left")
    return ", ".join(parts)
