"""Do one item of a plan: call the function, or run the command."""

from __future__ import annotations

import json
import os
import subprocess
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from webdataset.errors import StateError, WebDatasetError

from .functions import loaded
from .items import Item, stem
from .outcomes import Verdict, verdict_of_code, verdict_of_error
from .plans import RunPlan
from .staging import SpareFolders, staged

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


RunCommand = Callable[[dict[str, Any], str], "Performed | None"]
"""Runs one of our own commands in this process, and writes errors of samples to a file; None if it is another's."""


def perform(
    plan: RunPlan, number: int, run_command: RunCommand, errors: str, spare: SpareFolders | None = None
) -> Performed:
    """Do an item; whatever goes wrong is in the result."""
    item = plan.item(number)
    program = plan.program
    try:
        if program["kind"] == "function":
            return _call(plan, item, spare)
        filled = filled_program(program, item, number)
        own = run_command(filled, errors)
        return own if own is not None else _run(filled["words"], item, plan, spare)
    except Exception as error:
        traceback.print_exc()
        return failed(error)


def failed(error: BaseException) -> Performed:
    """Return the outcome that an exception is."""
    text = str(error) if isinstance(error, WebDatasetError) else f"{type(error).__name__}: {error}"
    return Performed(verdict_of_error(error), error=" ".join(text.split())[:1000])


def filled_program(program: dict[str, Any], item: Item, number: int) -> dict[str, Any]:
    """Return the program for one item: `{}` is its name, `{#}` its number, `{.}` its name without the extension.

    >>> filled_program({"kind": "command", "words": ["wc", "a-{}.tar", "{#}"]}, Item("007"), 3)["words"]
    ['wc', 'a-007.tar', '3']
    """
    if program["kind"] == "command":
        return program | {"words": filled_words(program["words"], item.name, number)}
    if program["kind"] == "wl":
        own = {"inputs": list(item.inputs), "output": item.outputs[0]}
        return program | {"options": program["options"] | own}
    raise StateError(f"the plan has a program of an unknown kind, {program['kind']!r}", hint="use one version only")


def filled_words(words: Sequence[str], name: str, number: int) -> list[str]:
    """Return the words of a command with the placeholders filled in."""
    values = {"{}": name, "{#}": str(number), "{.}": stem(name)}
    return [_filled(word, values) for word in words]


def _filled(word: str, values: dict[str, str]) -> str:
    for mark, value in values.items():
        word = word.replace(mark, value)
    return word


def _call(plan: RunPlan, item: Item, spare: SpareFolders | None) -> Performed:
    function = _function(plan.url)
    arguments = plan.program.get("arguments", "pair")
    with staged(item.outputs, spare) as outputs:
        if arguments == "one":
            result = function(*item.inputs, *outputs.paths)
        else:
            result = function(*_grouped(item.inputs), *_grouped(outputs.paths))
        outputs.publish()
    return Performed(result=_plain(result))


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


def _run(words: Sequence[str], item: Item, plan: RunPlan, spare: SpareFolders | None) -> Performed:
    """Run a command of somebody else."""
    with staged(item.outputs, spare) as outputs:
        try:
            code = subprocess.call(outputs.placed_in(words), stdin=subprocess.DEVNULL)  # noqa: S603 - the user's command
        except OSError as error:
            return Performed(Verdict.STOP, 127, f"cannot run {words[0]!r}: {os.strerror(error.errno or 0)}")
        verdict = verdict_of_code(code, plan.options.verdicts())
        if verdict is Verdict.DONE:
            outputs.publish()
            return Performed(code=code)
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Performed(verdict, code, f"{words[0]} {ended}")
