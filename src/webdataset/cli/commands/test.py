"""Measure how fast a dataset is read, decoded, mapped, shuffled and batched, and say what bounds it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    ("wl test http://server/train-{000000..000009}.tar", "how fast it is read, for ten seconds"),
    ("wl test --decode rgb8 --shuffle 1000 -b 64 -P 4 train-*.tar", "with decoding, and with four workers"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--count", metavar="N", type=grammar.count, default=0, help="stop after N samples")
    parser.add_argument(
        "-t", "--seconds", metavar="S", type=grammar.seconds, default=10.0, help="stop after S seconds (10)"
    )
    parser.add_argument(
        "--decode",
        metavar="SPEC",
        nargs="?",
        const="rgb8",
        help="decode fields, images as SPEC (rgb8); basic = no images",
    )
    parser.add_argument(
        "-m", "--map", metavar="CODE", help="Python over each sample, as in `wl map`: its result goes on"
    )
    grammar.add_fields(parser, 'make tuples of fields, "jpg;png cls"')
    parser.add_argument("--shuffle", metavar="N", type=grammar.count, default=0, help="shuffle in a buffer of N")
    parser.add_argument("-b", "--batchsize", metavar="N", type=grammar.count, default=0, help="make batches of N")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    grammar.add_processes(parser, unordered=False)
    grammar.add_progress(parser, json=False)


def run(options: argparse.Namespace) -> int:
    from webdataset.cli.flow import urls_of
    from webdataset.errors import EmptyDatasetError
    from webdataset.tools.inspect.speed import measure, measure_workers

    urls = urls_of(options.inputs)
    plan = _plan(options)
    if not options.quiet and not options.json and sys.stderr.isatty():
        sys.stderr.write(f"reading for {options.seconds:.0f} s at most...\r")
    speeds = [measure(urls, plan)]
    if not speeds[0].samples:
        hint = "the code of -m may have dropped them all" if options.map is not None else ""
        raise EmptyDatasetError("there is no sample to measure with", url=urls[0] if urls else None, hint=hint)
    if options.processes and urls != ["-"]:
        _check_workers(urls, options.processes)
        speeds.append(measure_workers(urls, plan, options.processes))
    if options.json:
        sys.stdout.write(json.dumps([speed.as_dict() for speed in speeds], indent=1) + "\n")
    else:
        for text in lines(speeds):
            sys.stdout.write(text + "\n")
    return 0


def lines(speeds: list[Any]) -> Iterator[str]:
    """What was measured, as text."""
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


def _plan(options: argparse.Namespace) -> Any:
    from webdataset.tools.inspect.speed import Plan

    function = None if options.map is None else _function(options.map, options.decode)
    return Plan(
        decode=options.decode,
        function=function,
        fields=options.fields or "",
        shuffle=options.shuffle,
        batchsize=options.batchsize,
        count=options.count,
        seconds=options.seconds,
        concatenated=options.concatenated,
    )


def _function(code: str, decode: str | None) -> Callable[[Any], Any]:
    """The user's code, whose results are what the stages behind it get."""
    from webdataset.cli.expressions import transformation
    from webdataset.tools.transform.mapping import applied, as_values

    # values that a stage before has decoded stay as they are
    return applied(transformation(code), "raw" if decode is not None else "rgb", as_values)


def _check_workers(urls: list[str], workers: int) -> None:
    if len(urls) < workers:
        sys.stderr.write(f"wl test: {len(urls)} shards for {workers} workers: some will have nothing to do\n")


def _wl_test(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--count", metavar="N", type=grammar.count, default=10, help="batches to read (10)")
    grammar.add_without_effect(parser, "--skip", why="what a stage gives first does not count anyway", metavar="N")
    parser.add_argument("--decode", metavar="SPEC", nargs="?", const="rgb8", help="decode fields, images as SPEC")
    parser.add_argument("--batchsize", metavar="N", type=grammar.count, default=64, help="samples in a batch (64)")
    parser.add_argument("--nbatches", metavar="N", dest="count", type=grammar.count, help="batches to read")
    parser.add_argument("--fields", metavar="SPEC", help="make tuples of fields")
    parser.add_argument("--processes", "-P", "-p", metavar="N", type=grammar.count, default=0, help="workers (0)")
    parser.add_argument("--shuffle", metavar="N", type=grammar.count, default=0, help="shuffle in a buffer of N")
    grammar.add_without_effect(parser, "--qsize", why="queues are as long as the loader makes them", metavar="N")
    grammar.add_without_effect(parser, "--size", why=grammar.NO_SIZE, metavar="N")


def _run_wl_test(options: argparse.Namespace) -> int:
    """It counted batches."""
    options.count *= max(options.batchsize, 1)
    return run(options)


OLD = {"wl-test": _wl_test}
OLD_RUN = {"wl-test": _run_wl_test}
