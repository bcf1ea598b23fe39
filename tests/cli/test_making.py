"""wl create, cp, cache and test, and the old names of the commands that inspect and create."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.nginx import Nginx
from webdataset.cli import main
from webdataset.cli.old.programs import main as old

Capture = pytest.CaptureFixture[bytes]


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = main(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def program(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = old(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def tar(*words: object) -> str:
    return subprocess.run(["tar", *map(str, words)], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Class folders with files."""
    for name in ("cat/1.jpg", "dog/1.jpg", "dog/2.jpg", "dog/2.json"):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "pictures"


def test_create_makes_shards_of_class_folders(pictures: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    pattern = f"{tmp_path}/train-%02d.tar"
    assert wl(capsysbinary, "create", str(pictures), "--classes", "-o", pattern, "--maxcount", "2")[0] == 0
    assert tar("-tf", tmp_path / "train-00.tar") == "cat/1.cls\ncat/1.jpg\ndog/1.cls\ndog/1.jpg\n"
    assert tar("-tf", tmp_path / "train-01.tar") == "dog/2.cls\ndog/2.jpg\ndog/2.json\n"
    assert tar("-xOf", tmp_path / "train-01.tar", "dog/2.cls") == "1"


def classes_of(shard: Path) -> dict[str, str]:
    return {name: tar("-xOf", shard, name) for name in tar("-tf", shard).split() if name.endswith(".cls")}


def test_classes_are_told_and_written_beside_the_shards(pictures: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "create", str(pictures), "--classes", "-o", f"{tmp_path}/train-%02d.tar")
    assert code == 0
    assert err == "class 0: cat\nclass 1: dog\n"
    assert (tmp_path / "classes.txt").read_text() == "cat\ndog\n"
    assert wl(capsysbinary, "create", "-q", str(pictures), "--classes", "-o", f"{tmp_path}/b.tar")[2] == ""
    _, _, err = wl(capsysbinary, "create", "--json", str(pictures), "--classes", "-o", f"{tmp_path}/b.tar")
    assert json.loads(err.splitlines()[0]) == {"classes": ["cat", "dog"]}


def test_a_class_that_is_missing_in_one_part_does_not_shift_the_others(
    pictures: Path, tmp_path: Path, capsysbinary: Capture
) -> None:
    val = tmp_path / "val"
    (val / "dog").mkdir(parents=True)
    (val / "dog/7.jpg").touch()
    listed, pattern = str(tmp_path / "classes.txt"), f"{tmp_path}/val-%d.tar"
    assert wl(capsysbinary, "create", "--classes", str(pictures), "-o", f"{tmp_path}/train-%d.tar")[0] == 0
    code, _, err = wl(capsysbinary, "create", "--classes", str(val), "-o", pattern)
    assert code == 2
    assert f"other classes than {listed}, which is there already; --classes {listed} takes the numbers" in err
    assert not (tmp_path / "val-0.tar").exists()
    assert wl(capsysbinary, "create", "--classes", listed, str(val), "-o", pattern)[0] == 0
    assert classes_of(tmp_path / "val-0.tar") == {"dog/7.cls": "1"}
    assert (tmp_path / "classes.txt").read_text() == "cat\ndog\n"


@pytest.mark.parametrize("words", [["--classes={list}", "{folder}"], ["{folder}", "--classes", "{list}"]])
def test_a_class_that_the_list_does_not_have_is_an_error(
    pictures: Path, tmp_path: Path, capsysbinary: Capture, words: list[str]
) -> None:
    (tmp_path / "list").write_text("cat\nowl\n")
    line = [word.format(list=tmp_path / "list", folder=pictures) for word in words]
    code, _, err = wl(capsysbinary, "create", *line, "-o", f"{tmp_path}/out-%d.tar")
    assert code == 1
    assert f"the class 'dog' is not in {tmp_path}/list [url {pictures}]" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["list", "pictures"]


def test_the_classes_of_several_folders_have_numbers_in_common(
    pictures: Path, tmp_path: Path, capsysbinary: Capture
) -> None:
    (tmp_path / "more/ant").mkdir(parents=True)
    (tmp_path / "more/dog").mkdir()
    for name in ("ant/1.jpg", "dog/3.jpg"):
        (tmp_path / "more" / name).touch()
    line = ["create", "--classes", str(pictures), str(tmp_path / "more"), "-o", str(tmp_path / "a.tar")]
    assert wl(capsysbinary, *line)[0] == 0
    expected = {"ant/1.cls": "0", "cat/1.cls": "1", "dog/1.cls": "2", "dog/2.cls": "2", "dog/3.cls": "2"}
    assert classes_of(tmp_path / "a.tar") == expected


def test_force_replaces_a_list_of_other_classes(pictures: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "classes.txt").write_text("ant\n")
    line = ["create", str(pictures), "--classes", "-o", f"{tmp_path}/a-%d.tar"]
    assert wl(capsysbinary, *line)[0] == 2
    assert wl(capsysbinary, *line, "--force")[0] == 0
    assert (tmp_path / "classes.txt").read_text() == "cat\ndog\n"


def test_classes_of_an_archive_on_stdout_are_told_only(
    pictures: Path, tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = wl(capsysbinary, "create", str(pictures), "--classes", "-o", "-")
    assert (code, err) == (0, "class 0: cat\nclass 1: dog\n")
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]


def test_classes_go_beside_remote_shards_and_are_taken_from_there(
    pictures: Path, nginx: Nginx, capsysbinary: Capture
) -> None:
    pattern, url = nginx.url("/made/a-%d.tar"), nginx.url("/made/classes.txt")
    assert wl(capsysbinary, "create", str(pictures), "--classes", "-o", pattern)[0] == 0
    assert (nginx.files / "made/classes.txt").read_text() == "cat\ndog\n"
    (pictures / "ant").mkdir()
    code, _, err = wl(capsysbinary, "create", str(pictures), "--classes", url, "-o", pattern, "--force")
    assert code == 1
    assert "the class 'ant' is not in http" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cat\n\ndog\n", "line 2 of the list of classes is empty"),
        ("cat\ncat\n", "line 2 .* 'cat' a second time"),
        ("", "empty"),
    ],
)
def test_a_list_of_classes_that_cannot_be_right_is_an_error(
    pictures: Path, tmp_path: Path, capsysbinary: Capture, text: str, told: str
) -> None:
    (tmp_path / "list").write_text(text)
    code, _, err = wl(
        capsysbinary, "create", "--classes", str(tmp_path / "list"), str(pictures), "-o", f"{tmp_path}/a.tar"
    )
    assert code == 1
    assert re.search(told, err)


def test_classes_without_a_folder_or_with_a_list_that_is_not_there(
    pictures: Path, tmp_path: Path, capsysbinary: Capture
) -> None:
    output = ["-o", str(tmp_path / "a.tar")]
    code, _, err = wl(capsysbinary, "create", "--classes", "nolist", str(pictures), *output)
    assert (code, "there is no list of classes 'nolist'" in err) == (2, True)
    code, _, err = wl(capsysbinary, "create", "--classes", "nofolder", *output)
    assert (code, "--classes is for folders" in err) == (2, True)


def test_files_in_no_class_folder_are_counted(pictures: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    (pictures / "stray.jpg").touch()
    code, _, err = wl(capsysbinary, "create", str(pictures), "--classes", "-o", str(tmp_path / "a.tar"))
    assert code == 0
    assert "left out: 1 members\n  1 x the file is in none of the class folders" in err


def test_a_member_that_comes_twice_is_an_error_in_one_archive_too(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "recipe").write_text("a.txt text:1\na.TXT text:2\nb.txt text:3\n")
    line = ["create", str(tmp_path / "recipe"), "-o", str(tmp_path / "a.tar")]
    code, _, err = wl(capsysbinary, *line)
    assert code == 1
    assert "two members of a sample have the same name [member a.TXT, key a]" in err
    assert wl(capsysbinary, *line, "--on-error", "skip")[0] == 0
    assert tar("-tf", tmp_path / "a.tar") == "b.txt\n"


def test_create_takes_a_recipe_a_table_and_lines(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "recipe").write_text("a.txt text:hello world\na.cls pipe:printf 7\n")
    (tmp_path / "plan.csv").write_text(f'__key__,@bin,txt\nk,{tmp_path}/recipe,"a, b"\n')
    (tmp_path / "lines").write_text("one\ntwo\n")
    for source, words in {"recipe": [], "plan.csv": [], "lines": ["--from", "lines"]}.items():
        assert wl(capsysbinary, "create", str(tmp_path / source), *words, "-o", f"{tmp_path}/{source}.tar")[0] == 0
    assert tar("-xOf", tmp_path / "recipe.tar", "a.txt", "a.cls") == "hello world7"
    assert tar("-xOf", tmp_path / "plan.csv.tar", "k.txt") == "a, b"
    assert tar("-tf", tmp_path / "lines.tar") == "000000000.txt\n000000001.txt\n"


def test_create_into_a_folder_that_does_not_exist_names_the_cure(pictures: Path, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "create", str(pictures), "-o", "nowhere/a.tar")
    assert code == 1
    assert "mkdir -p" in err


@pytest.mark.parametrize(("on_error", "code", "names"), [("skip", 0, "b.txt\n"), ("stop", 1, ""), ("raise", 1, None)])
def test_create_with_a_source_that_fails(
    tmp_path: Path, capsysbinary: Capture, on_error: str, code: int, names: str | None
) -> None:
    (tmp_path / "recipe").write_text("a.txt nowhere\nb.txt text:1\n")
    output = tmp_path / "a.tar"
    words = ["create", str(tmp_path / "recipe"), "--on-error", on_error, "-o", str(output)]
    assert wl(capsysbinary, *words)[0] == code
    if names is None:
        assert not output.exists()
    else:
        assert tar("-tf", output) == names


def test_create_on_a_full_disk_leaves_nothing(pictures: Path, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "create", str(pictures), "-o", "/dev/full")
    assert code == 1
    assert err.count("\n") == 1


def test_cp_copies_and_passes_over(
    make_shards: Callable[..., list[str]], tmp_path: Path, capsysbinary: Capture
) -> None:
    make_shards(3)
    target = tmp_path / "copies"
    target.mkdir()
    words = ["cp", "-P", "2", f"{tmp_path}/shard-{{000000..000002}}.tar", f"{target}/"]
    assert wl(capsysbinary, *words)[0] == 0
    assert sorted(path.name for path in target.iterdir()) == [f"shard-00000{i}.tar" for i in range(3)]
    code, _, err = wl(capsysbinary, *words)
    assert (code, err.count("is there already")) == (0, 3)


def test_cp_takes_its_target_as_all_commands_do(
    make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture
) -> None:
    shard, copy = make_shard(), tmp_path / "copy.tar"
    assert wl(capsysbinary, "cp", "-o", str(copy), shard)[0] == 0
    assert copy.read_bytes() == Path(shard).read_bytes()
    code, _, err = wl(capsysbinary, "cp", shard)
    assert (code, err.count("\n")) == (2, 1)
    assert "the target is missing" in err


def test_cache_lists_verifies_and_clears(make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture) -> None:
    from webdataset.dataset import WebDataset

    cache = tmp_path / "cache"
    cache.mkdir()
    url = f"pipe:cat {make_shard()}"
    assert len(list(WebDataset(url, cache_dir=str(cache), shardshuffle=False))) == 10
    code, out, err = wl(capsysbinary, "cache", "ls", str(cache))
    assert (code, err) == (0, "1 shards, 21504 bytes\n")
    assert url.encode() in out
    assert wl(capsysbinary, "cache", "verify", str(cache))[0] == 0
    entry = json.loads(wl(capsysbinary, "cache", "ls", "--json", str(cache))[1])
    with open(entry["path"], "r+b") as file:
        file.write(b"X")
    assert wl(capsysbinary, "cache", "verify", str(cache))[0] == 1
    assert wl(capsysbinary, "cache", "clear", str(cache))[0] == 0
    assert wl(capsysbinary, "cache", "ls", str(cache))[1] == b""


def test_cache_without_a_folder_is_a_mistake_of_use(monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture) -> None:
    monkeypatch.delenv("WDS_CACHE", raising=False)
    monkeypatch.delenv("WEBDATASET_CACHE", raising=False)
    assert wl(capsysbinary, "cache", "ls")[0] == 2


def test_test_prints_rates_and_a_verdict(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    words = ["--decode", "basic", "-m", "_ if sum(i * i for i in range(30000)) else None", "--shuffle", "10", "-b", "4"]
    code, out, _ = wl(capsysbinary, "test", *words, make_shard("a.tar", 40))
    text = out.decode()
    assert code == 0
    assert [line.split()[0] for line in text.splitlines() if line] == [
        "open", "first", "first", "stage", "read", "decode", "map", "shuffle", "batch", "all", "bound",
    ]  # fmt: skip
    assert "bound by the CPU, in the stage 'map'" in text


@pytest.mark.parametrize(
    ("code", "samples"),
    [("_ if cls % 2 else None", 20), ("[dict(_, __key__='a'), dict(_, __key__='b')]", 80), ("cls -= 1", 40)],
)
def test_test_goes_on_with_what_the_code_gives(
    make_shard: Callable[..., str], capsysbinary: Capture, code: str, samples: int
) -> None:
    (facts,) = json.loads(wl(capsysbinary, "test", "--json", "-m", code, "-f", "cls", make_shard("a.tar", 40))[1])
    assert facts["samples"] == samples


def test_test_gives_the_stages_behind_what_the_code_gives(
    make_shard: Callable[..., str], capsysbinary: Capture
) -> None:
    shard = make_shard("a.tar", 4)
    assert wl(capsysbinary, "test", "-m", "{'new': cls}", "-f", "new", "-b", "2", shard)[0] == 0
    code, _, err = wl(capsysbinary, "test", "-m", "{'new': cls}", "-f", "cls", shard)
    assert code == 1
    assert "cls" in err
    code, _, err = wl(capsysbinary, "test", "-m", "cls", shard)
    assert code == 1
    assert "the result is int, not a sample" in err


def test_test_says_that_the_code_dropped_everything(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "test", "-m", "None", make_shard("a.tar", 4))
    assert code == 1
    assert "there are no samples to measure" in err
    assert "the code of -m may have dropped them all" in err


def test_test_is_there_for_programs(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    (facts,) = json.loads(wl(capsysbinary, "test", "--json", "-c", "5", make_shard())[1])
    assert facts["samples"] == 5
    assert facts["bound_by"] in ("cpu", "disk")  # five samples take too short a time to be sure


# -- the old names -----------------------------------------------------------------------------------


@pytest.fixture
def small(make_shard: Callable[..., str]) -> str:
    return make_shard("small.tar", files=[(f"s{i}.{ext}", data) for i in range(3) for ext, data in FIELDS.items()])


FIELDS = {"cls": b"5", "jpg": b"\xff\xd8", "json": b'{"a": 1}'}


def test_tar2tsv_prints_keys_and_fields(small: str, capsysbinary: Capture) -> None:
    assert program(capsysbinary, "tar2tsv", "-f", "cls", small)[:2] == (0, b"__key__\tcls\ns0\t5\ns1\t5\ns2\t5\n")
    assert program(capsysbinary, "tar2tsv", "-f", "cls", "--nokey", "--noheader", "-c", "1", small)[1] == b"5\n"


def test_tar2json_prints_lines_of_json(small: str, capsysbinary: Capture) -> None:
    out = program(capsysbinary, "tar2json", "-k", "cls json", small)[1]
    assert json.loads(out.splitlines()[0]) == {"__key__": "s0", "cls": 5, "json": {"a": 1}}


def test_tarshow_prints_padded_names_and_cut_values(small: str, capsysbinary: Capture) -> None:
    out = program(capsysbinary, "tarshow", "-c", "2", small)[1].decode()
    lines = [f"{name:<20}\t{value!r}"[:81] for name, value in {"__key__": "s0", **FIELDS}.items()]
    assert out.split("\n\n")[0] == "\n".join(lines)
    assert out.count("\n\n") == 2


def test_tarfirst_writes_the_first_picture(small: str, capsysbinary: Capture) -> None:
    assert program(capsysbinary, "tarfirst", small) == (0, b"\xff\xd8", "s0.jpg\n")
    assert program(capsysbinary, "tarfirst", "-S", "_['__key__'] == 's1'", "-f", "cls", small)[1] == b"5"


def test_tarcreate_takes_a_plan(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "x.jpg").write_bytes(b"X")
    (tmp_path / "plan").write_text("@jpg\tcls\nx.jpg\t3\n")
    output = tmp_path / "o.tar"
    assert program(capsysbinary, "tarcreate", "-C", str(tmp_path), "-o", str(output), str(tmp_path / "plan"))[0] == 0
    assert tar("-tf", output) == "000000000.jpg\n000000000.cls\n"


def test_tarp_create_takes_a_recipe(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "recipe").write_text("b.txt text:hello\nREADME text:read me\na.txt pipe:echo hi\n")
    output = tmp_path / "out.tar"
    assert program(capsysbinary, "tarp", "create", "-o", str(output), str(tmp_path / "recipe"))[0] == 0
    assert tar("-tf", output) == "b.txt\nREADME\na.txt\n"


def test_lines2tar_makes_a_sample_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from webdataset.cli.old.programs import main; raise SystemExit(main())"]
    words = ["lines2tar", "-k", "txt cls"]
    done = subprocess.run(
        [*command[:2], f"import sys; sys.argv = {words!r}; {command[2]}"],
        input=b"hello\t7\n",
        capture_output=True,
        check=True,
    )
    (tmp_path / "l.tar").write_bytes(done.stdout)
    assert tar("-xOf", tmp_path / "l.tar", "000000000.txt", "000000000.cls") == "hello7"


def test_wl_cat_extract_dump_info_and_test_work_under_their_old_names(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program(capsysbinary, "wl-cat", small, "cls", "1")[:2] == (0, b"5")
    assert program(capsysbinary, "wl-extract", "-f", "__key__ cls", "-c", "2", small)[1] == b"s0\t5\ns1\t5\n"
    assert program(capsysbinary, "wl-dump", small)[1] == b"out-000000.jpg\n"
    assert program(capsysbinary, "wl-info", "-d", "raw", small)[1].startswith(b"3 samples")
    assert b"bound by" in program(capsysbinary, "wl-test", "--batchsize", "2", small)[1]
    assert b"s0" in program(capsysbinary, "wl-show", "-f", "cls", small)[1]
