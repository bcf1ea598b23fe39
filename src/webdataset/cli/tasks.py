"""Run our own commands inside a task: in its process, counted, with the errors of samples in a file."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from webdataset.errors import WebDatasetError
from webdataset.runs.outcomes import Verdict, verdict_of_error
from webdataset.runs.performing import Performed
from webdataset.storage.urls import local_path

from . import grammar
from .running import INTERRUPTED, TERMINATED, USAGE_ERROR, command_module, parser_of, run_parser
from .table import COMMANDS

Run = Callable[[Namespace], int | None]


def run_own_command(program: dict[str, Any], errors: str) -> Performed | None:
    """Run one of our commands, or return None if it is another's."""
    if program["kind"] == "wl":
        name, given = program["command"], program["options"]
        if (output := local_path(given["output"])) is not None:  # names of items may have folders
            os.makedirs(os.path.dirname(os.path.abspath(output)), exist_ok=True)
        module = command_module(name)
        defaults = grammar.defaults(parser_of(name, module))
        observed = _Observed(module.run, errors)
        code = run_parser(parser_of(name), [], lambda _: observed(Namespace(**{**defaults, **given})))
        return observed.performed(code)
    words = program["words"]
    name = os.path.basename(words[0])
    if os.path.dirname(words[0]):
        return None
    if name == "wl" and words[1:2] and words[1] in COMMANDS:
        module = command_module(words[1])
        observed = _Observed(module.run, errors)
        return observed.performed(run_parser(parser_of(words[1], module), words[2:], observed))
    return _old(name, words, errors)


def _old(name: str, words: list[str], errors: str) -> Performed | None:
    from .old.programs import PROGRAMS, run_old

    first = f"{name} {words[1]}" if name == "tarp" and words[1:2] else name
    if first not in PROGRAMS or first == "kujob":
        return None
    made: list[_Observed] = []

    def observing(run: Run) -> Run:
        made.append(_Observed(run, errors))
        return made[0]

    code = run_old(first, words[len(first.split()) :], observing)
    return made[0].performed(code)


class _Observed:
    """A command that is run once: what it raised, and what it counted."""

    def __init__(self, run: Run, errors: str) -> None:
        self.run, self.errors = run, errors
        self.options = Namespace()
        self.error: BaseException | None = None

    def __call__(self, options: Namespace) -> int | None:
        self.options = options
        options.progress = options.json = False
        options.handler = _Noting(self.errors, options)
        try:
            return self.run(options)
        except BaseException as error:
            self.error = error
            raise

    def performed(self, code: int) -> Performed:
        """Return how it went."""
        stats: dict[str, Any] = getattr(self.options, "stats", None) or {}
        done = Performed(code=code, samples_out=getattr(self.options, "samples_written", None))
        done.samples_in, done.dropped = stats.get("samples_read"), stats.get("samples_dropped")
        if code == 0:
            return done
        error = self.error
        if isinstance(error, (KeyboardInterrupt, SystemExit)) and code in (INTERRUPTED, TERMINATED):
            raise error  # it is this process that is to end, and the shard has not failed
        if isinstance(error, Exception):
            done.error = (
                str(error) if isinstance(error, (WebDatasetError, grammar.UsageError, OSError)) else repr(error)
            )
        elif code == USAGE_ERROR:
            done.error = "the command line is wrong; `wl jobs logs` has the message"
        else:
            done.error = f"it ended with exit code {code}"
        if code == USAGE_ERROR:
            done.verdict = Verdict.STOP  # the line is wrong, for every shard
        else:
            done.verdict = Verdict.GIVE_UP if error is None else verdict_of_error(error)
        return done


class _Noting:
    """A handler that notes each error in a file, then does what --on-error says."""

    def __init__(self, path: str, options: Namespace) -> None:
        self.path, self.mode = path, getattr(options, "on_error", "raise")
        self.options = options

    def __call__(self, error: Exception) -> bool:
        facts = {name: getattr(error, name, None) for name in ("url", "key", "member", "field")}
        known = {name: value for name, value in facts.items() if value is not None}
        line = json.dumps({**known, "error": " ".join(str(error).split())}, default=str) + "\n"
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line)
        mode = getattr(self.options, "on_error", self.mode)
        if mode == "raise":
            raise error
        return bool(mode == "skip")
