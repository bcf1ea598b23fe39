"""Archives out of recipes, tables, lines and folders."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from webdataset.errors import LimitError, MissingShardError, SampleError, SecurityError
from webdataset.handlers import ignore_and_continue
from webdataset.tools.make.creating import from_folder, from_lines, from_plan, from_recipe, write_items


def contents(path: Path) -> dict[str, bytes]:
    """What GNU tar finds in an archive."""
    names = subprocess.run(["tar", "-tf", path], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: subprocess.run(["tar", "-xOf", path, name], check=True, capture_output=True).stdout for name in names}


def test_a_recipe_takes_files_texts_and_commands(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    recipe = [f"a.jpg {tmp_path}/photo.jpg\n", "a.cls text:7\n", "\n", "a.txt pipe:echo hello there\n"]
    assert write_items(from_recipe(recipe), str(tmp_path / "a.tar")) == 1
    assert contents(tmp_path / "a.tar") == {"a.jpg": b"\xff\xd8", "a.cls": b"7", "a.txt": b"hello there\n"}


def test_a_tab_lets_names_have_spaces(tmp_path: Path) -> None:
    items = list(from_recipe(["my file.txt\ttext:a b"]))
    assert [(item.name, item.content()) for item in items] == [("my file.txt", b"a b")]


def test_a_line_that_is_no_recipe_is_named() -> None:
    with pytest.raises(SampleError, match="line 2"):
        list(from_recipe(["a.txt text:x", "b.txt"]))


def test_a_recipe_from_elsewhere_runs_no_commands_and_reads_no_files() -> None:
    for source in ("pipe:touch /tmp/attacked", "/etc/passwd", "file:/etc/passwd"):
        with pytest.raises(SecurityError, match="elsewhere"):
            list(from_recipe([f"a.txt {source}"], origin="https://host/recipe"))


def test_a_plan_reads_the_files_of_columns_with_an_at(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"X")
    plan = ["__key__\t@jpg\tcls\n", "k1\tx.jpg\t5\n"]
    write_items(from_plan(plan, folder=str(tmp_path)), str(tmp_path / "a.tar"))
    assert contents(tmp_path / "a.tar") == {"k1.jpg": b"X", "k1.cls": b"5"}


def test_a_plan_runs_no_commands() -> None:
    with pytest.raises(SecurityError, match="commands"):
        list(from_plan(["@jpg", "pipe:touch /tmp/attacked"]))


def test_a_plan_without_keys_numbers_its_rows() -> None:
    items = from_plan(["cls", "5", "6"], delimiter=",")
    assert [item.name for item in items] == ["000000000.cls", "000000001.cls"]


def test_a_row_with_another_number_of_columns_is_named() -> None:
    with pytest.raises(SampleError, match="row 3"):
        list(from_plan(["__key__,cls", "a,1", "b"], delimiter=","))


def test_a_plan_without_a_header_says_so() -> None:
    with pytest.raises(SampleError, match="header"):
        list(from_plan([]))


def test_lines_become_samples() -> None:
    items = from_lines(["one\t1", "two\t2\tx"], fields="txt cls")
    assert [(item.name, item.content()) for item in items] == [
        ("000000000.txt", b"one"),
        ("000000000.cls", b"1"),
        ("000000001.txt", b"two"),
        ("000000001.cls", b"2\tx"),
    ]


def test_a_line_with_too_few_fields_is_named() -> None:
    with pytest.raises(SampleError, match="line 2"):
        list(from_lines(["a\tb", "c"], fields="txt cls"))


def test_a_folder_gives_files_that_share_a_basename_together(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.jpg", "a-b.jpg", "a.cls", "a-b.cls", "sub/c.seg.png", "sub/c.jpg", "README", ".hidden.txt"):
        (folder / name).write_bytes(name.encode())
    assert write_items(from_folder(str(folder)), str(tmp_path / "a.tar")) == 3
    assert list(contents(tmp_path / "a.tar")) == ["a.cls", "a.jpg", "a-b.cls", "a-b.jpg", "sub/c.jpg", "sub/c.seg.png"]


def test_class_folders_give_every_sample_the_number_of_its_class(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for name in ("dog/1.jpg", "cat/1.jpg", "dog/2.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    write_items(from_folder(str(folder), classes=True), str(tmp_path / "a.tar"))
    found = contents(tmp_path / "a.tar")
    assert {name: data for name, data in found.items() if name.endswith("cls")} == {
        "cat/1.cls": b"0",
        "dog/1.cls": b"1",
        "dog/2.cls": b"1",
    }


def test_a_link_that_leads_back_up_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/up").symlink_to(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"x")
    assert [item.name for item in from_folder(str(tmp_path))] == ["a.txt"]


def test_items_can_be_sorted(tmp_path: Path) -> None:
    items = from_recipe(["b.txt text:1", "a.txt text:2", "b.cls text:3", "a-1.txt text:4"])
    assert write_items(items, str(tmp_path / "a.tar"), sort=True) == 3
    assert list(contents(tmp_path / "a.tar")) == ["a.txt", "a-1.txt", "b.cls", "b.txt"]


def test_samples_stay_whole_in_shards(tmp_path: Path) -> None:
    items = from_recipe(f"{i}.{ext} text:{i}" for i in range(5) for ext in ("cls", "txt"))
    assert write_items(items, str(tmp_path / "a-%02d.tar"), maxcount=2) == 5
    shards = sorted(path.name for path in tmp_path.iterdir())
    assert shards == ["a-00.tar", "a-01.tar", "a-02.tar"]
    assert [len(contents(tmp_path / name)) for name in shards] == [4, 4, 2]


def test_a_sample_that_cannot_be_read_is_left_out_whole(tmp_path: Path) -> None:
    items = from_recipe(["a.txt text:1", f"a.jpg {tmp_path}/nowhere", "b.txt text:2"])
    assert write_items(items, str(tmp_path / "a.tar"), handler=ignore_and_continue) == 1
    assert contents(tmp_path / "a.tar") == {"b.txt": b"2"}


def test_an_error_leaves_no_archive(tmp_path: Path) -> None:
    with pytest.raises(MissingShardError) as raised:
        write_items(from_recipe([f"a.jpg {tmp_path}/nowhere"]), str(tmp_path / "a.tar"))
    assert raised.value.member == "a.jpg"
    assert list(tmp_path.iterdir()) == []


def test_a_file_above_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "10")
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(LimitError, match="WDS_MAX_MEMBER_BYTES"):
        write_items(from_recipe([f"a.bin {tmp_path}/large"]), str(tmp_path / "a.tar"))


def test_names_with_spaces_quotes_newlines_and_dashes_arrive(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    names = ["a b.txt", "it's.txt", 'quo"te.txt', "new\nline.txt", "-dash.txt", "$HOME.txt", "caf\u00e9.txt"]
    for name in names:
        (folder / name).write_bytes(name.encode())
    write_items(from_folder(str(folder)), str(tmp_path / "a.tar"))
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert sorted(archive.getnames()) == sorted(names)


@pytest.mark.parametrize("pattern", ["x", "{", "{1}", "{name}", "{record.name}", "{record!x}", "{:zz}"])
def test_a_pattern_that_makes_no_keys(pattern: str) -> None:
    for made in (from_lines(["a"], key=pattern), from_plan(["txt", "a"], key=pattern)):
        with pytest.raises(ValueError, match="keys"):
            list(made)


def test_rows_and_lines_are_numbered_alike() -> None:
    for key in ("k{record:02d}", "k{:02d}"):
        assert [item.name for item in from_lines(["a", "b"], key=key)] == ["k00.txt", "k01.txt"]
        assert [item.name for item in from_plan(["txt", "a", "b"], key=key)] == ["k00.txt", "k01.txt"]


def test_what_is_no_text_is_no_recipe_and_no_table() -> None:
    with pytest.raises(SampleError, match="line 2"):
        list(from_recipe(["a.txt text:1", "a.tar\0\0 x"], origin="a.tar"))
    with pytest.raises(SampleError, match="table"):
        list(from_plan(["txt\n", 'a"b\r"c\r\n', "x\0y"], delimiter=","))
