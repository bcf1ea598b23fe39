"""Every flag of the old programs: it does what it did, or says that it has nothing left to do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webdataset.cli.old.programs import PROGRAMS

FLAGS = {
    "tarcat": "-v -T --filelist -b --braceexpand -s --skip -c --count -o --output --output-mode --shuffle --eof "
    "--nodata",
    "tarpcat": "-v -T --filelist -b --braceexpand -c --count -s --shuffle -p --workers -o --output --dummy",
    "tarsplit": "-n --num-samples -s --max-size -v -C --command -o --output -O --open -z --compress --start "
    "--maxshards --nodelete",
    "tarproc": "-v --debug -O --command-output -q -c --command -s --script -w --working_dir -b --base -S --subdirs -p "
    "--parallel -e --error-handling --interpreter --count --add-log -o --output --mode --direct-output --keepdir",
    "tarshow": "-f --field -c --count -N -C -d --silent --verbatim-keys --use-keyboard",
    "tarsort": "-k -s --sortkey -S --sorttype -r --report -t -o --output --update --keep --commit",
    "tar2json": "-k --keys -a -f -v --nokey",
    "lines2tar": "-k -s -v --keyformat",
    "tar2tsv": "-f -c --nokey --noheader",
    "tarfirst": "-S -v -f",
    "tarcreate": "-f -k -C -o",
    "tarmix": "-v -c -o --output --output-mode --skip --shuffle --eof",
    "tarp cat": "-v -f --field -o --outputs -s --shuffle -E --noeof -L --logging -m --mix -l --load --maxerr "
    "--shardslice --slice -R --rekey",
    "tarp create": "-v -o --output --count",
    "tarp proc": "-v -f -o --slice -c -m --shell",
    "tarp sort": "-v -f -o -s --sortfield --slice --tmpdir --keepdb --rekey",
    "tarp split": "-v -c --count -s --size -o --output -p --post --slice",
    "kujob": "-s",
    "wl-map": "-H -C --precode -c --code -F --format -P --pipeline -l --load -L -e --every -p --parallel -O --ordered "
    "-o --only --nokeycheck",
    "wl-xargs": "-v -q -c -S --script -w -b -o -f -F -P -p --parallel -e -E -I -s --count --interpreter",
    "wl-cat": "--size --shuffle -S -v",
    "wl-extract": "-f -c -s -S -d -F -P",
    "wl-dump": "--batch-size -o --shuffle -f -c -s -S -d",
    "wl-info": "-c -d --size",
    "wl-test": "-c --skip --decode --batchsize --nbatches --fields --size --processes --qsize --shuffle",
    "wl-show": "-e -f -s --shuffle",
}
"""The flags that each program had."""


SAME = {"tarcats": "tarcat", "tarscat": "tarcat"}


@pytest.mark.parametrize("program", FLAGS)
def test_every_flag_is_known(wl: Any, program: str) -> None:
    shown = wl.old(*program.split(), "--help").out.decode()
    options = shown.split("options:", 1)[1]
    known = set(re.findall(r"(?<![\w-])(--?[A-Za-z][\w-]*)", options))
    assert set(FLAGS[program].split()) <= known


def test_no_program_is_missing() -> None:
    assert set(FLAGS) | set(SAME) == set(PROGRAMS)


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


KEYS: list[tuple[str, list[str]]] = [
    ("tarcat -s 1 -c 3 a.tar", ALL[1:3]),
    ("tarcat --skip 1 --count 3 a.tar", ALL[1:3]),
    ("tarcat a.tar#1,2 a.tar#4,9", [*ALL[1:3], ALL[4]]),
    ("tarcat -b {a,a}.tar#0,1", ALL[:2]),
    ("tarcat -T list.txt", ALL),
    ("tarcat --nodata a.tar", ALL),
    ("tarpcat -p 2 -s 10 -c 2 a.tar", []),
    ("tarsort -k __key__ -s cls -S int a.tar", ALL),
    ("tarsort -t ./here.db --update a.tar a.tar", ALL),
    ("tarsort --sorttype float --sortkey cls --report 2 a.tar", ALL),
    ("tarproc --count 2 -c true a.tar", ALL[:2]),
    ("tarproc --count 1,3 -c true a.tar", ALL[1:3]),
    ("wl-xargs --count (1,3) -c true a.tar", ALL[1:3]),
    ("tarproc -e skip -c 'grep -v 2 sample.cls' a.tar", [ALL[0], ALL[1], ALL[3], ALL[4]]),
    ("tarproc -e ignore -c 'grep -v 2 sample.cls' a.tar", ALL),
    ("tarproc -b it -c 'test -f it.cls' a.tar", ALL),
    ("tarproc --interpreter 'sh -e' -c 'false; true' a.tar", []),
    ("tarproc -w __{pid}__ -p 2 -c true a.tar", ALL),
    ("tarproc --direct-output -S -c 'mkdir x; cp sample.cls x; echo k-$(cat sample.cls) > x/sample.__key__' a.tar",
     [f"k-{i}" for i in range(5)]),
    ("wl-map -P 2 -O --nokeycheck -c 'pass' a.tar", ALL),
    ("wl-map -p 2 --only 3 -C 'n = 1' -c '_[\"cls\"] += n' a.tar", ALL[:3]),
    ("wl-map -P '[wds.slice(1, 3)]' a.tar", ALL[1:3]),
    ("wl-map --pipeline 'wds.select(lambda s: s[\"cls\"] > 3)' a.tar", ALL[4:]),
    ("wl-map -L 'def transform(s): return s if s[\"cls\"] > 2 else None' a.tar", ALL[3:]),
    ("tarp cat --slice 1:4:2 a.tar -o -", ALL[1:4:2]),
    ("tarp cat --shardslice 1: missing.tar a.tar -o -", ALL),
    ("tarp cat --maxerr 1 missing.tar a.tar -o -", ALL),
    ("tarp cat -R # -m 2 -l list.txt -o -", [f"{i:09d}" for i in range(5)]),
    ("tarp proc --slice 1:3 --shell sh -c true a.tar -o -", ALL[1:3]),
    ("tarp sort --slice 1:3 -s cls --tmpdir . a.tar -o -", ALL[1:3]),
    ("tarp sort --rekey k%04d a.tar -o -", [f"k{i:04d}" for i in range(5)]),
    ("tarp -v create --count 1 recipe.txt -o -", ["x"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), KEYS, ids=[line for line, _ in KEYS])
def test_which_samples_come_out(wl: Any, shard: str, names: Any, line: str, expected: list[str]) -> None:
    import shlex

    Path("list.txt").write_text("a.tar\n")
    Path("recipe.txt").write_text("x.txt text:hello\ny.txt text:more\n")
    ended = wl.old(*shlex.split(line))
    if line.startswith("tarcat -b"):
        assert ended.code == 0
        assert names(ended.out) == ["000000.cls", "000000.txt", "000001.cls", "000001.txt"] * 2
        return
    assert ended.code == 0, ended.err
    found = keys(ended.out, names)
    assert len(found) == 2 if line.startswith("tarpcat") else found == expected
    assert not [name for name in os.listdir(".") if name.startswith("__") or name.endswith(".db")]


NO_EFFECT = [
    "tarsort --keep", "tarsort --commit 10", "tarp sort --keepdb", "wl-info --size 9",
    "wl-test --skip 2 --qsize 3 --size 1", "wl-dump -d rgb8 -f txt", "wl-dump --batch-size 3 -f txt",
]  # fmt: skip


@pytest.mark.parametrize("line", NO_EFFECT)
def test_a_flag_that_has_nothing_left_to_do_says_so(wl: Any, shard: str, line: str) -> None:
    ended = wl.old(*line.split(), shard)
    assert ended.code == 0, ended.err
    for flag in re.findall(r" (--?[a-z-]+)", line):
        assert flag == "-f" or f"warning: {flag} " in ended.err
