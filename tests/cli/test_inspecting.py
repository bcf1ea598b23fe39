"""wl cat, extract, dump, info, ls, lint, show: what they print, where, and how they fail."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from webdataset.cli import main

Capture = pytest.CaptureFixture[bytes]


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (255, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    """Ten samples, the class of each its number modulo 3."""
    array = io.BytesIO()
    np.save(array, np.zeros((2, 3), np.float32))
    fields = {"cls": b"%d", "json": b'{"n": %d}', "npy": array.getvalue(), "png": picture(), "txt": b"hello"}
    files = [
        (f"s{i}.{name}", data % (i % 3) if b"%d" in data else data) for i in range(10) for name, data in fields.items()
    ]
    return make_shard("a.tar", files=files)


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    """Exit code, stdout, stderr."""
    code = main(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


# -- cat ---------------------------------------------------------------------------------------------


def test_cat_writes_one_field_as_it_is_stored(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "cat", shard, "png") == (0, picture(), "")


def test_cat_finds_by_number_key_and_condition(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "cat", shard, "json", "4")[:2] == (0, b'{"n": 1}')
    assert wl(capsysbinary, "cat", "-k", "s5", shard, "json")[:2] == (0, b'{"n": 2}')
    assert wl(capsysbinary, "cat", "-v", "-S", "cls == 2", shard, "jpg;png") == (0, picture(), "s2.png\n")
    assert wl(capsysbinary, "cat", "-v", "-S", "_['cls'] == 2", shard, "txt", "1") == (0, b"hello", "s5.txt\n")


def test_cat_with_a_typo_says_which_fields_there_are(shard: str, capsysbinary: Capture) -> None:
    code, out, err = wl(capsysbinary, "cat", shard, "clss")
    assert (code, out) == (1, b"")
    assert "did you mean 'cls'?; the fields here are cls json npy png txt" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["99"], ["-k", "nobody"], ["-S", "cls == 77"]])
def test_cat_without_a_sample_is_an_error(shard: str, capsysbinary: Capture, words: list[str]) -> None:
    options = words if words[0].startswith("-") else []
    code, out, err = wl(capsysbinary, "cat", *options, shard, "txt", *(words if not options else []))
    assert (code, out, err.count("\n")) == (1, b"", 1)


def test_cat_with_a_syntax_error_shows_the_place(shard: str, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "cat", "-S", "cls ==* 2", shard, "txt")
    assert code == 2
    assert err.endswith("  cls ==* 2\n        ^\n")


def test_cat_reads_no_further_than_it_needs(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    path = make_shard("a.tar", 2000)
    with open(path, "r+b") as file:  # the end is lost
        file.truncate(1_900_000)
    assert wl(capsysbinary, "cat", path, "txt")[:2] == (0, b"txt0")


# -- extract -----------------------------------------------------------------------------------------


def test_extract_makes_a_table(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "extract", "-f", "cls txt", "-c", "2", shard) == (
        0,
        b"__key__\tcls\ttxt\ns0\t0\thello\ns1\t1\thello\n",
        "",
    )


def test_extract_makes_json_that_other_programs_read(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    output = tmp_path / "a.jsonl"
    assert wl(capsysbinary, "extract", "-a", "-s", "1", "-c", "1", "-o", str(output), shard) == (0, b"", "")
    shown = subprocess.run(["jq", "-c", ".json.n, .npy, .txt", output], capture_output=True, text=True, check=True)
    assert shown.stdout == '1\n[[0.0,0.0,0.0],[0.0,0.0,0.0]]\n"hello"\n'.replace("0.0", "0")


def test_extract_leaves_no_half_table(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "extract", "-f", "nope", "-o", str(tmp_path / "t.tsv"), shard)
    assert code == 1
    assert "the fields here are" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_extract_can_skip_bad_samples(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    path = make_shard(files=[("a.cls", b"1"), ("b.cls", b"dog"), ("c.cls", b"3")])
    assert wl(capsysbinary, "extract", "--nokey", "--noheader", "-f", "cls", path)[0] == 1
    code, out, err = wl(capsysbinary, "extract", "--on-error", "skip", "--nokey", "--noheader", "-f", "cls", path)
    assert (code, out) == (0, b"1\n3\n")
    assert err.startswith("left out: 1 samples\n")
    code, out, _ = wl(capsysbinary, "extract", "-d", "raw", "--nokey", "--noheader", "-f", "cls", path)
    assert (code, out) == (0, b"1\ndog\n3\n")


# -- dump --------------------------------------------------------------------------------------------


def test_dump_writes_what_tar_would_extract(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    code, out, _ = wl(capsysbinary, "dump", "-o", f"{ours}/{{key}}", shard)
    assert (code, len(out.splitlines())) == (0, 50)
    subprocess.run(["tar", "-xf", shard, "-C", theirs], check=True)
    subprocess.run(["diff", "-r", ours, theirs], check=True)


def test_dump_does_not_overwrite_and_does_not_leave_its_folder(
    make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture
) -> None:
    (tmp_path / "t").mkdir()
    path = make_shard(files=[("../up.txt", b"evil"), ("/abs.txt", b"evil"), ("fine.txt", b"fine")])
    code, _, err = wl(capsysbinary, "dump", "-o", f"{tmp_path}/t/{{key}}", path)
    assert (code, "the name leaves the folder" in err) == (1, True)
    code, out, err = wl(capsysbinary, "dump", "--on-error", "skip", "-o", f"{tmp_path}/t/{{key}}", path)
    assert (code, out) == (0, f"{tmp_path}/t/fine.txt\n".encode())
    assert "2" in err
    assert not (tmp_path / "up.txt").exists()
    assert wl(capsysbinary, "dump", "-s", "2", "-o", f"{tmp_path}/t/{{key}}", path)[0] == 1
    assert wl(capsysbinary, "dump", "--force", "-s", "2", "-o", f"{tmp_path}/t/{{key}}", path)[0] == 0


def test_dump_with_a_wrong_pattern_is_a_mistake_of_use(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "dump", "-o", "{kye}", shard)[0] == 2


# -- info, ls, lint ----------------------------------------------------------------------------------


def test_info_describes_the_fields(shard: str, capsysbinary: Capture) -> None:
    code, out, err = wl(capsysbinary, "info", shard)
    text = out.decode()
    assert (code, err) == (0, "")
    assert text.startswith("10 samples, ")
    assert "shape   6 x 8 x 3" in text
    assert "shape   2 x 3" in text
    assert "dtype   float32" in text


def test_info_is_there_for_programs(shard: str, capsysbinary: Capture) -> None:
    facts = json.loads(wl(capsysbinary, "info", "--json", "-c", "4", shard)[1])
    assert facts["samples"] == 4
    assert facts["fields"]["cls"]["range"] == [0, 2]


def test_info_says_when_it_did_not_look_at_all(shard: str, capsysbinary: Capture) -> None:
    assert b"only the first 4 samples" in wl(capsysbinary, "info", "-c", "4", shard)[1]
    assert b"only" not in wl(capsysbinary, "info", "-c", "0", shard)[1]


def test_ls_prints_what_tar_prints(shard: str, capsysbinary: Capture) -> None:
    theirs = subprocess.run(["tar", "-tf", shard], capture_output=True, check=True).stdout
    assert wl(capsysbinary, "ls", shard) == (0, theirs, "")


def test_ls_prints_strange_names_as_tar_does(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    names = ["a b.txt", "new\nline.txt", "back\\slash.txt", "-dash.txt", "esc\x1b[2J.txt", "quo\"te'.txt"]
    path = make_shard(files=[(name, b"") for name in names])
    theirs = subprocess.run(["tar", "-tf", path], capture_output=True, check=True).stdout
    assert wl(capsysbinary, "ls", path) == (0, theirs, "")


def test_ls_shows_all_kinds_of_members_and_their_mode(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.txt").write_text("hello")
    (tmp_path / "d/link").symlink_to("a.txt")
    path = tmp_path / "k.tar"
    subprocess.run(["tar", "-C", tmp_path, "-cf", path, "d"], check=True)
    lines = wl(capsysbinary, "ls", "-l", str(path))[1].decode().splitlines()
    theirs = subprocess.run(["tar", "-tvf", path], capture_output=True, text=True, check=True).stdout.splitlines()
    for ours, line in zip(lines, theirs, strict=True):
        words = line.split()
        assert ours.split() == [words[0], *words[2:]]


def test_ls_lists_samples(shard: str, capsysbinary: Capture) -> None:
    out = wl(capsysbinary, "ls", "--samples", "-s", "1", "-c", "1", shard)[1].decode()
    size = 1 + 8 + len(picture()) + 5 + 152
    assert out == f"s1\t{size}\tcls json npy png txt\n"


def test_ls_of_a_cut_shard_prints_what_is_there_and_fails(shard: str, capsysbinary: Capture) -> None:
    with open(shard, "r+b") as file:
        file.truncate(2000)
    code, out, err = wl(capsysbinary, "ls", shard)
    assert (code, out[:7]) == (1, b"s0.cls\n")
    assert "ends early" in err


def test_lint_finds_nothing_in_a_good_shard(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "lint", shard) == (0, b"", "no problems found\n")


def test_lint_fails_when_it_finds_something(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    path = make_shard(files=[("a.png", b"no picture"), ("esc\x1b[2J.txt", b"")])
    code, out, err = wl(capsysbinary, "lint", path)
    assert code == 1
    assert b"wrong-image" in out
    assert b"\x1b" not in out
    assert "1 x wrong-image" in err
    lines = [json.loads(line) for line in wl(capsysbinary, "lint", "--json", path)[1].splitlines()]
    assert {line["problem"] for line in lines} >= {"wrong-image", "empty-field"}
    assert wl(capsysbinary, "lint", "--ignore", "wrong-image,empty-field,half-sample", path)[0] == 0
    assert wl(capsysbinary, "lint", "--ignore", "nonsense", path)[0] == 2


# -- show --------------------------------------------------------------------------------------------


def test_show_prints_text_where_there_is_no_terminal(shard: str, capsysbinary: Capture) -> None:
    out = wl(capsysbinary, "show", "-c", "1", "-f", "cls txt", shard)[1].decode()
    assert out == "__key__             \t's0'\ncls                 \tb'0'\ntxt                 \tb'hello'\n\n"


@pytest.mark.parametrize(
    ("protocol", "sign"), [("kitty", b"\x1b_G"), ("iterm", b"\x1b]1337;File="), ("sixel", b"\x1bPq"), ("blocks", "▀")]
)
def test_show_draws_pictures(shard: str, capsysbinary: Capture, protocol: str, sign: bytes | str) -> None:
    out = wl(capsysbinary, "show", "-c", "1", "--protocol", protocol, shard)[1]
    assert (sign if isinstance(sign, bytes) else sign.encode()) in out


def test_show_survives_a_wrong_picture(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    code, out, _ = wl(capsysbinary, "show", "--protocol", "blocks", make_shard(files=[("a.png", b"no\x1b[2J")]))
    assert (code, b"cannot show the image" in out, b"\x1b[2J" in out) == (0, True, False)


def test_show_writes_a_page(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    page = tmp_path / "page.html"
    assert wl(capsysbinary, "show", "--html", str(page), shard) == (0, b"", "")
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("data:image/png;base64,") == 10


def test_show_escapes_what_is_in_the_data(
    make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture
) -> None:
    attack = "<script>alert(1)<_script>"
    path = make_shard(
        files=[(f"{attack}.{attack}.txt", b"</pre><script>alert(1)</script>"), (f"{attack}.txt", b"<img>")]
    )
    page = tmp_path / "page.html"
    assert wl(capsysbinary, "show", "--html", str(page), path)[0] == 0
    assert "<script" not in page.read_text()
    assert "<img>" not in page.read_text()


# -- the whole program -------------------------------------------------------------------------------


def run(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "webdataset", *words]
    return subprocess.run(command, capture_output=True, check=False, **options)  # type: ignore[call-overload]


def test_an_archive_can_be_piped_in(shard: str) -> None:
    with open(shard, "rb") as stream:
        assert run("extract", "-f", "cls", "-c", "1", stdin=stream).stdout == b"__key__\tcls\ns0\t0\n"


def test_a_reader_that_leaves_early_is_no_error(make_shard: Callable[..., str]) -> None:
    path = make_shard("a.tar", 20_000)
    command = f"{sys.executable} -m webdataset ls {path} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"000000.cls\n", b"")


def test_a_compressed_shard_is_read_like_any_other(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    subprocess.run(["gzip", "-k", shard], check=True)
    assert wl(capsysbinary, "ls", f"{shard}.gz")[1] == wl(capsysbinary, "ls", shard)[1]
    assert wl(capsysbinary, "cat", f"{shard}.gz", "txt")[1] == b"hello"


@pytest.mark.parametrize("command", ["cat", "extract", "dump", "info", "ls", "show"])
def test_a_missing_shard_is_one_line_with_the_place(command: str, capsysbinary: Capture) -> None:
    words = ["nowhere.tar", *(["txt"] if command == "cat" else [])]
    code, out, err = wl(capsysbinary, command, *words)
    assert (code, out) == (1, b"")
    assert err.startswith(f"wl {command}: no such file [url nowhere.tar")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["extract", "info", "show"])
def test_a_member_of_ten_gigabytes_is_refused(command: str, tmp_path: Path, capsysbinary: Capture) -> None:
    member = tarfile.TarInfo("a.bin")
    member.size = 10 * 2**30
    path = tmp_path / "large.tar"
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    code, _, err = wl(capsysbinary, command, str(path))
    assert code == 1
    assert "large.tar" in err


@pytest.mark.parametrize(
    "command",
    ["cat", "extract", "dump", "info", "ls", "lint", "show", "create", "cp", "cache", "test"],
)
def test_help_begins_with_two_examples(command: str, capsysbinary: Capture) -> None:
    code, out, _ = wl(capsysbinary, command, "--help")
    assert code == 0
    assert out.startswith(b"examples:\n")
    assert out.count(f"\n  wl {command} ".encode()) + out.count(f"| wl {command} ".encode()) >= 2
