"""Every flag of the old programs: it does what it did, or says that it has nothing left to do."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

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
def test_every_flag_is_known_and_explained(wl: Any, program: str) -> None:
    shown = wl.old(*program.split(), "--help").out.decode()
    options = shown.split("options:", 1)[1]
    known = set(re.findall(r"(?<![\w-])(--?[A-Za-z][\w-]*)", options))
    assert set(FLAGS[program].split()) <= known
    for line in options.splitlines():
        assert "not needed" not in line


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
        assert flag == "-f" or f"warning: {flag} has no effect: " in ended.err


def test_wl_cat_takes_a_size_and_shuffles(wl: Any, shard: str) -> None:
    ended = wl.old("wl-cat", "--size", 3, "--shuffle", 5, shard, "cls")
    assert ended.out in [b"0", b"1", b"2", b"3", b"4"]
    assert "--size has no effect" in ended.err
    assert len({wl.old("wl-cat", "--shuffle", 5, shard, "cls").out for _ in range(30)}) > 1


def test_tarcat_takes_one_pattern_with_b_and_names_without_data(wl: Any, shard: str, members: Any) -> None:
    assert wl.old("tarcat", "-b", shard, shard).code == 2
    assert wl.old("tarpcat", "-b").code == 2
    assert members(wl.old("tarcat", "--nodata", "-c", 1, shard).out) == {("000000.cls", b""): 1, ("000000.txt", b""): 1}
    shuffled = wl.old("tarcat", "--shuffle", 100, shard)
    assert members(shuffled.out) == members(shard)


def test_tarpcat_without_output(wl: Any, shard: str) -> None:
    ended = wl.old("tarpcat", "--dummy", "-v", shard)
    assert (ended.code, ended.out) == (0, b"")
    assert "5 samples" in ended.err


def test_progress_every_so_many_samples(wl: Any, shard: str) -> None:
    for line in ("tarp cat -L 2 -o out.tar", "tarsort -r 2 -o out.tar", "wl-map -e 2 -c pass -o out.tar"):
        told = wl.old(*line.split(), shard).err
        assert len(re.findall(r"(?m)^[24] samples, ", told)) == 2, told


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
    assert members(wl.old("tarsort", "-S", "shuffle", path).out) == members(path)


def test_tarsplit_writes_into_commands(wl: Any, shard: str, names: Any) -> None:
    assert wl.old("tarsplit", "-n", 2, "-o", "|gzip > part-{shard:02d}.gz", shard).code == 0
    assert names("part-02.gz") == ["000004.cls", "000004.txt"]
    assert wl.old("tarsplit", "-n", 3, "-O", "cat > copy-{}", "-o", "name", shard).code == 0
    assert names("copy-name-000001.tar") == ["000003.cls", "000003.txt", "000004.cls", "000004.txt"]
    assert wl.old("tarsplit", "-n", 3, "-z", "-O", "cat >", "-o", "with space", shard).code == 0
    assert names("with space-000000.tgz") == names("a.tar")[:6]
    assert wl.old("tarsplit", "-o", "|cat > x", "-O", "cat", shard).code == 2
    assert wl.old("tarsplit", "-o", "|cat > x-%d", "-C", "true", shard).code == 2
    assert wl.old("tarsplit", "-o", "|exit 3; echo %d", shard).code == 1


def test_tarsplit_numbers_and_commands(wl: Any, shard: str) -> None:
    ended = wl.old("tarsplit", "--num-samples", 2, "--start", 7, "--maxshards", 2, "-v", "-o", "p", shard)
    assert ended.code == 0
    assert sorted(name for name in os.listdir(".") if name.startswith("p-")) == ["p-000007.tar", "p-000008.tar"]
    wl.old("tarsplit", "-s", 1000, "-C", "echo {base} {ext} {dirname} >> said", "-o", "q", shard)
    assert not [name for name in os.listdir(".") if name.startswith("q-")]
    assert Path("said").read_text().startswith("q-000000 .tar ")
    wl.old("tarsplit", "-n", 5, "-C", "true", "--nodelete", "-o", "r", shard)
    assert Path("r-000000.tar").exists()


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
    assert ended.code == 2
    assert "is not a regular expression" in ended.err


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


def test_tables_of_the_old_programs(wl: Any, shard: str) -> None:
    assert wl.old("tar2tsv", "-f", "txt;x cls", "-c", 1, shard).out == b"__key__\ttxt;x\tcls\n000000\ttxt0\t0\n"
    assert wl.old("tar2tsv", "-f", "cls", "--nokey", "--noheader", shard).out == b"0\n1\n2\n3\n4\n"
    assert json.loads(wl.old("tar2json", "-k", "cls txt", "-f", "json", shard).out)[4] == {
        "__key__": "000004", "cls": 4, "txt": "txt4",
    }  # fmt: skip
    assert wl.old("tar2json", "-a", "--nokey", shard).out.splitlines()[0] == b'{"cls": 0, "txt": "txt0"}'
    assert wl.old("tar2json", "-v", "-k", "cls", "-f", "yaml", shard).out.startswith(
        b'---\n"__key__": "000000"\n"cls": 0\n'
    )
    assert wl.old("wl-extract", "-f", "cls", "-s", 1, "-c", 1, "-S", "cls > 1", "-P", "cls *= 10", shard).out == b"30\n"
    assert wl.old("wl-extract", "-F", "json", "-d", "raw", "-c", 1, "-f", "cls", shard).out == b'{"cls": "0"}\n'


def test_lines_and_plans(wl: Any, shard: str, members: Any) -> None:
    Path("lines").write_text("a|1\nb|2\n")
    made = wl.old("lines2tar", "-k", "txt cls", "-s", "|", "-v", "--keyformat", "k{:03d}", "lines")
    assert members(made.out)["k001.cls", b"2"] == 1
    Path("sub").mkdir()
    Path("sub/file").write_bytes(b"content")
    Path("plan").write_text("@bin;cls\nfile;3\n")
    made = wl.old("tarcreate", "-f", ";", "-k", "r{record:02d}", "-C", "sub", "plan", "-o", "plan.tar")
    assert made.code == 0
    assert members("plan.tar") == {("r00.bin", b"content"): 1, ("r00.cls", b"3"): 1}


def test_tarfirst_says_the_name(wl: Any, shard: str) -> None:
    ended = wl.old("tarfirst", "-v", "-S", "cls == 3", "-f", "x;txt", shard)
    assert (ended.out, ended.err) == (b"txt3", "000003.txt\n")


@pytest.fixture
def pictures(make_shard: Callable[..., str]) -> str:
    stream = io.BytesIO()
    Image.new("L", (4, 2), 100).save(stream, "PNG")
    return make_shard("p.tar", files=[(f"{i}.{ext}", stream.getvalue()) for i in range(3) for ext in ("png", "tag")])


def test_tarshow_pauses_normalises_and_is_silent(wl: Any, pictures: str) -> None:
    assert wl.old("tarshow", "-c", 1, pictures).out.startswith(b"__key__             \t'0'\npng ")
    ended = wl.old("tarshow", "-f", "PNG", "-N", "-C", "gray", "-d", 0.01, "--silent", "--use-keyboard", pictures)
    assert ended.code == 0
    assert b"__key__" not in ended.out
    assert wl.old("tarshow", "-f", "PNG", "--verbatim-keys", pictures).code == 1
    assert wl.old("tarshow", "-C", "jet", pictures).code == 2


def test_wl_show_takes_each_nth_sample(wl: Any, shard: str) -> None:
    shown = wl.old("wl-show", "-e", 2, "-s", 1, "-f", "cls", "--shuffle", 0, shard).out.decode()
    assert re.findall(r"b'(\d)'", shown) == ["1", "3"]


def test_wl_dump_and_wl_test(wl: Any, shard: str) -> None:
    assert wl.old("wl-dump", "--shuffle", 5, "-s", 1, "-S", "cls >= 0", "-f", "txt", "-o", "d-{key}", shard).code == 0
    assert len([name for name in os.listdir(".") if name.startswith("d-")]) == 1
    line = "wl-test --nbatches 1 --batchsize 2 --fields cls --decode basic --shuffle 3 --processes 0"
    assert "samples/s" in wl.old(*line.split(), shard).out.decode()


def test_tarp_keeps_the_names_of_fields(wl: Any, shard: str, names: Any) -> None:
    assert names(wl.old("tarp", "cat", "-f", "label:cls,class", "--slice", "0:1", shard).out) == ["000000.label"]
    assert names(wl.old("tarp", "sort", "-f", "txt", "-s", "cls", "--slice", "0:1", shard).out) == ["000000.txt"]
    several = "for i in 1 5; do cp sample.cls sample-00000$i.cls; done"
    out = wl.old("tarp", "proc", "-f", "cls", "-m", several, "--slice", "0:1", shard).out
    assert names(out) == ["000000/000001.cls", "000000/000005.cls"]
    ended = wl.old(
        "tarp", "split", "-c", 2, "-s", 1e6, "-p", "echo %s >> posted", "--slice", "0:4", "-o", "s-%d.tar", shard
    )
    assert ended.code == 0
    assert Path("posted").read_text() == "s-0.tar\ns-1.tar\n"


def test_tarmix_mixes_what_a_file_names(wl: Any, shard: str, make_shard: Any, names: Any) -> None:
    make_shard("b.tar", 7, start=100)
    Path("mix.yaml").write_text(
        "sources:\n- shards: a.tar\n  weight: 3\n- shards: ['b.tar', gone.tar]\n  allow_missing: on\n"
    )
    ended = wl.old("tarmix", "mix.yaml", "-o", "out.tar", "--shuffle", 10, "-v")
    assert ended.code == 0
    assert sorted(names("out.tar")) == sorted(names("a.tar") + names("b.tar"))
    assert "12 samples" in ended.err
    assert len(keys(wl.old("tarmix", "mix.yaml", "--skip", 1, "-c", 4, "--seed", 1).out, names)) == 3
    assert wl.old("tarmix").code == 2
    Path("mix.yaml").write_text("sources: [")
    assert "this is not YAML" in wl.old("tarmix", "mix.yaml").err
