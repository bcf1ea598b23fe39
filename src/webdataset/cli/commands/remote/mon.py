"""Show how fast producers make batches: rates, who reads, and what is ready; or how fast a stream comes."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from itertools import islice
from typing import Any

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl mon -c 2 tcp://cpu-{0..3}:7880 --keys train.key", "two reports of four producers, a second apart"),
    ("wl mon -c 1 --json tcp://cpu-{0..3}:7880 --keys train.key", "one report, for programs"),
)


def configure(parser: grammar.Parser) -> None:
    add = parser.add_argument
    grammar.add_producers(parser)
    parser.number("-c", "--count", help="stop after N reports (never)")
    add("-i", "--interval", metavar="SECONDS", type=grammar.seconds, default=1.0, help="time between reports (1)")
    parser.switch("--json", help="print JSON Lines")


def run(options: Namespace) -> int:
    from webdataset.remote.addresses import is_stream

    (_watch_streams if any(map(is_stream, options.inputs)) else _watch_producers)(options)
    return 0


def _watch_producers(options: Namespace) -> None:
    from webdataset.tools.serving import refuse_silence, watched

    reports = watched(options.inputs, keys=options.keys, insecure=options.insecure, every=options.interval)
    for told in islice(reports, options.count):
        refuse_silence(told)
        for address, status in told:
            _print(
                options, {"url": address, **(status._asdict() if status else {})}, f"{address}  {status or 'silent'}"
            )


def _watch_streams(options: Namespace) -> None:
    from webdataset.remote.streams import Connection

    seen, reports = time.monotonic(), 0
    with Connection(options.inputs, keys=options.keys, insecure=options.insecure) as connection:
        for _ in connection:
            if time.monotonic() - seen < options.interval:
                continue
            seen, reports = time.monotonic(), reports + 1
            stats = connection.stats
            rates = {"rate": stats.recent_rate(), "byte_rate": stats.recent_throughput(), "lost": connection.lost}
            _print(options, rates, f"{stats.summary()}, {connection.lost} lost")
            if options.count is not None and reports >= options.count:
                return
        _print(options, {"batches": connection.stats.count}, connection.stats.summary())


def _print(options: Namespace, facts: dict[str, Any], text: str) -> None:
    terminal.out((json.dumps(facts) if options.json else text) + "\n")
    sys.stdout.flush()
