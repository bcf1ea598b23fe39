"""Measure how fast a dataset is read, decoded, mapped, shuffled and batched, and say what limits it."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.tools.inspect.speed import Speed, SpeedTest

WORKERS = {"thread": "threads", "process": "processes"}
EXAMPLES = (
    ("wl test http://server/train-{000000..000009}.tar", "how fast it is read, for ten seconds"),
    ("wl test --decode rgb8 --shuffle 1000 -b 64 -P 4 train-*.tar", "with decoding, and with four workers"),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_inputs(parser)
    parser.number("-c", "--count", default=0, help="stop after N samples")
    parser.add_argument(
        "-t", "--seconds", metavar="S", type=grammar.seconds, default=10.0, help="stop after S seconds (10)"
    )
    add_decode(parser)
    parser.add_argument("-m", "--map", metavar="CODE", help="Python code to run on each sample, as in `wl map`")
    grammar.add_fields(parser, 'make tuples of fields: "jpg;png cls"')
    parser.number("--shuffle", default=0, help="shuffle in a buffer of N samples")
    parser.number("-b", "--batchsize", default=0, help="make batches of N samples")
    parser.switch("--json", help="print JSON")
    parser.number("-P", "-p", "--processes", default=0, help="also measure a loader with N workers")
    grammar.add_progress(parser, json=False)


def add_decode(parser: grammar.Parser) -> None:
    """Add --decode."""
    text = "decode fields, images as SPEC (rgb8); basic for no images"
    parser.add_argument("--decode", metavar="SPEC", nargs="?", const="rgb8", help=text)


def run(options: Namespace) -> int:
    from webdataset.cli.flow import urls_of
    from webdataset.errors import EmptyDatasetError
    from webdataset.tools.inspect.speed import measure, measure_workers

    urls = urls_of(options.inputs)
    test = _test(options)
    waiting = not options.quiet and not options.json and sys.stderr.isatty()
    if waiting:
        terminal.replace_line(f"reading for {options.seconds:.0f} s at most...")
    try:
        speeds = [measure(urls, test)]
    finally:
        if waiting:
            terminal.replace_line("")
    if not speeds[0].samples:
        hint = "the code of -m may have dropped them all" if options.map is not None else ""
        raise EmptyDatasetError("there are no samples to measure", url=urls[0] if urls else None, hint=hint)
    if options.processes and urls != ["-"]:
        _check_workers(urls, options.processes)
        speeds.append(measure_workers(urls, test, options.processes))
    if options.json:
        terminal.out(json.dumps([speed.as_dict() for speed in speeds], indent=1) + "\n")
    else:
        for text in lines(speeds, test):
            terminal.out(text + "\n")
    return 0


def lines(speeds: list[Speed], test: SpeedTest) -> Iterator[str]:
    """Format what was measured."""
    from webdataset.tools.inspect.speed import verdict

    first = speeds[0]
    yield f"open         {first.open_seconds * 1000:10.1f} ms"
    yield f"first byte   {first.first_byte_seconds * 1000:10.1f} ms"
    yield f"first sample {first.first_sample_seconds * 1000:10.1f} ms"
    yield ""
    yield f"{'stage':<13}{'share':>7}{'samples/s':>13}{'MB/s':>10}"
    total = sum(stage.seconds for stage in first.stages)
    for stage in first.stages:
        rates = f"{stage.samples_per_second:>13.1f}{stage.megabytes_per_second:>10.1f}"
        yield f"{stage.name:<13}{stage.seconds / total:>7.0%}{rates}"
    for speed in speeds:
        name = f"{speed.workers} workers" if speed.workers else "all stages"
        yield f"{name:<20}{speed.samples_per_second:>13.1f}{speed.megabytes_per_second:>10.1f}"
    yield ""
    for speed in speeds:
        name = f"{speed.workers} workers: " if speed.workers else "one process: " if len(speeds) > 1 else ""
        yield name + verdict(speed)
    choice = test.choice()
    yield f'workers="auto" takes {WORKERS[choice.workers]}: {choice.reason}'
    yield f"verdict: {speeds[-1].bound()[1]}"


def _test(options: Namespace) -> SpeedTest:
    from webdataset.tools.inspect.speed import SpeedTest

    function = None if options.map is None else _function(options.map, options.decode)
    names = ("decode", "shuffle", "batchsize", "count", "seconds", "concatenated")
    same = {name: getattr(options, name) for name in names}
    return SpeedTest(function=function, fields=options.fields or "", **same)


def _function(code: str, decode: str | None) -> Callable[[Any], Any]:
    """Return the user's code as a function whose results go on to the next stages."""
    from webdataset.cli.expressions import transformation
    from webdataset.tools.transform.mapping import applied, as_values

    # values that an earlier stage has decoded stay as they are
    return applied(transformation(code), "raw" if decode is not None else "rgb", as_values)


def _check_workers(urls: list[str], workers: int) -> None:
    if len(urls) < workers:
        terminal.err(f"wl test: {len(urls)} shards for {workers} workers: some workers will be idle\n")
