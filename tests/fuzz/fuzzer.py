"""`./run fuzz [TARGET...] [--seconds N]`: mutated data against what reads it, under a memory limit.

Several targets get a process each, since data may end one.
"""

from __future__ import annotations

import argparse
import logging
import resource
import signal
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz.targets import TARGETS, Target

MEMORY = 4 << 30
CPU_SECONDS = 20
NUMBERS = [
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\xff" * 8,
    b"99999999999",
]


class TookTooLongError(AssertionError):
    """One piece of data kept the reader busy for too long."""


def mutated(examples: list[bytes]) -> st.SearchStrategy[bytes]:
    """Honest data with a few bytes changed, cut, doubled or exchanged; with repaired checksums now and then."""
    change = st.tuples(
        st.sampled_from(["set", "number", "cut", "drop", "double", "join", "insert"]),
        st.floats(0, 1),
        st.floats(0, 0.3),
        st.binary(min_size=1, max_size=4),
        st.sampled_from(NUMBERS),
        st.sampled_from(examples),
    )
    return st.builds(apply, st.sampled_from(examples), st.lists(change, max_size=6))


def apply(data: bytes, changes: list[tuple[str, float, float, bytes, bytes, bytes]]) -> bytes:
    """The data with these changes made to it."""
    for kind, where, length, few, number, other in changes:
        start = int(where * len(data))
        stop = start + int(length * len(data)) + 1
        if kind == "set":
            data = data[:start] + few + data[start + len(few) :]
        elif kind == "number":
            data = data[:start] + number + data[start + len(number) :]
        elif kind == "cut":
            data = data[:start]
        elif kind == "drop":
            data = data[:start] + data[stop:]
        elif kind == "double":
            data = data[:stop] + data[start:]
        elif kind == "join":
            data = data[:start] + other[start:]
        else:
            data = data[:start] + few + data[start:]
    return repaired(data)


def repaired(data: bytes) -> bytes:
    """With the right checksum where the data has one, or nothing behind the checksum would ever be reached."""
    if data.startswith(b"\x89WDX") and len(data) > 16:
        length = int.from_bytes(data[8:12], "little")
        return data[:12] + zlib.crc32(data[16 : 16 + length]).to_bytes(4, "little") + data[16:]
    if len(data) >= 512 and data[257:262] == b"ustar":
        checksum = sum(data[:148]) + 8 * 32 + sum(data[156:512])
        return data[:148] + b"%06o\0 " % checksum + data[156:]
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return with_checksums(data)
    return data


def with_checksums(png: bytes) -> bytes:
    """A PNG whose chunks have the checksums of what is in them now."""
    at, found = 8, bytearray(png)
    while at + 12 <= len(png):
        end = at + 8 + int.from_bytes(png[at : at + 4], "big")
        found[end : min(end + 4, len(png))] = zlib.crc32(png[at + 4 : end]).to_bytes(4, "big")[: max(len(png) - end, 0)]
        at = end + 4
    return bytes(found)


def fuzz(target: Target, *, examples: int, start: int) -> None:
    """That many pieces of data; the first that breaks the promise is an error, with the data in it."""

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated(target.examples()))
    def one(data: bytes) -> None:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            target.read(data)
        except target.errors as error:
            if "\n" in str(error):
                raise AssertionError("an error of several lines") from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    one()


def too_long(_number: int, _frame: FrameType | None) -> None:
    raise TookTooLongError(f"more than {CPU_SECONDS} s of CPU time")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{' '.join(TARGETS)}; without any, all of them")
    parser.add_argument("--seconds", type=float, default=60.0, help="per target; 60")
    parser.add_argument("--examples", type=int, help="this many pieces of data per target instead")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {' '.join(TARGETS)}")
    if len(options.targets) != 1:
        return in_processes(options.targets or list(TARGETS), options)
    (name,) = options.targets
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, too_long)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    rounds, end = 0, time.monotonic() + options.seconds
    while rounds == 0 or (options.examples is None and time.monotonic() < end):
        fuzz(TARGETS[name], examples=options.examples or 200, start=rounds)
        rounds += 1
    sys.stdout.write(f"{name}: {rounds * (options.examples or 200)} pieces of data, no finding\n")
    return 0


def in_processes(names: list[str], options: argparse.Namespace) -> int:
    """Each target by itself, one after the other; what died of its data says so here."""
    length = ["--examples", str(options.examples)] if options.examples else ["--seconds", str(options.seconds)]
    found = 0
    for name in names:
        status = subprocess.run([sys.executable, __file__, name, *length], check=False).returncode
        if status:
            sys.stdout.write(f"{name}: a finding (exit status {status})\n")
            found = 1
    return found


if __name__ == "__main__":
    sys.exit(main())
