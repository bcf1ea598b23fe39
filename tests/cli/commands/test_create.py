"""wl create."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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


def test_create_makes_shards_of_class_folders(pictures: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    pattern = f"{tmp_path}/train-%02d.tar"
    assert wl(capsysbinary, "create", str(pictures), "--classes", "-o", pattern, "--maxcount", "2")[0] == 0
    assert tar("-tf", tmp_path / "train-00.tar") == "cat/1.cls\ncat/1.jpg\ndog/1.cls\ndog/1.jpg\n"
    assert tar("-tf", tmp_path / "train-01.tar") == "dog/2.cls\ndog/2.jpg\ndog/2.json\n"
    assert tar("-xOf", tmp_path / "train-01.tar", "dog/2.cls") == "1"


def test_a_member_that_comes_twice_is_an_error_in_one_archive_too(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "recipe").write_text("a.txt text:1\na.TXT text:2\nb.txt text:3\n")
    line = ["create", str(tmp_path / "recipe"), "-o", str(tmp_path / "a.tar")]
    code, _, err = wl(capsysbinary, *line)
    assert code == 1
    assert all(word in err for word in ("'a.txt'", "[member a.TXT, key a]", "rename"))
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
