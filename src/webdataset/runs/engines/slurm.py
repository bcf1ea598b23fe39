"""Slurm: arrays of tasks, submitted with the user's `sbatch`."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from webdataset.errors import SecurityError
from webdataset.runs.runs import Run, Submission

from .base import NOT_OURS, Engine, EngineError

if TYPE_CHECKING:
    from webdataset.runs.options import TaskOptions

MOST_TASKS = 200
"""Tasks of a submission, if the user does not say how many shards each has: sites ask for few and long ones."""
SECTION = ("partition", "account", "qos", "time", "constraint", "options", "setup", "poll")
PATIENCE = 60.0
JOB = re.compile(r"\d+(_(\d+|\[[\d,:%-]+\]))?")
"""A job, one task of an array, or some of them."""
RUNS = {"RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT"}


class SlurmEngine(Engine):
    """Submits arrays, as many as the site's limit on the size of one asks for."""

    name = "slurm"
    reason = "its Slurm task ended without a word: it was killed, or its node died"

    def __init__(self, options: TaskOptions) -> None:
        super().__init__(options)
        self.check_own(*SECTION)
        self.poll_seconds = float(self.own.get("poll", 5.0))  # type: ignore[misc]
        self._ids: list[str] = []
        self._running = 0
        self._finished = False

    def submit(self, submission: Submission) -> None:
        size = _array_limit()
        if submission.plan.place.folder is not None:  # else Slurm does not start the task
            submission.plan.place.make("logs")
        self._ids = []
        self._finished = False
        for first in range(0, submission.count, size):
            count = min(size, submission.count - first)
            words = ["sbatch", "--parsable", *self.flags(submission, count)]
            told = _called(words, self.script(submission, first))
            self._ids.append(told.strip().partition(";")[0])
            submission.handle = {"jobs": self._ids}
            Run(submission.plan.place.url).save(submission)  # also if the next one is refused

    def manifest_text(self, submission: Submission) -> str:
        """Return what `--dry-run` prints: the script, with its flags as comments."""
        flags = "".join(f"#SBATCH {flag}\n" for flag in self.flags(submission, submission.count))
        first, _, rest = self.script(submission, 0).partition("\n")
        return f"{first}\n{flags}{rest}"

    def flags(self, submission: Submission, count: int) -> list[str]:
        """Return the options of sbatch."""
        options = self.options
        folder = submission.plan.place.folder
        limit = f"%{options.workers}" if options.workers else ""
        flags = [f"--array=0-{count - 1}{limit}", f"--job-name={_short_name(submission)}"]
        flags += [f"--cpus-per-task={options.cpus}", "--no-requeue", "--open-mode=append"]
        flags.append(f"--output={folder}/logs/slurm-%A_%a.txt" if folder is not None else "--output=/dev/null")
        if options.memory:
            flags.append(f"--mem={math.ceil(options.memory / 2**20)}M")
        if options.gpus:
            flags.append(f"--gres=gpu:{options.gpus}")
        flags += [f"--{name}={self.own[name]}" for name in SECTION[:5] if name in self.own]
        return flags + [str(flag) for flag in self.own.get("options", ())]

    def script(self, submission: Submission, offset: int) -> str:
        """Return the batch script."""
        python = self.options.python or sys.executable
        words = [python, "-m", "webdataset", "task", submission.plan.url, "--submission", submission.id]
        words += ["--offset", str(offset)] if offset else []
        variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.options.environment.items())
        setup = f"{self.own['setup'].rstrip()}\n" if self.own.get("setup") else ""
        return f"#!/bin/bash\n{setup}{variables}exec {shlex.join(words)}\n"

    def attach(self, submission: Submission) -> None:
        self._ids = _jobs_of(submission)
        self._look()

    def poll(self, seconds: float) -> None:
        time.sleep(seconds)
        self._look()

    def _look(self) -> None:
        if not self._ids:
            self._finished = True
            return
        words = ["squeue", "--noheader", f"--jobs={','.join(self._ids)}", "--format=%T"]
        try:
            states = _called(words).split()
        except EngineError as error:
            if "Invalid job id" in str(error):  # ended long ago, and forgotten
                self._finished, self._running = True, 0
            return  # a controller that is busy or restarts answers later
        self._running = sum(state in RUNS for state in states)
        self._finished = not states
        if self._finished:
            self.reason = _reason(self._ids) or self.reason

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def running(self) -> int:
        return self._running

    def cancel(self) -> None:
        if self._ids:
            _called(["scancel", "--", *self._ids])

    def logs(self, submission: Submission) -> Iterator[tuple[str, str]]:
        place = submission.plan.place
        jobs = tuple(f"logs/slurm-{job}_" for job in _jobs_of(submission))
        for name, size in sorted(place.sizes("logs/").items()):
            if size and name.startswith(jobs):
                yield name, place.read(name).decode("utf-8", "replace")

    def shards_per_task(self, count: int) -> int:
        return max(1, math.ceil(count / MOST_TASKS))


def _jobs_of(submission: Submission) -> list[str]:
    """Return the numbers of jobs that a submission names; anything else could be an option of Slurm's programs."""
    jobs = list(submission.handle.get("jobs", ()))
    for job in jobs:
        if not JOB.fullmatch(str(job)):
            raise SecurityError(f"{job!r} is no number of a job", url=submission.plan.place.url, hint=NOT_OURS)
    return list(map(str, jobs))


def _short_name(submission: Submission) -> str:
    return submission.plan.place.url.rpartition("/")[2][:60] or "webdataset"


def _reason(ids: Sequence[str]) -> str:
    """Return what Slurm says of a task that failed, if it remembers one."""
    for job in ids:
        with contextlib.suppress(EngineError):
            for line in _called(["scontrol", "--oneliner", "show", "job", job]).splitlines():
                facts = dict(word.partition("=")[::2] for word in line.split())
                if facts.get("JobState") not in ("COMPLETED", "CANCELLED") and facts.get("ExitCode") in LOST_CODES:
                    task = facts.get("ArrayTaskId")
                    return (
                        f"Slurm's task {job}_{task} ended in the state {facts.get('JobState')} ({facts.get('Reason')})"
                    )
    return ""


LOST_CODES = ("0:9", "0:53", "1:0", "127:0", "126:0")
"""Of tasks that were killed or could not be started."""


def _array_limit() -> int:
    """Return how many tasks an array may have here."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _called(["scontrol", "show", "config"]))
    return max(int(found.group(1)) if found else 1001, 1)


def _called(words: Sequence[str], text: str = "") -> str:
    """Run one of Slurm's programs and return what it prints."""
    if shutil.which(words[0]) is None:
        hint = "run this where jobs are submitted; on Debian and Ubuntu: apt install slurm-client"
        raise EngineError(f"Slurm's program {words[0]} is not here", hint=hint)
    try:
        told = subprocess.run(words, input=text, capture_output=True, text=True, check=False, timeout=PATIENCE)  # noqa: S603 - fixed programs
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{words[0]} does not answer", hint="is slurmctld running? `sinfo` tells") from error
    if told.returncode:
        reason = " ".join(told.stderr.split()) or f"exit code {told.returncode}"
        raise EngineError(f"{words[0]} failed: {reason}")
    return told.stdout


ENGINE = SlurmEngine
