"""Fields as files: they stay in their folder and replace nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.errors import SampleError, SecurityError, StorageError
from webdataset.handlers import ignore_and_continue
from webdataset.tools.inspect.dumping import dump, safe_parts


def test_fields_become_files_named_by_key(tmp_path: Path) -> None:
    samples = [{"__key__": "a/b", "__url__": "x.tar", "txt": b"hello", "cls": b"7"}]
    paths = list(dump(samples, f"{tmp_path}/{{key}}"))
    assert paths == [f"{tmp_path}/a/b.txt", f"{tmp_path}/a/b.cls"]
    assert (tmp_path / "a/b.txt").read_bytes() == b"hello"
    assert (tmp_path / "a/b.cls").read_bytes() == b"7"


def test_files_are_numbered_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(dump([{"__key__": "a", "txt": b"1"}, {"__key__": "b", "txt": b"2"}])) == [
        "out-000000.txt",
        "out-000001.txt",
    ]
    assert (tmp_path / "out-000001.txt").read_bytes() == b"2"


def test_the_field_may_be_a_part_of_the_pattern(tmp_path: Path) -> None:
    assert list(dump([{"__key__": "a", "txt": b"1"}], f"{tmp_path}/{{field}}-{{key}}")) == [f"{tmp_path}/txt-a"]


ATTACKS = [
    "../outside",
    "a/../../outside",
    "/etc/outside",
    "..",
    ".",
    "",
    "a/",
    "nul",
    "CON",
    "a/aux.x",
    "com1",
    "C:\\outside",
    "c:/outside",
    "\\\\server\\share",
    "a\0b",
]


@pytest.mark.parametrize("key", ATTACKS)
def test_a_key_cannot_lead_out_of_the_folder(tmp_path: Path, key: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(SecurityError):
        list(dump([{"__key__": key, "txt": b"x"}], f"{target}/{{key}}{{field:.0}}"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_link_inside_the_folder_is_not_followed(tmp_path: Path) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "link").symlink_to(outside)
    with pytest.raises(SecurityError, match="link"):
        list(dump([{"__key__": "link/a", "txt": b"x"}], f"{target}/{{key}}"))
    assert list(outside.iterdir()) == []


def test_force_replaces_a_link_and_not_what_it_names(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    target = tmp_path / "target"
    target.mkdir()
    (target / "a.txt").symlink_to(victim)
    with pytest.raises(StorageError):
        list(dump([{"__key__": "a", "txt": b"x"}], f"{target}/{{key}}"))
    list(dump([{"__key__": "a", "txt": b"x"}], f"{target}/{{key}}", force=True))
    assert victim.read_bytes() == b"precious"
    assert (target / "a.txt").read_bytes() == b"x"


def test_a_file_that_exists_stays_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"old")
    samples = [{"__key__": "a", "txt": b"new"}]
    with pytest.raises(StorageError, match="--force"):
        list(dump(samples, f"{tmp_path}/{{key}}"))
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_key_that_comes_twice_does_not_replace_the_first(tmp_path: Path) -> None:
    samples = [{"__key__": "a", "txt": b"first"}, {"__key__": "a", "txt": b"second"}, {"__key__": "b", "txt": b"third"}]
    assert len(list(dump(samples, f"{tmp_path}/{{key}}", handler=ignore_and_continue))) == 2
    assert (tmp_path / "a.txt").read_bytes() == b"first"


def test_folders_of_the_pattern_are_made(tmp_path: Path) -> None:
    list(dump([{"__key__": "a", "txt": b"1"}], f"{tmp_path}/new/er/{{key}}"))
    assert (tmp_path / "new/er/a.txt").read_bytes() == b"1"
    with pytest.raises(StorageError):
        dump([], f"{tmp_path}/new/er/a.txt/{{key}}")


def test_a_pattern_with_an_unknown_name_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\{index\}"):
        dump([], f"{tmp_path}/{{}}")
    with pytest.raises(SampleError, match="'kye'"):
        list(dump([{"__key__": "a", "txt": b"1"}], f"{tmp_path}/{{kye}}"))


def test_a_missing_field_is_an_error_that_lists_the_fields(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cls txt"):
        list(dump([{"__key__": "a", "txt": b"1", "cls": b"2"}], f"{tmp_path}/{{key}}", fields="jpg"))


NAMES = st.text(st.sampled_from("ab./\\\0~-: \n"), max_size=12)


@given(NAMES)
def test_whatever_the_name_its_parts_stay_inside(name: str) -> None:
    try:
        parts = safe_parts(name)
    except SecurityError:
        return
    root = "/the/folder"
    path = os.path.normpath(os.path.join(root, *parts))
    assert path.startswith(root + "/")


def test_fields_in_the_pattern_make_class_folders_again(tmp_path: Path) -> None:
    samples = [
        {"__key__": "x/a", "jpg": b"1", "cls": b"3", "json": b'{"label": "big/cat"}'},
        {"__key__": "b", "jpg": b"2", "cls": b"4", "json": b'{"label": "dog"}'},
    ]
    paths = list(dump(samples, f"{tmp_path}/new/{{cls:03d}}/{{json.label}}-{{key}}", fields="jpg"))
    assert [path.removeprefix(f"{tmp_path}/") for path in paths] == ["new/003/big_cat-x/a.jpg", "new/004/dog-b.jpg"]


def test_a_field_in_the_pattern_cannot_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="folder"):
        list(dump([{"__key__": "a", "jpg": b"1", "txt": b".."}], f"{tmp_path}/{{txt}}/{{key}}"))
    with pytest.raises(SampleError, match="'cls'"):
        list(dump([{"__key__": "a", "cls": b"1"}], f"{tmp_path}/{{clss}}/{{key}}"))
