"""Old programs that change samples: every flag does what it did."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shard(make_shard: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """a.tar here, with the samples 000000 to 000004."""
    monkeypatch.chdir(tmp_path)
    make_shard("a.tar", 5)
    return "a.tar"


def keys(archive: Any, names: Any) -> list[str]:
    """The keys of an archive, in order."""
    return list(dict.fromkeys(name.partition(".")[0] for name in names(archive)))


ALL = [f"{i:06d}" for i in range(5)]


def test_tarpcat_without_output(wl: Any, shard: str) -> None:
    ended = wl.old("tarpcat", "--dummy", "-v", shard)
    assert (ended.code, ended.out) == (0, b"")
    assert "5 samples" in ended.err


def test_progress_every_so_many_samples(wl: Any, shard: str) -> None:
    for line in ("tarp cat -L 2 -o out.tar", "tarsort -r 2 -o out.tar", "wl-map -e 2 -c pass -o out.tar"):
        told = wl.old(*line.split(), shard).err
        assert len(re.findall(r"(?m)%  [24] samples  ", told)) == 2, told


def test_tarsort_keeps_the_last_of_equal_keys_with_update(wl: Any, make_shard: Any, members: Any, shard: str) -> None:
    files = [
        ("a.txt", b"old"),
        ("a.cls", b"1"),
        ("b.txt", b"only"),
        ("b.cls", b"2"),
        ("c.txt", b"new"),
        ("c.cls", b"1"),
    ]
    path = make_shard("b.tar", files=files)
    assert {name for name, _ in members(wl.old("tarsort", "-s", "cls", "--update", path).out)} == {
        "c.txt", "c.cls", "b.txt", "b.cls",
    }  # fmt: skip
    assert wl.old("tarsort", "-k", "cls", path).code == 2


def test_tarproc_keeps_what_commands_print(wl: Any, shard: str, members: Any) -> None:
    said = "echo it is $(cat sample.cls)"
    out = wl.old("tarproc", "-c", said, "--add-log", "log", "--count", 1, shard).out
    assert members(out)["000000.log", b"it is 0\n"] == 1
    ended = wl.old("tarproc", "-c", said, "-O", "said.txt", "-o", os.devnull, shard)
    assert "it is" not in ended.err
    assert sorted(Path("said.txt").read_text().splitlines()) == [f"it is {i}" for i in range(5)]
    assert wl.old("tarproc", "-c", said, "-O", "missing/said.txt", shard).code == 2
    assert "it is" not in wl.old("tarproc", "-q", "-c", said, shard).err


def test_tarproc_modes(wl: Any, shard: str) -> None:
    two = ("--count", 2, "-c", "echo a; echo $(cat sample.cls)", shard)
    assert wl.old("tarproc", "--mode", "lines", *two).out == b"000000\ta 0\n000001\ta 1\n"
    assert wl.old("tarproc", "--mode", "pages", *two).out == b"a\n0\n\fa\n1\n\f"
    assert wl.old("tarproc", "--mode", "keys", *two).out == b"000000\n000001\n"
    assert wl.old("tarproc", "--mode", "words", *two).code == 2


def test_tarproc_keeps_its_folders(wl: Any, shard: str) -> None:
    for flag in ("--keepdir", "--debug"):
        ended = wl.old("tarproc", flag, "-w", f"kept{flag}", "-c", "cp sample.cls sample.copy", "-o", "out.tar", shard)
        assert ended.code == 0
        assert len(list(Path(f"kept{flag}").rglob("sample.copy"))) == 5


def test_scripts_in_files(wl: Any, shard: str, members: Any) -> None:
    Path("script").write_text("tr a-z A-Z < sample.txt > sample.up\n")
    for line in ("tarproc -s script", "wl-xargs -S script"):
        assert members(wl.old(*line.split(), shard).out)["000003.up", b"TXT3"] == 1
    assert wl.old("tarproc", "-s", "missing", shard).code == 2


def test_wl_xargs_includes_and_excludes(wl: Any, shard: str, names: Any) -> None:
    makes = "cp sample.cls sample.png; cp sample.cls sample.tmp"
    assert names(wl.old("wl-xargs", "--count", 1, "-I", "png|txt", "-c", makes, shard).out) == [
        "000000.png",
        "000000.txt",
    ]
    assert names(wl.old("wl-xargs", "--count", 1, "-E", r"\.tmp$", "-c", makes, shard).out) == [
        "000000.cls", "000000.png", "000000.txt",
    ]  # fmt: skip
    ended = wl.old("wl-xargs", "-I", "(", "-c", makes, shard)
    assert (ended.code, "'('" in ended.err) == (2, True)


def test_wl_xargs_fields_that_are_missing(wl: Any, shard: str, names: Any) -> None:
    assert wl.old("wl-xargs", "-f", "cls,jpg", "-F", "ignore", "-c", "true", shard).code == 0
    assert names(wl.old("wl-xargs", "-f", "cls,jpg", "-F", "ignore", "-c", "true", shard).out) == [
        f"{k}.cls" for k in ALL
    ]
    assert wl.old("wl-xargs", "-f", "cls,jpg", "-e", "abort", "-c", "true", shard).code == 1
    out = wl.old("wl-xargs", "--count", 1, "-s", "-", "-b", "it", "-c", "cp it.cls itX.cls", shard).out
    assert keys(out, names) == ["000000", "000000-X"]


def test_wl_map_shows_the_help_of_a_function(wl: Any, shard: str) -> None:
    Path("code.py").write_text('def transform(sample):\n    """Halve it."""\n    return sample\n')
    assert wl.old("wl-map", "-H", "-l", "code.py").out == b"transform(sample)\n\nHalve it.\n"
    assert wl.old("wl-map", "-H", "-c", "pass").code == 2
    assert wl.old("wl-map", "-L", "x = 1", shard).code == 2
    assert wl.old("wl-map", "-L", "def (", shard).code == 2
    assert wl.old("wl-map", "-P", "nothing_like_it", shard).code == 2
    assert wl.old("wl-map", "-P", "[1]", shard).code == 2
    assert wl.old("wl-map", "-P", "wds.map(1)", "--pipeline", "wds.map(2)", shard).code == 2
    assert wl.old("wl-map", "--format", "raw", "-c", "assert type(cls) is bytes", shard).code == 0
    assert wl.old("wl-map", "-P", "wds.to_tuple('cls')", shard).code == 1
