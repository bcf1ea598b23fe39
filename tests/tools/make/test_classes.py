"""Classes get numbers from folders and lists, and keep them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from cli_support import without_summary
from servers.nginx import Nginx
from webdataset.cli import main

Capture = pytest.CaptureFixture[bytes]


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = main(list(words))
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


def classes_of(shard: Path) -> dict[str, str]:
    return {name: tar("-xOf", shard, name) for name in tar("-tf", shard).split() if name.endswith(".cls")}


def test_classes_are_told_and_written_beside_the_shards(pictures: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "create", str(pictures), "--classes", "-o", f"{tmp_path}/train-%02d.tar")
    assert code == 0
    assert err.splitlines()[:2] == ["class 0: cat", "class 1: dog"]
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
    assert f"--classes {listed}" in err
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
    for word in ("'dog'", f"{tmp_path}/list", str(pictures)):
        assert word in err
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
    assert (code, without_summary(err)) == (0, "class 0: cat\nclass 1: dog\n")
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
    assert "'ant'" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cat\n\ndog\n", "line 2"),
        ("cat\ncat\n", "line 2 .*'cat'"),
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
    assert (code, "'nolist'" in err) == (2, True)
    code, _, err = wl(capsysbinary, "create", "--classes", "nofolder", *output)
    assert (code, "--classes" in err) == (2, True)


def test_files_in_no_class_folder_are_counted(pictures: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    (pictures / "stray.jpg").touch()
    code, _, err = wl(capsysbinary, "create", str(pictures), "--classes", "-o", str(tmp_path / "a.tar"))
    assert code == 0
    assert "left out: 1 member\n" in err
