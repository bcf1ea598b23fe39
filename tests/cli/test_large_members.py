"""Commands on a shard with a member that does not fit into memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests_support import sparse_tar

BIG = bytes(range(256)) * 200
FILES = [("a.bin", BIG), ("a.cls", b"1"), ("b.bin", b"small"), ("b.cls", b"2")]


@pytest.fixture
def shard(make_shard: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """a.tar here, with a member of 51200 bytes where 10000 are allowed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "10000")
    return make_shard("a.tar", files=FILES)


def test_listing_and_indexing(wl: Any, shard: str) -> None:
    assert wl("ls", shard).out == b"a.bin\na.cls\nb.bin\nb.cls\n"
    assert wl("ls", "--samples", shard).out == b"a\t51201\tbin cls\nb\t6\tbin cls\n"
    assert wl("index", "-q", shard).code == 0
    assert wl("index", "--check", shard).code == 0


def test_info_tells_its_size(wl: Any, shard: str) -> None:
    told = json.loads(wl("info", "--json", shard).out)["fields"]
    assert told["bin"]["types"]["text"] == 1
    assert sorted(told["bin"]["types"].values()) == [1, 1]
    assert told["cls"]["range"] == [1.0, 2.0]
    assert "51.2 kB" in wl("info", shard).out.decode()


def test_lint_finds_it(wl: Any, shard: str) -> None:
    ended = wl("lint", shard)
    assert ended.code == 1
    assert b"too-large" in ended.out
    assert b"51.2 kB" in ended.out
    assert wl("lint", "--ignore", "too-large", shard).code == 0


@pytest.mark.parametrize("source", ["a.tar", "pipe:cat a.tar", "a.tar.gz"])
def test_concat_and_split_copy_it(wl: Any, shard: str, members: Any, source: str) -> None:
    subprocess.run("gzip -k a.tar", shell=True, check=True)
    assert wl("concat", source, "-o", "joined.tar").code == 0
    assert members("joined.tar") == members(shard)
    assert members(wl("concat", "-c", 1, source).out) == {("a.bin", BIG): 1, ("a.cls", b"1"): 1}
    assert members(wl("concat", "-f", "cls", source).out) == {("a.cls", b"1"): 1, ("b.cls", b"2"): 1}
    assert members(wl("concat", "-S", "cls == 1", "-f", "big:bin", source).out) == {("a.big", BIG): 1}
    assert wl("concat", source, "-o", "packed.tar.gz", "--rekey", "k%d").code == 0
    unpacked = subprocess.run(["tar", "-xzOf", "packed.tar.gz", "k0.bin"], capture_output=True, check=True).stdout
    assert unpacked == BIG
    assert wl("split", "--maxcount", 1, source, "-o", "part-%d.tar").code == 0
    assert members("part-0.tar") + members("part-1.tar") == members(shard)
    assert wl.old("tarsplit", "-s", "1e4", "-o", "old", source).code == 0
    assert members("old-000000.tar") + members("old-000001.tar") == members(shard)


def test_cp_copies_it(wl: Any, shard: str) -> None:
    assert wl("cp", shard, "copy.tar").code == 0
    assert Path("copy.tar").read_bytes() == Path(shard).read_bytes()


@pytest.mark.parametrize("source", ["a.tar", "pipe:cat a.tar"])
def test_one_field_and_files(wl: Any, shard: str, source: str) -> None:
    assert wl("cat", source, "bin").out == BIG
    assert wl("cat", source, "cls", 1).out == b"2"
    assert wl("cat", "-k", "b", source, "bin").out == b"small"
    assert wl("cat", "-S", "cls == 1", source, "bin", "-o", "out.bin").code == 0
    assert Path("out.bin").read_bytes() == BIG
    assert wl("dump", "-o", "d-{key}", "--force", source).code == 0
    assert Path("d-a.bin").read_bytes() == BIG
    assert wl("dump", "-f", "cls", "-o", "e-{key}", "--force", source).code == 0
    assert wl("extract", "-f", "cls", source).out == b"__key__\tcls\na\t1\nb\t2\n"


MEMORY = [
    ("extract", "-f", "bin"),
    ("map", "-c", "cls += 1"),
    ("xargs", "-c", "true"),
    ("sort",),
    ("shuffle",),
    ("show",),
    ("concat", "-S", "len(bin) > 3"),
]


@pytest.mark.parametrize("words", MEMORY, ids=[words[0] for words in MEMORY])
def test_what_needs_it_in_memory_says_so_in_one_line(wl: Any, shard: str, words: tuple[str, ...]) -> None:
    ended = wl(*words, shard)
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    for part in ("a.bin", "51200 ", "10000 ", "WDS_MAX_MEMBER_BYTES=51200", "a.tar"):
        assert part in line


def test_ten_gigabytes_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What need not read the member is done at once; all within 300 MB of address space for data."""
    monkeypatch.chdir(tmp_path)
    sparse_tar("big.tar", [("a.bin", 10 << 30), ("a.cls", b"1"), ("b.bin", b"small"), ("b.cls", b"2")])
    wl = f"ulimit -d 300000; {sys.executable} -m webdataset"
    lines = {
        "ls big.tar": "a.bin\na.cls\nb.bin\nb.cls\n",
        "ls --samples big.tar": "a\t10737418241\tbin cls\nb\t6\tbin cls\n",
        "extract -f cls big.tar": "__key__\tcls\na\t1\nb\t2\n",
        "cat big.tar cls 1": "2",
        "cat big.tar bin | head -c 10000000 | wc -c": "10000000\n",
        "concat -f cls big.tar | tar -tf -": "a.cls\nb.cls\n",
        "concat -s 1 big.tar | tar -tf -": "b.bin\nb.cls\n",
        "index -q big.tar && echo done": "done\n",
        "info --nohist big.tar | head -1": "2 samples in 1 shard, 10.7 GB\n",
        "dump -s 1 big.tar": "out-000000.bin\nout-000000.cls\n",
        "lint --ignore too-large big.tar && echo done": "done\n",
    }
    for line, expected in lines.items():
        ended = subprocess.run(["bash", "-c", f"{wl} {line}"], capture_output=True, text=True, check=False, timeout=60)
        assert (ended.stdout, ended.returncode) == (expected, 0), f"{line}: {ended.stderr}"
