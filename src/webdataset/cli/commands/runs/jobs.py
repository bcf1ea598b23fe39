"""Run a command once for each of many items, mostly shards, on this machine or a cluster.

`wl jobs -s ITEMS -- COMMAND` runs the command with `{}` replaced by the item, `{#}` by its number, `{.}` by its name
without folder and extension; there is no shell between, unless the command is one. The word after -o or --output in the
command is taken as its output and the other words with `{}` in them as its inputs, if they are names of shards;
--output and --input say it otherwise. Our own commands, such as `wl map` or `tarproc`, write complete outputs only and
count samples; others write local outputs into a hidden folder, from which they are moved when the command succeeds.

Running the same line again does what is missing, failed or out of date. `wl jobs status|logs|cancel|resume|clean RUN`
is about a run, named by its folder or prefix, or by its name if it was begun on this machine. Only `resume` runs the
code of its plan; the others reach a cluster as --config, or your own file of options, says.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from webdataset.cli import engines, grammar, terminal

if TYPE_CHECKING:
    from webdataset.runs.items import Item
    from webdataset.runs.runs import Run

EXAMPLES = (
    ("wl jobs -s '{000..009}' -- wl map -c 'cls -= 1' train-{}.tar -o out-{}.tar", "ten shards, on all cores"),
    ("wl jobs -s '{000..009}' -- sh -c 'tar tf train-{}.tar > train-{}.txt'", "any command"),
)
ABOUT_RUNS = ("status", "logs", "cancel", "resume", "clean")
SHARD = re.compile(r"\.(tar|tgz|tar\.\w+)(\?.*)?$")


def configure(parser: grammar.Parser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="status|logs|cancel|resume|clean RUN", help="look at a run, end it, do the "
        "rest of it, remove what killed tasks have left")  # fmt: skip
    add("-s", "--shards", metavar="ITEMS", action="append", help="items, such as {0000..0999}; may be repeated")
    add("--items-from", metavar="FILE", help="a file with an item on each line; - for stdin")
    add("--input", metavar="URL", action="append", help="an input, with {}: shards are done again when it changes")
    add("--output", metavar="URL", action="append", help="an output, with {}: shards are done while it is missing")
    add("--name", metavar="NAME", help="name of the run (that of the command)")
    add("--item", metavar="PATTERN", help="with logs: only of items whose names match")
    parser.switch("--allow-foreign", help="with resume: run the plan of somebody else; with status: ask servers that "
        "it names")  # fmt: skip
    engines.add_engines(parser, default="local")
    grammar.add_progress(parser)


def split_words(argv: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split the options from the command after `--`."""
    words = list(argv)
    if "--" not in words:
        return words, {"command": []}
    end = words.index("--")
    return words[:end], {"command": words[end + 1 :]}


def run(options: Namespace) -> int:
    words = options.words
    if words and words[0] in ABOUT_RUNS:
        if len(words) != 2:
            raise grammar.UsageError(f"which run? wl jobs {words[0]} RUN")
        return int(globals()[f"_{words[0]}"](options, words[1]))
    if words:
        hint = f"wl jobs {'|'.join(ABOUT_RUNS)} RUN, or wl jobs -s ITEMS -- COMMAND"
        raise grammar.UsageError(f"{words[0]!r} is not known here: {hint}")
    return run_items(options)


def run_items(options: Namespace) -> int:
    """Run the command for each item."""
    from webdataset.runs.names import default_place

    command = list(options.command)
    if not command:
        raise grammar.UsageError("there is no command: wl jobs -s ITEMS -- COMMAND ... {} ...")
    names = _names(options)
    if not any("{" in word and re.search(r"\{[#.]?\}", word) for word in command):
        raise grammar.UsageError("the command is the same for every item: write {} where its name goes")
    outputs = options.output or outputs_of(command)
    if any("{}" not in output and "{.}" not in output and "{#}" not in output for output in outputs):
        raise grammar.UsageError(f"all items have one output, {outputs[0]}: write {{}} where the name of the item goes")
    inputs = options.input or inputs_of(command, outputs)
    items = (_item(name, number, inputs, outputs) for number, name in enumerate(names))
    name = options.name or command[0].rpartition("/")[2]
    place = default_place(name, outputs, [] if outputs else command)
    return engines.carry_out(options, place, {"kind": "command", "words": command, "outputs": outputs}, items)


def outputs_of(command: Sequence[str]) -> list[str]:
    """Return what follows -o or --output in a command.

    >>> outputs_of(["tarproc", "-c", "true", "in-{}.tar", "-o", "out-{}.tar"])
    ['out-{}.tar']
    """
    found = [word for flag, word in pairwise(command) if flag in ("-o", "--output")]
    return found + [word.partition("=")[2] for word in command if word.startswith("--output=")]


def inputs_of(command: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Return the words of a command that are names of shards, without the outputs.

    >>> inputs_of(["tarproc", "-c", "echo {}", "in-{}.tar", "-o", "out-{}.tar"], ["out-{}.tar"])
    ['in-{}.tar']
    """
    return [
        word for word in command[1:] if "{}" in word and SHARD.search(word) and " " not in word and word not in outputs
    ]


def _names(options: Namespace) -> list[str]:
    from webdataset.storage.braces import braceexpand

    names = [name for text in options.shards or () for name in braceexpand(text)]
    if options.items_from:
        try:
            with open(0 if options.items_from == "-" else options.items_from, encoding="utf-8") as file:
                names += [line.rstrip("\n") for line in file if line.strip()]
        except OSError as error:
            raise grammar.UsageError(f"cannot read items from {options.items_from!r}: {error.strerror}") from None
    if not names:
        raise grammar.UsageError("there are no items: name them with -s '{0000..0999}' or --items-from FILE")
    return names


def _item(name: str, number: int, inputs: Sequence[str], outputs: Sequence[str]) -> Item:
    from webdataset.runs.items import Item
    from webdataset.runs.performing import filled_words

    return Item(name, tuple(filled_words(inputs, name, number)), tuple(filled_words(outputs, name, number)))


# -- about a run -----------------------------------------------------------------------------------------


def _found(text: str) -> Run:
    from webdataset.runs.runs import found_run

    return found_run(text)


def _shown(options: Namespace, text: str) -> Run:
    """Return a run that is only looked at, and may be anybody's."""
    from webdataset.runs.runs import found_run

    run = found_run(text, foreign=True)
    run.is_trusted = options.allow_foreign or run.was_begun_here
    return run


def _status(options: Namespace, text: str) -> int:
    """Print how far a run is."""
    from webdataset.runs.status import status_of

    run = _shown(options, text)
    status = status_of(run)
    if options.html:
        from webdataset.cli.outputs import writing
        from webdataset.runs.pages import page

        with writing(options.html) as stream:
            stream.write(page(run, run.plan(), status.facts(), status.failures).encode())
    if options.json:
        terminal.out(engines._json(status.facts()))
    else:
        terminal.out(status.text())
    return 1 if status.failures else 0


def _logs(options: Namespace, text: str) -> int:
    """Print what items have printed."""
    import codecs
    import fnmatch
    from urllib.parse import unquote

    from webdataset.runs.serving import ERRORS, LOGS

    run = _shown(options, text)
    for folder in (LOGS, ERRORS):
        for name in sorted(run.place.sizes(folder)):
            item = unquote(name.removeprefix(folder)).rpartition(".")[0]
            bare = item.rpartition(".")[0] if folder == LOGS else item
            if options.item and not fnmatch.fnmatchcase(bare, options.item):
                continue
            terminal.out(f"==> {item}{'' if folder == LOGS else ' (samples)'} <==\n")
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            for piece in run.place.pieces(name):
                terminal.out(decoder.decode(piece))
            terminal.out(decoder.decode(b"", True))
    if not options.item:
        for engine, submission in engines.submitted(options, run):
            for name, content in engine.logs(submission):
                terminal.out(f"==> {name} <==\n{content}")
    return 0


def _cancel(options: Namespace, text: str) -> int:
    """End what was submitted."""
    run = _found(text)
    count = 0
    for engine, _ in engines.submitted(options, run):
        if not engine.finished:
            engine.cancel()
            count += 1
    _end(run, take_over=True)
    if not options.quiet:
        terminal.err(f"{count} submissions cancelled; `wl jobs resume {run.url}` does the rest\n")
    return 0


def _clean(options: Namespace, text: str) -> int:
    """Remove what tasks that are over have left."""
    run = _found(text)
    _end(run, take_over=options.take_over)
    return 0


def _end(run: Run, *, take_over: bool) -> None:
    """Take the right to publish from all tasks of a run, and remove what they have not published."""
    with run.owned(run.plan(), run.facts()["engine"], take_over=take_over):
        """There is nothing to do."""


def _resume(options: Namespace, text: str) -> int:
    """Wait for tasks that are still there, and do what is left."""
    from webdataset.errors import SecurityError
    from webdataset.runs.engines import engine_named

    run = _found(text)
    plan = run.plan()
    what = _code_of(plan.program)
    if not (run.was_begun_here or options.allow_foreign):
        hint = f"it would run {what}; --allow-foreign does so, if you trust who has begun it"
        raise SecurityError("this run was begun by somebody else, or on another machine", url=run.url, hint=hint)
    engines._say(options, f"resuming: {what}")
    _check_code(run)
    engines.follow_earlier(options, run, plan, plan.options)
    engine = engine_named(run.facts()["engine"], plan.options)
    return engines.follow(options, run, plan, engine)


def _code_of(program: Mapping[str, Any]) -> str:
    """Return what a plan runs, in words.

    >>> _code_of({"kind": "command", "words": ["wc", "-c", "a-{}.txt"]}), _code_of({"kind": "wl", "command": "map"})
    ("the command wc -c 'a-{}.txt'", 'the command wl map')
    """
    from shlex import join

    if program["kind"] == "function":
        return "a function of its program"
    return f"the command {join(program['words']) if program['kind'] == 'command' else 'wl ' + program['command']}"


def _check_code(run: Run) -> None:
    """Refuse to go on with other code than the plan was made for."""
    import os

    from webdataset.errors import StateError
    from webdataset.runs.sources import PlannedSources

    plan = run.plan()
    for name in plan.program.get("files", ()):
        if not os.path.exists(path := os.path.join(plan.cwd, name)):
            raise StateError("the code is gone", url=path, hint="go on where the run was begun, or begin another one")
    PlannedSources(plan.sources).check()
