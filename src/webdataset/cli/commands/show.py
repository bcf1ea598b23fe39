"""Show samples in the terminal, with images if it can display them, or as an HTML page."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.pipeline import DataPipeline

EXAMPLES = (
    ("wl show -c 2 train.tar", "two samples, one line per field, and images if the terminal can show them"),
    ("wl show -c 100 --html page.html s3://bucket/train.tar", "a page for a browser, in one file"),
    ("wl show -c 8 tcp://cpu-0:7880 --keys train.key", "the batches that a producer serves, sample by sample"),
)
PROTOCOLS = ("auto", "kitty", "iterm", "sixel", "blocks", "text")


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser, 'fields to show: "jpg;png cls" (default: all)')
    parser.add_argument("--html", metavar="FILE", help="write an HTML page with images, sound, text; - for stdout")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="auto", help="how to draw images (auto)")
    parser.number("--width", help="width of images in columns (60)")
    parser.add_argument("--keys", metavar="FILE", help="for batches of a producer: a trainer's keys")
    parser.switch("--insecure", help="no keys, although the producer is another machine")
    parser.switch("--batches", help="a stream, zsub://host:port, carries batches of arrays rather than samples")
    parser.set_defaults(count=10)


def run(options: Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, reading
    from webdataset.cli.progress import ProgressDisplay

    dataset = _of_batches(options) if _is_of_producers(options) else reading(options)
    progress = ProgressDisplay.of(options)
    report = Report()
    with report.in_force():
        samples = _with_fields(progress(dataset), options)
    if options.html:
        _write_page(samples, options)
    else:
        _print(samples, options, progress)
    report.add(dataset.stats())
    return finished(options, progress, report.as_dict())


def _is_of_producers(options: Namespace) -> bool:
    """Whether batches of a producer are to be shown; streams between commands carry samples."""
    from webdataset.remote.addresses import is_remote, is_stream

    streams = getattr(options, "batches", False)
    return any(is_remote(url) and (streams or not is_stream(url)) for url in options.inputs)


def _of_batches(options: Namespace) -> DataPipeline:
    """Return the samples of a producer's batches."""
    from webdataset.cli.flow import chosen
    from webdataset.pipeline import DataPipeline
    from webdataset.tools.inspect.batches import remote_batches, samples_of

    options.urls = list(options.inputs)
    batches = remote_batches(options.urls, None, keys=options.keys, insecure=options.insecure, patience=30.0)
    samples = (sample for number, batch in enumerate(batches) for sample in samples_of(batch, number))
    return chosen(DataPipeline(lambda: samples), options)


def _with_fields(samples: Iterator[Any], options: Namespace) -> Iterator[Any]:
    from webdataset.cli.flow import handler_of
    from webdataset.filters.fields import parse_field_spec
    from webdataset.handlers import handled
    from webdataset.tools.transform.choosing import field_named

    if getattr(options, "each", 1) > 1:
        samples = islice(samples, 0, None, options.each)
    if not options.fields:
        return samples
    specs = parse_field_spec(options.fields)

    def chosen(sample: dict[str, Any]) -> dict[str, Any]:
        names = [field_named(sample, alternatives) for alternatives in specs]
        return {name: sample[name] for name in ("__key__", *names)}

    return handled(samples, chosen, handler_of(options))


def _print(samples: Iterator[Any], options: Namespace, progress: ProgressDisplay) -> None:
    from webdataset.tools.inspect.showing import terminal_lines, text_lines, value_lines

    protocol = terminal.protocol() if options.protocol == "auto" else options.protocol
    width = options.width or min(60, terminal.columns())
    normalized = getattr(options, "normalize", False)
    text = value_lines if hasattr(options, "summarized") else text_lines  # as tarshow shows them
    shown = None if getattr(options, "silent", False) else text
    for sample in samples:
        progress.clear()
        for line in terminal_lines(sample, protocol, columns=width, text=shown, normalized=normalized):
            terminal.draw(line + "\n")
        terminal.out("\n")
        _pause(options)


def _pause(options: Namespace) -> None:
    """Wait as tarshow's --delay and --use-keyboard say."""
    if getattr(options, "delay", 0.0) or getattr(options, "use_keyboard", False):
        sys.stdout.flush()
    if getattr(options, "delay", 0.0):
        time.sleep(options.delay)
    if getattr(options, "use_keyboard", False) and sys.stdin.isatty():
        sys.stdin.readline()


def _write_page(samples: Iterator[Any], options: Namespace) -> None:
    from webdataset.base.redact import redacted
    from webdataset.cli.outputs import writing
    from webdataset.tools.inspect.pages import page

    title = redacted(" ".join(options.urls[:3]) + (" ..." if len(options.urls) > 3 else ""))
    with writing(options.html) as out:
        for piece in page(samples, title=title):
            out.write(piece)
