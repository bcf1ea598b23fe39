"""wl create, cp, cache and test, and the old names of the commands that inspect and create."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from webdataset.cli import main
from webdataset.cli.old import main as old

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
    command = [sys.executable, "-c", "from webdataset.cli.old import main; raise SystemExit(main())"]
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
