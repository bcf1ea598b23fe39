"""Where does the time go? `./run profile SCENARIO [--quick] [--lines 25]`.

Runs one scenario of this package in this process, under Python's profiler, and lists the functions that take most of
the CPU time themselves.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import time
from typing import Any

import compare
import data
from measure import TAKEN

HERE = os.path.dirname(os.path.realpath(__file__))


def main() -> int:
    scenarios = {
        name: one for name, one in compare.SCENARIOS.items() if one.kind in {"train", "rgb", "raw", "shuffled"}
    }
    parser = argparse.ArgumentParser(prog="./run profile", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("scenario", choices=[name for name, one in scenarios.items() if not one.http])
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--tiny", action="store_true", help="a few samples")
    parser.add_argument("--lines", type=int, default=25, help="how many functions to list (25)")
    options = parser.parse_args()
    scenario = scenarios[options.scenario]
    part = 0.002 if options.tiny else 0.1 if options.quick else 1.0
    shards = data.make(os.path.join(HERE, ".data"), part, generated=options.tiny)[scenario.data]
    items, found = made(scenario, shards), TAKEN[scenario.kind]()
    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    found.take(items)
    profiler.disable()
    figures: Any = pstats.Stats(profiler, stream=sys.stdout)
    taken = figures.total_tt / found.samples * 1e6
    print(f"{found.samples} samples, {taken:,.1f} us of CPU time each, with the profiler's own")
    figures.strip_dirs().sort_stats("tottime").print_stats(options.lines)
    return 0


def made(scenario: Any, shards: list[str]) -> Any:
    """What gives the samples, without workers: a profiler sees only its own process."""
    from peers import webloader
    from peers.case import Case

    case = Case(scenario.data, compare.FIELDS[scenario.data], shards, "", workers=0)
    return iter(getattr(webloader, scenario.kind)(case))


if __name__ == "__main__":
    sys.exit(main())
