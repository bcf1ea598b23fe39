"""Run Python code on every sample.

The code is an expression, statements, a function in a file, or module:function. It sees the sample as `_` and its
fields by name, decoded when they are accessed; fields that it does not change keep their bytes.

The value of an expression is the result: a sample (a dict), a list of samples, or None to drop the sample. Statements,
such as `_["cls"] -= 1` or `cls -= 1`, change the sample itself. `numpy` (as `np`), `re`, `json`, `math`, `os`, `io` and
`random` need no import.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar

if TYPE_CHECKING:
    from webdataset.base.stages import Stage
    from webdataset.pipeline import DataPipeline
    from webdataset.tools.transform.mapping import Function

EXAMPLES = (
    (
        "wl map -e '_[\"cls\"] -= 1' in.tar -o out.tar",
        "subtract 1 from each class; images stay as they are, byte for byte",
    ),
    (
        "wl map -P 4 -e '_ if len(txt) > 10 else None' train-{000..099}.tar -o long-%06d.tar",
        "keep long texts, using four processes",
    ),
)


SMALL = 256 << 20
"""The largest shard that one process maps as a whole."""
MOST_IDLE = 1 / 3
"""Whole shards are worth it if processes are idle for at most this share of the time at the end."""


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser, short_count=False)
    add = parser.add_argument
    with parser.section("which samples"):
        add("-c", dest="count_or_code", metavar="N", help="as --count; anything but a number is --code, as before")
    add("-e", "--code", metavar="CODE", help="an expression, or statements")
    add("-C", "--precode", metavar="CODE", action="append", help="code to run once at the start, such as imports")
    add("-l", "--load", metavar="FILE.py", help="the function transform(sample) of a file, or FILE.py:NAME")
    add("-m", "--function", metavar="MODULE:NAME", help="a function of a module")
    add("--pipeline", metavar="EXPR", help="a stage or list of stages: [wds.shuffle(100), wds.select(f)]")
    add("-d", "--decode", metavar="SPEC", default="rgb", help="how to decode images: rgb, rgb8, l8, pil, pixels (as "
        "stored), ...; raw for bytes")  # fmt: skip
    grammar.add_processes(parser)
    grammar.add_rekey(parser)
    grammar.add_shards(parser)


def run(options: Namespace) -> int:
    from webdataset.cli.flow import drain, reading

    split_count_and_code(options, "code")
    if (shards := _whole_shards(options)) is not None:
        return drain(options, shards)
    stages = [] if options.pipeline is None else [_pipeline(options)]
    if has_function(options):
        stages.insert(0, _mapping(options))
    if not stages:
        raise grammar.UsageError(
            "there is no code: pass it with -e (wl map -e 'cls += 1' in.tar -o out.tar), -l, -m or --pipeline"
        )
    return drain(options, reading(options).compose(*stages))


def has_function(options: Namespace) -> bool:
    """Whether there is code for single samples."""
    return any(getattr(options, name, None) is not None for name in ("code", "load", "function", "inline"))


def function_maker(options: Namespace) -> Callable[[], Function]:
    """Return a function that compiles the user's code; each process calls it."""
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


def _mapping(options: Namespace, make: Callable[[], Function] | None = None) -> Stage:
    from webdataset.cli.flow import handler_of, packer
    from webdataset.tools.transform.mapping import map_samples

    return map_samples(
        make or function_maker(options),
        decode=options.decode,
        processes=options.processes,
        ordered=not options.unordered,
        handler=handler_of(options),
        pack=packer(options) if options.pipeline is None else None,
    )


def _whole_shards(options: Namespace) -> DataPipeline | None:
    """Return a dataset whose processes map whole shards, if there are enough small ones and no sample is left out."""
    from webdataset.cli.flow import packer, reading, urls_of
    from webdataset.cli.inputs import is_special
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.pipeline import DataPipeline
    from webdataset.tools.transform.shardwise import map_shards

    partly = getattr(options, "skip", 0) or options.count is not None or options.on_error == "stop"
    pack = packer(options) if options.pipeline is None else None
    if options.processes < 2 or partly or pack is None or not has_function(options):
        return None
    options.urls = urls_of(options.inputs)
    idle = -len(options.urls) % options.processes  # in the last round
    if idle > len(options.urls) * MOST_IDLE or any(map(is_special, options.urls)):
        return None
    if not all(map(_is_small, options.urls)):
        return None
    make = partial(_shard_reader, options, function_maker(options))
    reading(Namespace(**vars(options)), options.urls, watched=False)  # errors in the condition show now
    ordered = not options.unordered
    tick = ProgressDisplay.of(options).tick
    source = partial(map_shards, options.urls, make, pack=pack, processes=options.processes, ordered=ordered, tick=tick)
    return DataPipeline(source)


def _is_small(url: str) -> bool:
    """Whether the mapped shard may be kept in a temporary file."""
    from webdataset.storage.urls import local_path

    path = local_path(url)
    return path is not None and path.endswith(".tar") and os.path.isfile(path) and os.path.getsize(path) <= SMALL


def _shard_reader(options: Namespace, make: Callable[[], Function]) -> Callable[[str], Any]:
    """Return the function that maps one shard, in one process."""
    function = make()

    def read(url: str) -> tuple[DataPipeline, Callable[[], dict[str, Any]]]:
        from webdataset.cli.flow import reading

        here = Namespace(**{**vars(options), "processes": 0})
        samples = reading(here, [url]).compose(_mapping(here, lambda: function))
        return samples, samples.stats

    return read


def _pipeline(options: Namespace) -> Stage:
    from webdataset.cli.expressions import stages
    from webdataset.cli.flow import handler_of
    from webdataset.tools.transform.mapping import through_stages

    made = stages(options.pipeline, precode="\n".join(options.precode or ()))
    return through_stages(made, decode=options.decode, handler=handler_of(options))


def split_count_and_code(options: Namespace, code: str) -> None:
    """Take -c as the count if it is a number, else as code, which it was in wl-map and wl-xargs."""
    text = getattr(options, "count_or_code", None)
    if text is None:
        return
    try:
        options.count = grammar.count(text)
    except ArgumentTypeError:
        if getattr(options, code):
            raise grammar.UsageError(f"there are two pieces of code; use either -c or --{code}") from None
        setattr(options, code, text)
