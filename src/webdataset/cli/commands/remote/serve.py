"""Make batches here for a trainer on another machine: serve the pipeline that a program builds.

PROGRAM is program.py:dataset, or module:dataset: an exact pipeline, `WebDataset(..., exact=True)....batched(n)`, or a
function that returns one. A training program reads it with `wds.RemoteLoader(URL)`, in place of a WebLoader. Start it
on as many machines as you like: each makes a part of the batches, and if one ends the others make its part. With a
URL such as zpush://host:port any pipeline is sent, as a stream.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from argparse import SUPPRESS, Namespace
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.remote.producer import ProducerStatus

EXAMPLES = (
    (
        "wl serve program.py:dataset --bind tcp://0.0.0.0:7880 --keys serve.key",
        "let trainers with a key in; `wl keygen serve.key train.key` makes both",
    ),
    ("wl serve program.py:dataset -P 2 --bind tcp://127.0.0.1:7880", "two processes, at ports 7880 and 7881"),
)


def configure(parser: grammar.Parser) -> None:
    add = parser.add_argument
    add("program", metavar="PROGRAM", help="FILE.py:NAME or MODULE:NAME, a pipeline or a function that returns one")
    add("--bind", metavar="URL", default="tcp://127.0.0.1:7880", help="where to serve (tcp://127.0.0.1:7880)")
    add("--keys", metavar="FILE", help="a producer's keys; needed for addresses that other machines can reach")
    parser.switch("--insecure", help="no keys: whoever reaches the address gets the data")
    parser.number("-P", "--processes", type=grammar.positive, default=1, help="producers, at ports that follow (1)")
    parser.number("--threads", type=grammar.positive, help="threads of each that make batches (up to 4)")
    add("--ahead", metavar="BYTES", type=grammar.size, default=256 << 20, help="batches made in advance (256M)")
    add("-t", "--time", metavar="SECONDS", type=grammar.seconds, help="stop after so long")
    grammar.add_progress(parser)
    add("--child", action="store_true", help=SUPPRESS)


def run(options: Namespace) -> int:
    from webdataset.tools.serving import load_pipeline

    if options.processes > 1:
        return _run_processes(options)
    return _run_here(options, load_pipeline(options.program))


def _run_here(options: Namespace, pipeline: object) -> int:
    from contextlib import closing

    from webdataset.remote.addresses import is_stream
    from webdataset.remote.producer import Producer
    from webdataset.remote.serving import serve

    if is_stream(options.bind):
        serve(pipeline, options.bind, keys=options.keys, insecure=options.insecure)
        return 0
    how = {"keys": options.keys, "insecure": options.insecure, "threads": options.threads, "ahead": options.ahead}
    producer = Producer(pipeline, options.bind, **how)
    with closing(producer):
        if options.time:
            threading.Timer(options.time, producer.stop).start()
        display = _Display(options)
        display.bound(producer.address)
        producer.run(display.show)
        display.end()
    return 0


def _run_processes(options: Namespace) -> int:
    from contextlib import closing

    from webdataset.remote.addresses import check_allowed, checked
    from webdataset.remote.keys import PRODUCER, keys_of
    from webdataset.tools.serving import ProducerProcesses, load_pipeline, numbered_addresses

    check_allowed(checked(options.bind), keys_of(options.keys, PRODUCER), insecure=options.insecure)
    load_pipeline(options.program)  # so that a mistake is told once, and indices are made once
    commands = [_child(options, address) for address in numbered_addresses(options.bind, options.processes)]
    display = _Display(options)
    end = time.monotonic() + (options.time or float("inf"))
    with closing(ProducerProcesses(commands, display.bound)) as children:
        while time.monotonic() < end:
            time.sleep(min(1.0, max(end - time.monotonic(), 0)))
            if children.failed is not None:
                raise children.failed
            if (total := children.total()) is not None:
                display.show(total)
    display.end()
    return 0


def _child(options: Namespace, address: str) -> list[str]:
    words = [sys.executable, "-m", "webdataset", "serve", options.program, "--child", "--bind", address]
    words += ["--keys", options.keys] if options.keys else []
    words += ["--insecure"] if options.insecure else []
    words += ["--threads", str(options.threads)] if options.threads else []
    for name, value in options.storage or ():
        words += ["--storage", f"{name}={value}"]
    return [*words, "--ahead", str(options.ahead)]


class _Display:
    """Says what a producer does: on a line of a terminal, as lines of JSON, or to the process that has started it."""

    def __init__(self, options: Namespace) -> None:
        self._child, self._json = options.child, options.json
        self._line = sys.stderr.isatty() and not options.json
        self._shown = not options.quiet and (options.progress or options.json or self._line)
        self._quiet = options.quiet

    def bound(self, address: str) -> None:
        if self._child:
            self._tell({"bound": address})
        elif not self._quiet:
            self._clear()
            terminal.err(f"wl serve: serving at {address} (process {os.getpid()})\n")
            sys.stderr.flush()

    def show(self, status: ProducerStatus) -> None:
        if self._child:
            self._tell(status._asdict())
        elif self._shown:
            text = json.dumps(status._asdict()) if self._json else str(status)
            terminal.replace_line(text[:200]) if self._line else terminal.err(f"{text}\n")
            sys.stderr.flush()

    def end(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._line and self._shown:
            terminal.replace_line("")

    def _tell(self, message: dict[str, Any]) -> None:
        terminal.out(json.dumps(message) + "\n")
        sys.stdout.flush()
