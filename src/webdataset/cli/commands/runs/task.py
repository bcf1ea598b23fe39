"""Do items of a plan.

Engines call this; a plan is made by a command with --on, or by `wl jobs`. The exit code is 0 if all items are done, 65
if some were given up, 75 if it is worth trying again, 78 if there is no point in going on.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.runs.runs import Submission

EXAMPLES = (
    ("wl task data/.runs/map-1a2b3c4d/plans/5e6f708192a3b4c5 7", "do item 7"),
    ("wl task data/.runs/map-1a2b3c4d/plans/5e6f708192a3b4c5 0-49", "do fifty items, one after the other"),
)


def configure(parser: grammar.Parser) -> None:
    add = parser.add_argument
    add("plan", metavar="PLAN", help="the plan, RUN/plans/ID")
    add("index", nargs="?", metavar="INDEX", help="numbers of items, or with --submission the number of a task; by "
        "default the index that Slurm or Kubernetes has given to this process")  # fmt: skip
    add("--submission", metavar="ID", help="take the items of a task of this submission")
    add("--offset", metavar="N", type=grammar.count, default=0, help="add this to the number of the task")
    parser.switch("--serve", help="do the items that stdin names, for who looks after this process")


def run(options: Namespace) -> int:
    from webdataset.runs.crew import do_items
    from webdataset.runs.outcomes import EXIT_CODES, StopRunError, Verdict
    from webdataset.runs.plans import read_plan
    from webdataset.runs.serving import serve

    if options.serve:
        from webdataset.cli.tasks import run_own_command

        return serve(options.plan, run_own_command)
    try:
        plan = read_plan(options.plan)
        if options.submission is None:
            code, _ = do_items(plan, _numbers(options))
        else:
            submission, numbers = _task(options)
            code, _ = do_items(plan, numbers, task=submission.task_name(numbers), tried=submission.tried)
    except (OSError, StopRunError) as error:  # the plan, or the place for records; or the run has another owner
        terminal.err(f"wl task: {error}\n")
        return EXIT_CODES[Verdict.RETRY if isinstance(error, OSError) else Verdict.STOP]
    return int(code)


def _numbers(options: Namespace) -> list[int]:
    from webdataset.base.settings import settings
    from webdataset.runs.numbers import parsed_ranges

    if options.index is not None:
        return list(parsed_ranges(options.index))
    if settings.task_index is None:
        raise grammar.UsageError("which item? Name its number; Slurm and Kubernetes do so by their variables")
    return [int(settings.task_index)]


def _task(options: Namespace) -> tuple[Submission, list[int]]:
    """Return a submission, and the items of one of its tasks."""
    from webdataset.runs.runs import Run

    run = Run(options.plan.rstrip("/").rpartition("/plans/")[0])
    submission = run.read_submission(options.submission)
    return submission, submission.task(_numbers(options)[0] + options.offset)
