"""Do one item of a plan: call the function, or run the command."""

from __future__ import annotations

import json
import os
import subprocess
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from webdataset.errors import StateError, WebDatasetError
from webdataset.storage.stores.uploads import Publication

from .functions import loaded
from .generations import SupersededError
from .items import Item, plain_version, size_and_version, stem
from .outcomes import StopRunError, Verdict, verdict_of_code, verdict_of_error
from .plans import RunPlan
from .records import DONE, FAILED, SUPERSEDED
from .sources import PlannedSources
from .staging import StagedOutputs, Stages, staged

LARGEST_RESULT = 10_000


@dataclass
class Performed:
    """How an item went."""

    verdict: Verdict = Verdict.DONE
    code: int | None = None
    error: str = ""
    samples_in: int | None = None
    samples_out: int | None = None
    dropped: int | None = None
    result: object = None
    versions: list[str] = field(default_factory=list)
    """Of the outputs, as they were published."""
    is_superseded: bool = False

    @property
    def status(self) -> str:
        """What the record of the attempt says."""
        if self.is_superseded:
            return SUPERSEDED
        return DONE if self.verdict is Verdict.DONE else FAILED


RunCommand = Callable[[dict[str, Any], str], "Performed | None"]
"""Runs one of our own commands in this process, and writes errors of samples to a file; None if it is another's."""


def perform(
    plan: RunPlan,
    number: int,
    run_command: RunCommand,
    errors: str,
    *,
    stages: Stages | None = None,
    sources: PlannedSources | None = None,
) -> Performed:
    """Do an item; whatever goes wrong is in the result."""
    item = plan.item(number)
    sources = PlannedSources(plan.sources) if sources is None else sources
    try:
        sources.check()
        _check_inputs(item)
        check = stages.check if stages is not None else lambda: None
        versions: dict[str, str] = {}
        with staged(item.outputs, stages) as outputs, Publication(check, versions).in_force():
            if plan.program["kind"] == "function":
                done = _call(plan, item, outputs)
            else:
                filled = filled_program(plan.program, item, number, outputs)
                own = run_command(filled, errors)
                done = own if own is not None else _run(filled["words"], plan)
            if done.verdict is Verdict.DONE:
                sources.check()
                _check_inputs(item)
                versions |= outputs.publish()
                found = (versions.get(url) or size_and_version(url)[1] for url in item.outputs)
                done.versions = list(map(plain_version, found))
    except Exception as error:
        traceback.print_exc()
        done = failed(_hopeless(sources, stages) or error, plan.options.memory)
    if done.verdict is not Verdict.DONE and not os.path.isdir(plan.cwd):
        done.error += f"; this worker does not see {plan.cwd}, in which the run was begun"
    return done


def _hopeless(sources: PlannedSources, stages: Stages | None) -> StopRunError | None:
    """Return why nothing could succeed any more: the run has another owner, or the code has changed."""
    try:
        if stages is not None:
            stages.check()
        sources.check()
    except StopRunError as error:
        return error
    return None


class ChangedInputError(WebDatasetError):
    """An input that is not what the plan was made for."""

    def __init__(self) -> None:
        super().__init__("an input has changed since the plan was made", hint="run the same line again")


def _check_inputs(item: Item) -> None:
    """Raise an error if inputs are not what the plan has, before they are read and afterwards."""
    if item.version is not None and " ".join(size_and_version(url)[1] for url in item.inputs) != item.version:
        raise ChangedInputError


def failed(error: BaseException, memory: int | None = None) -> Performed:
    """Return the outcome that an exception is."""
    text = str(error) if isinstance(error, WebDatasetError) else f"{type(error).__name__}: {error}"
    if memory and isinstance(error, MemoryError):
        text = f"{text.rstrip(': ')}; it had --memory {memory}"
    superseded = isinstance(error, SupersededError)
    return Performed(verdict_of_error(error), error=" ".join(text.split())[:1000], is_superseded=superseded)


def filled_program(program: dict[str, Any], item: Item, number: int, outputs: StagedOutputs) -> dict[str, Any]:
    """Return the program for one item, which writes to the places that are staged for its outputs."""
    if program["kind"] == "command":
        words = filled_words(program["words"], item.name, number)
        written = filled_words(program.get("outputs", ()), item.name, number) or item.outputs
        return program | {"words": outputs.placed_in(words, written)}
    if program["kind"] == "wl":
        own = {"inputs": list(item.inputs), "output": outputs.paths[0]}
        return program | {"options": program["options"] | own}
    raise StateError(f"the plan has a program of an unknown kind, {program['kind']!r}", hint="use one version only")


def filled_words(words: Sequence[str], name: str, number: int) -> list[str]:
    """Return the words of a command: `{}` is the name of the item, `{#}` its number, `{.}` its name without extension.

    >>> filled_words(["wc", "a-{}.tar", "{#}"], "007", 3)
    ['wc', 'a-007.tar', '3']
    """
    values = {"{}": name, "{#}": str(number), "{.}": stem(name)}
    return [_filled(word, values) for word in words]


def _filled(word: str, values: dict[str, str]) -> str:
    for mark, value in values.items():
        word = word.replace(mark, value)
    return word


def _call(plan: RunPlan, item: Item, outputs: StagedOutputs) -> Performed:
    function = _function(plan.url)
    return Performed(result=_plain(function(*_grouped(item.inputs), *_grouped(outputs.paths))))


def _grouped(urls: Sequence[str]) -> list[Any]:
    """Return one url as it is and several as a list, so that a function has two arguments."""
    return [urls[0]] if len(urls) == 1 else [list(urls)] if urls else []


@lru_cache(maxsize=1)
def _function(url: str) -> Callable[..., Any]:
    from .plans import read_plan

    return loaded(read_plan(url).file("function.pickle"))


def _plain(value: object) -> object:
    try:
        return value if len(json.dumps(value)) <= LARGEST_RESULT else None
    except (TypeError, ValueError):
        return None


def _run(words: Sequence[str], plan: RunPlan) -> Performed:
    """Run a command of somebody else."""
    try:
        code = subprocess.call(words, stdin=subprocess.DEVNULL)  # noqa: S603 - the user's command
    except OSError as error:
        return Performed(Verdict.STOP, 127, f"cannot run {words[0]!r}: {os.strerror(error.errno or 0)}")
    verdict = verdict_of_code(code, plan.options.verdicts())
    if verdict is Verdict.DONE:
        return Performed(code=code)
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Performed(verdict, code, f"{words[0]} {ended}")
