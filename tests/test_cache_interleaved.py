"""With the cache and without it the bytes are the same, whatever processes do, and in whatever order."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests_support import tar_bytes
from webdataset.cache import clear, entries, verify

SHARDS = [tar_bytes([(f"{n}-{i}.bin", bytes([65 + n, i]) * 900) for i in range(8)]) for n in range(3)]

# A process that opens, reads and closes as it is told. Its source gives out as many bytes as stand in a file.
READER = """
import os, sys, time
import webdataset as wds
from webdataset.cache import FileCache

folder, limit = sys.argv[1], int(sys.argv[2])

class Source:
    def __init__(self, path):
        self.path, self.file = path, open(path, "rb")

    def read1(self, size=-1):
        while self.file.tell() >= os.path.getsize(self.path + ".allowed"):
            if self.file.tell() == os.path.getsize(self.path):
                return b""
            time.sleep(0.001)
        return self.file.read(min(700, os.path.getsize(self.path + ".allowed") - self.file.tell()))

    def close(self):
        self.file.close()

wds.gopen_schemes["held"] = lambda url, mode, bufsize: Source(url[len("held:"):])
cache = FileCache(folder, cache_size=limit, streaming=True)
stream = None
for line in sys.stdin:
    command, argument = line.split()
    if command == "open":
        stream = cache.open("held:" + argument)["stream"]
        print(0, flush=True)
    elif command == "read":
        print(stream.read(int(argument)).hex() or "end", flush=True)
    else:
        stream.close()
        print(0, flush=True)
"""


class Reader:
    """A process, what it has open, and how far it has read."""

    def __init__(self, folder: str, limit: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", READER, folder, str(limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.shard: int | None = None
        self.position = 0

    def ask(self, command: str, argument: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command} {argument}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Interleaved(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.top = tempfile.mkdtemp()
        self.folder = os.path.join(self.top, "cache")
        self.limit = 2 * len(SHARDS[0])
        self.readers = [self.reader() for _ in range(3)]
        self.allowed = [0] * len(SHARDS)
        for number, data in enumerate(SHARDS):
            with open(self.path(number), "wb") as file:
                file.write(data)
            self.allow(number, 512)

    def reader(self) -> Reader:
        return Reader(self.folder, self.limit)

    def path(self, number: int) -> str:
        return os.path.join(self.top, f"{number}.tar")

    def allow(self, number: int, size: int) -> None:
        """The source may give out so many bytes; whoever fetches will get there."""
        if size > self.allowed[number]:
            self.allowed[number] = min(size, len(SHARDS[number]))
            with open(self.path(number) + ".allowed", "ab") as file:
                file.truncate(self.allowed[number])

    @rule(who=st.integers(0, 2), number=st.integers(0, len(SHARDS) - 1))
    def open(self, who: int, number: int) -> None:
        reader = self.readers[who]
        if reader.shard is None:
            assert reader.ask("open", self.path(number)) == "0"
            reader.shard, reader.position = number, 0

    @rule(who=st.integers(0, 2), size=st.sampled_from([1, 511, 1000, 4096, 100_000]))
    def read(self, who: int, size: int) -> None:
        reader = self.readers[who]
        if reader.shard is None:
            return
        data = SHARDS[reader.shard]
        self.allow(reader.shard, reader.position + size)
        expected = data[reader.position : reader.position + size]
        assert reader.ask("read", size) == (expected.hex() or "end")
        reader.position += len(expected)

    @rule(who=st.integers(0, 2))
    def close(self, who: int) -> None:
        reader = self.readers[who]
        if reader.shard is not None:
            assert reader.ask("close", 0) == "0"
            reader.shard = None

    @rule(who=st.integers(0, 2))
    def kill(self, who: int) -> None:
        self.readers[who].kill()
        self.readers[who] = self.reader()

    @rule()
    def clear(self) -> None:
        clear(self.folder)

    @rule(number=st.integers(0, 5), size=st.integers(0, 5000))
    @precondition(lambda self: os.path.isdir(self.folder))
    def cut_a_file_that_nobody_reads(self, number: int, size: int) -> None:
        names = sorted(name for name in os.listdir(self.folder) if not name.startswith("."))
        in_use = any(reader.shard is not None for reader in self.readers)
        if names and not in_use:
            with contextlib.suppress(FileNotFoundError):
                os.truncate(os.path.join(self.folder, names[number % len(names)]), size)

    def teardown(self) -> None:
        try:
            for who, reader in enumerate(self.readers):
                if reader.shard is not None:
                    self.read(who, 100_000)
                    self.read(who, 1)
                    self.close(who)
            complete = [entry for entry, problem in verify(self.folder) if problem is None and entry.complete]
            assert all(os.path.getsize(entry.path) == len(SHARDS[0]) for entry in complete)
            sizes = [entry.size for entry in entries(self.folder)]
            assert sum(sizes) <= self.limit + len(SHARDS[0])
        finally:
            for reader in self.readers:
                reader.kill()
            shutil.rmtree(self.top)


TestInterleaved = Interleaved.TestCase
TestInterleaved.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, phases=set(Phase) - {Phase.shrink}
)  # to shrink a failure takes longer than a test may
