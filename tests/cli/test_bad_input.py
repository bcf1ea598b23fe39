"""What a stranger types and what lies on strange disks: one line that names place and cure, and the right exit code."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_support import without_summary
from tests_support import tar_bytes

FILES = [(f"{i:03d}.{field}", b"%d" % i if field == "cls" else b"text") for i in range(100) for field in ("cls", "txt")]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with good and bad shards."""
    monkeypatch.chdir(tmp_path)
    whole = tar_bytes(FILES)
    shards = {
        "a.tar": whole,
        "a.tar.gz": gzip.compress(whole),
        "cut.tar": whole[:50_300],
        "zero.tar": b"",
        "empty.tar": bytes(10240),
        "picture.tar": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(1000),
        "strange.tar": tar_bytes([("a.cls", b"one"), ("a.txt", b""), ("b.txt", b"2")]),
    }
    for name, data in shards.items():
        Path(name).write_bytes(data)
    Path("folder").mkdir()
    Path("fails.py").write_text("def transform(sample):\n    raise ValueError('of my own')\n")
    return tmp_path


READING = {
    "ls": "ls {}",
    "info": "info {}",
    "show": "show -c 1000 {}",
    "cat": "cat {} cls 99999",
    "extract": "extract -f cls {}",
    "dump": "dump -o folder/{{key}} {}",
    "test": "test -t 0.1 {}",
    "lint": "lint {}",
    "concat": "concat {} -o out.tar",
    "shuffle": "shuffle {} -o out.tar",
    "sort": "sort {} -o out.tar",
    "split": "split {} -o out-%d.tar",
    "map": "map -c pass {} -o out.tar",
    "xargs": "xargs -c true {} -o out.tar",
    "index": "index {}",
    "plan": "plan {}",
    "simdist": "simdist {}",
}
BAD = {
    "missing.tar": "no such",
    "cut.tar": "early",
    "zero.tar": "empty",
    "picture.tar": "JPEG",
    "folder": "directory",
}


@pytest.mark.parametrize("shard", BAD)
@pytest.mark.parametrize("command", READING)
def test_a_bad_shard_is_named_in_one_line(wl: Any, command: str, shard: str) -> None:
    ended = wl(*READING[command].format(shard).split())
    assert ended.code == 1
    told = ended.out.decode() if command == "lint" else ended.err
    (line,) = [line for line in told.splitlines() if BAD[shard] in line]
    assert shard in line
    assert not [name for name in os.listdir() if name.startswith("out")]


LINES = [
    # what was asked for cannot be done: 2
    ("concat --slice x a.tar -o o.tar", 2, "'x'"),
    ("concat --rekey abc a.tar -o o.tar", 2, "'abc'"),
    ("concat -f : a.tar -o o.tar", 2, "':'"),
    ("concat a.tar -o o-%d-%d.tar", 2, "%06d"),
    ("concat a.tar -o nosuch://x/y.tar", 2, "'nosuch'"),
    ("concat a{.tar -o o.tar", 2, "'{'"),
    ("split --maxcount 0 a.tar -o o-%d.tar", 2, "maxcount"),
    ("split --maxshards 0 a.tar -o o-%d.tar", 2, "maxshards"),
    ("split --maxsize 5X a.tar -o o-%d.tar", 2, "'5X'"),
    ("split --maxsize 0 a.tar -o o-%d.tar", 2, "size"),
    ("info -d nosuch a.tar", 2, "rgb8"),
    ("plan --ranks 0 a.tar", 2, "'0'"),
    ("plan --shuffle-bytes much a.tar", 2, "'much'"),
    ("index --format nosuch a.tar", 2, "energon"),
    ("test -t 0 a.tar", 2, "'0'"),
    ("test -t soon a.tar", 2, "'soon'"),
    # the data, or code over them: 1
    ("concat a.tar -o missing/o.tar", 1, "mkdir -p"),
    ("concat a.tar -o folder", 1, "[url folder]"),
    ("map -e [_,5] a.tar -o o.tar", 1, " int,"),
    ("map -l fails.py a.tar -o o.tar", 1, "ValueError: of my own [url a.tar, key 000]"),
    ("map -P 2 -l fails.py a.tar -o o.tar", 1, "ValueError: of my own [url a.tar, key 000]"),
    ("map -c raise(SystemExit) a.tar -o o.tar", 1, "SystemExit(None)"),
    ("map -P 2 -c raise(SystemExit(0)) a.tar -o o.tar", 1, "SystemExit(0)"),
    ("map -P 2 -c os._exit(0) a.tar -o o.tar", 1, "died"),
    ("cat -S cls>97 a.tar cls 2", 1, " 2 "),
    ("extract -f cls strange.tar", 1, "[url strange.tar, key a, field cls]"),
    ("extract -f clss a.tar", 1, "'cls'"),
]


@pytest.mark.parametrize(("line", "code", "told"), LINES, ids=[line for line, _, _ in LINES])
def test_what_cannot_be_done_is_said_in_one_line(wl: Any, line: str, code: int, told: str) -> None:
    ended = wl(*line.split(" "))
    assert (ended.code, len(ended.err.splitlines())) == (code, 1), ended.err
    assert told in ended.err
    assert "ValueError" not in ended.err or "of my own" in ended.err or "strange" in ended.err
    assert not Path("o.tar").exists()


@pytest.mark.parametrize(("code", "column"), [("cls >", 5), ("cls +* 1", 5), ("(cls", 0), ("cls\n  >", None)])
def test_a_syntax_error_is_shown_with_its_place(wl: Any, code: str, column: int | None) -> None:
    for words in (("concat", "-S", code), ("map", "-e", code), ("map", "-c", code), ("test", "-m", code)):
        ended = wl(*words, "a.tar")
        assert ended.code == 2
        assert "syntax error" in ended.err
        lines = ended.err.splitlines()
        assert lines[-1].strip() == "^"
        if column is not None:
            assert lines[-2:] == [f"  {code}", " " * (2 + column) + "^"]


def test_a_warning_is_given_once(wl: Any) -> None:
    code = "import warnings; warnings.warn('of all'); cls < 1 and warnings.warn('of one')"
    ended = wl("map", "-c", code, "a.tar", "-o", os.devnull)
    assert (ended.code, ended.told) == (0, "wl map: warning: of all\nwl map: warning: of one\n")


def test_a_compressed_archive_is_not_missed_its_end_marker(wl: Any) -> None:
    Path("noise").write_bytes(os.urandom(5000))
    subprocess.run(["tar", "-czf", "noise.tar.gz", "noise"], check=True)
    ended = wl("cp", "noise.tar.gz", "copy.tar")
    assert (ended.code, ended.told) == (0, "copy.tar: 5.2 kB\n")


def test_a_limit_takes_a_unit(wl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "1k")
    assert wl("concat", "a.tar", "-o", os.devnull).code == 0
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "lots")
    assert "WDS_MAX_MEMBER_BYTES: " in wl("concat", "-c", 1, "a.tar").err


def test_names_that_begin_with_a_dash_stand_behind_two(wl: Any, names: Any) -> None:
    Path("-odd.tar").write_bytes(Path("a.tar").read_bytes())
    assert wl("ls", "-c", 1, "--", "-odd.tar").out == b"000.cls\n"
    assert wl("cat", "--", "-odd.tar", "cls", "3").out == b"3"
    assert wl("concat", "-o", "-out.tar", "--", "-odd.tar", "a.tar").code == 2  # -o wants a name, too
    assert wl("concat", "-o", "./-out.tar", "--", "-odd.tar", "a.tar").code == 0
    assert names("./-out.tar") == names("a.tar") * 2
    assert wl.old("tarcat", "-c", 1, "--", "-odd.tar").code == 0
    without = wl("ls", "-odd.tar")
    assert (without.code, " -odd.tar" in without.err) == (2, True)


ODD = [
    "with space/a b", "quo'te\"s/x", "new\nline", "-rf", "-/-", "ünï", "tab\there", "$HOME`id`", "back\\slash",
    "--help", "%s%d", "{0}", "*", "\udcff\udcfe",
]  # fmt: skip


def test_odd_names_go_through_every_command(wl: Any, members: Any) -> None:
    Path("odd.tar").write_bytes(tar_bytes([(f"{key}.txt", key.encode("utf-8", "surrogateescape")) for key in ODD]))
    whole = members("odd.tar")
    for line in (
        "concat -s 0 odd.tar",
        "sort odd.tar",
        "shuffle odd.tar",
        "map -c pass odd.tar",
        "xargs -c true odd.tar",
    ):
        assert members(wl(*line.split()).out) == whole, line
    for key in ODD:
        ended = wl("cat", f"--key={key}", "odd.tar", "txt")
        assert ended.out == key.encode("utf-8", "surrogateescape")
    assert wl("dump", "-o", "folder/{key}", "odd.tar").code == 0
    found = {path.relative_to("folder") for path in Path("folder").rglob("*.txt")}
    assert found == {Path(f"{key}.txt") for key in ODD}
    assert len(wl("ls", "odd.tar").out.splitlines()) == len(ODD)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_that_the_terminal_cannot_show(encoding: str) -> None:
    Path("odd.tar").write_bytes(tar_bytes([("ünï€.txt", b"1"), ("\udcff.txt", b"2")]))
    Path("\udcfe.tar").write_bytes(Path("odd.tar").read_bytes())
    environment = os.environ | {"PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    for line in (
        "ls odd.tar",
        "ls --url --samples \udcfe.tar",
        "show odd.tar",
        "info odd.tar",
        "lint odd.tar",
        "dump -o folder/{key} --force odd.tar",
    ):
        words = [sys.executable, "-m", "webdataset", *line.split()]
        ended = subprocess.run(words, capture_output=True, env=environment, check=False)
        assert b"Error" not in ended.stderr, line
        assert ended.returncode == (1 if line[:4] == "lint" else 0), ended.stderr


@pytest.fixture
def closing(here: Path) -> Any:
    """Runs a command line in a shell that closes streams; a.tar and the programs are there."""
    (here / "a.tar").write_bytes(tar_bytes([("a.txt", b"a"), ("b.txt", b"b")]))
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])

    def run(line: str) -> Any:
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env={**os.environ, "PATH": path})

    return run


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- <&-", ">&- <&- 2>&-"])
def test_a_closed_stream_does_not_matter_to_who_does_not_use_it(closing: Any, names: Any, closed: str) -> None:
    done = closing(f"wl sort a.tar -o b.tar {closed}")
    assert (done.returncode, without_summary(done.stderr)) == (0, "")
    assert names("b.tar") == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    "line", ["wl ls a.tar >&-", "wl concat a.tar >&-", "wl concat - -o b.tar <&-", "wl --help >&-"]
)
def test_who_uses_a_closed_stream_is_told_so_in_one_line(closing: Any, here: Path, line: str) -> None:
    done = closing(line)
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1
    assert "closed" in done.stderr
    assert not (here / "b.tar").exists()
