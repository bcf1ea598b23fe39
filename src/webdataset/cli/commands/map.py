"""Apply Python to every sample.

The code is an expression, statements, a function in a file, or module:function. It sees the sample as `_` and its
fields by name, decoded when it looks at them; fields that it does not change keep their bytes.

An expression's value is the result: a sample (a dict), a list of samples, or None, which drops the sample.
Statements, such as `_["cls"] -= 1` or `cls -= 1`, change the sample itself. `numpy` (as `np`), `re`, `json`, `math`,
`os`, `io` and `random` need no import.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    (
        "wl map -c '_[\"cls\"] -= 1' in.tar -o out.tar",
        "subtract 1 from each class; pictures stay as they are, byte for byte",
    ),
    (
        "wl map -P 4 -e '_ if len(txt) > 10 else None' train-{000..099}.tar -o long-%06d.tar",
        "keep long texts, with four cores",
    ),
)


SMALL = 256 << 20
"""The largest shard that one process maps as a whole."""
MOST_IDLE = 1 / 3
"""How much of the time processes may have nothing to do in the end, so that whole shards are worth it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    grammar.add_common(parser, short_count=False)
    parser.add_argument(
        "-c", dest="count_or_code", metavar="N|CODE", help="a number is --count, anything else is --code"
    )
    parser.add_argument("-e", "--code", metavar="CODE", help="an expression, or statements")
    parser.add_argument("-C", "--precode", metavar="CODE", action="append", help="code to begin with, such as imports")
    parser.add_argument(
        "-l", "--load", metavar="FILE.py", help="the function transform(sample) of a file; FILE.py:NAME"
    )
    parser.add_argument("-m", "--function", metavar="MODULE:NAME", help="a function of a module")
    parser.add_argument(
        "--pipeline", metavar="EXPR", help="a stage of the library, or a list: [wds.shuffle(100), wds.select(f)]"
    )
    grammar.add_decode(parser)
    grammar.add_processes(parser)
    grammar.add_rekey(parser)
    grammar.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Map."""
    from webdataset.cli.flow import drain, reading

    split_count_and_code(options, "code")
    if (shards := _whole_shards(options)) is not None:
        return drain(options, shards)
    made = [] if options.pipeline is None else [_pipeline(options)]
    if given(options):
        made.insert(0, _mapping(options))
    if not made:
        raise grammar.UsageError("there is no code: give it with -c, -e, -l, -m or --pipeline")
    return drain(options, reading(options).compose(*made))


def given(options: argparse.Namespace) -> bool:
    """Whether there is code for single samples."""
    return any(getattr(options, name, None) is not None for name in ("code", "load", "function", "inline"))


def function_of(options: argparse.Namespace) -> Callable[[], Any]:
    """What makes the user's function; each process makes its own."""
    from webdataset.cli.expressions import transformation

    make = partial(
        transformation,
        options.code,
        load=options.load,
        function=options.function,
        inline=getattr(options, "inline", None),
        decode=options.decode,
        precode="\n".join(options.precode or ()),
    )
    make()
    return make


def _mapping(options: argparse.Namespace, make: Callable[[], Any] | None = None) -> Any:
    from webdataset.cli.flow import handler_of, packer
    from webdataset.tools.transform.mapping import map_samples

    return map_samples(
        make or function_of(options),
        decode=options.decode,
        processes=options.processes,
        ordered=not options.unordered,
        handler=handler_of(options),
        pack=packer(options) if options.pipeline is None else None,
    )


def _whole_shards(options: argparse.Namespace) -> Any:
    """The dataset in which processes map whole shards, if there are enough small ones and all samples are wanted."""
    from webdataset.cli.flow import packer, reading, urls_of
    from webdataset.cli.inputs import is_special
    from webdataset.pipeline import DataPipeline
    from webdataset.tools.transform.shardwise import map_shards

    partly = getattr(options, "skip", 0) or options.count is not None or options.on_error == "stop"
    pack = packer(options) if options.pipeline is None else None
    if options.processes < 2 or partly or pack is None or not given(options):
        return None
    options.urls = urls_of(options.inputs)
    idle = -len(options.urls) % options.processes  # in the last round
    if idle > len(options.urls) * MOST_IDLE or any(map(is_special, options.urls)):
        return None
    if not all(map(_is_small, options.urls)):
        return None
    make = partial(_shard_reader, options, function_of(options))
    reading(argparse.Namespace(**vars(options)), options.urls)  # mistakes in the condition are told now
    ordered = not options.unordered
    source = partial(map_shards, options.urls, make, pack=pack, processes=options.processes, ordered=ordered)
    return DataPipeline(source)


def _is_small(url: str) -> bool:
    """Whether this is a shard that, mapped, may wait in a temporary file."""
    import os

    from webdataset.storage.urls import local_path

    path = local_path(url)
    return path is not None and path.endswith(".tar") and os.path.isfile(path) and os.path.getsize(path) <= SMALL


def _shard_reader(options: argparse.Namespace, make: Callable[[], Any]) -> Callable[[str], Any]:
    """The function that maps one shard, in one process."""
    function = make()
    alone = {**vars(options), "processes": 0}

    def read(url: str) -> Any:
        from webdataset.cli.flow import reading

        here = argparse.Namespace(**alone)
        samples = reading(here, [url]).compose(_mapping(here, lambda: function))
        return samples, samples.stats

    return read


def _pipeline(options: argparse.Namespace) -> Any:
    from webdataset.cli.expressions import stages
    from webdataset.cli.flow import handler_of
    from webdataset.tools.transform.mapping import through_stages

    made = stages(options.pipeline, precode="\n".join(options.precode or ()))
    return through_stages(made, decode=options.decode, handler=handler_of(options))


def split_count_and_code(options: argparse.Namespace, code: str) -> None:
    """-c is the count everywhere, and was the code in wl-map and wl-xargs: a mere number is no code."""
    text = getattr(options, "count_or_code", None)
    if text is None:
        return
    try:
        options.count = grammar.count(text)
    except argparse.ArgumentTypeError:
        if getattr(options, code):
            raise grammar.UsageError(f"there are two pieces of code; give one, with -c or --{code}") from None
        setattr(options, code, text)


# -- old names ---------------------------------------------------------------------------------------


def configure_wl_map(parser: argparse.ArgumentParser) -> None:
    """wl-map."""
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--code", metavar="CODE")
    parser.add_argument("-C", "--precode", metavar="CODE", action="append")
    parser.add_argument("-F", "--format", dest="decode", default="rgb", metavar="SPEC")
    parser.add_argument("-l", "--load", metavar="FILE.py")
    parser.add_argument(
        "-L", "--inline", metavar="MODULE", help="the text of such a file: it defines transform(sample)"
    )
    parser.add_argument("-H", "--function-help", action="store_true", help="show the help of the function of -l or -L")
    parser.add_argument("--pipeline", metavar="EXPR", help="a stage, or a list of stages")
    parser.add_argument(
        "-P", dest="processes_or_pipeline", metavar="N|EXPR", help="a number is -p, anything else is --pipeline"
    )
    parser.add_argument("-p", "--parallel", "--processes", dest="processes", type=grammar.count, default=0, metavar="N")
    parser.add_argument("-O", "--ordered", action="store_true", help="the order always stays")
    parser.add_argument("-e", "--every", type=grammar.count, metavar="N", help="progress every N samples")
    parser.add_argument("-o", "--output", default="-", metavar="URL")
    parser.add_argument("--only", "--count", dest="count", type=grammar.count, metavar="N")
    why = "two samples in a row with one key would be read as one"
    grammar.add_without_effect(parser, "--nokeycheck", why=why)
    parser.add_argument("--on-error", choices=("skip", "stop", "raise"), default="raise")
    parser.add_argument("-v", "--verbose", action="store_true")


def run_wl_map(options: argparse.Namespace) -> int:
    """-P was a pipeline there, and is a number in the documents."""
    text = options.processes_or_pipeline
    if text is not None:
        try:
            options.processes = grammar.count(text)
        except argparse.ArgumentTypeError:
            if options.pipeline is not None:
                raise grammar.UsageError("there are two pipelines; give one, with -P or --pipeline") from None
            options.pipeline = text
    if not options.function_help:
        return run(options)
    if not (options.load or options.inline):
        raise grammar.UsageError("-H shows the help of a function: give it with -l or -L")
    import inspect

    function = function_of(options)()
    text = inspect.getdoc(function) or "it has no documentation"
    sys.stdout.write(f"{getattr(function, '__name__', 'transform')}{inspect.signature(function)}\n\n{text}\n")
    return 0


OLD = {"wl-map": configure_wl_map}
OLD_RUN = {"wl-map": run_wl_map}
