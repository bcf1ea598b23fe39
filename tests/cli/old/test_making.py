"""Old programs that make archives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from webdataset.cli.old.programs import main as old

Capture = pytest.CaptureFixture[bytes]


def program(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = old(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def tar(*words: object) -> str:
    return subprocess.run(["tar", *map(str, words)], capture_output=True, text=True, check=True).stdout


def test_tarcreate_takes_a_plan(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "x.jpg").write_bytes(b"X")
    (tmp_path / "plan").write_text("@jpg\tcls\nx.jpg\t3\n")
    output = tmp_path / "o.tar"
    assert program(capsysbinary, "tarcreate", "-C", str(tmp_path), "-o", str(output), str(tmp_path / "plan"))[0] == 0
    assert tar("-tf", output) == "000000000.jpg\n000000000.cls\n"


def test_tarcreate_takes_files_from_anywhere(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "x.jpg").write_bytes(b"X")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "plan").write_text(f"@jpg\n{tmp_path}/x.jpg\n")
    output = tmp_path / "o.tar"
    assert program(capsysbinary, "tarcreate", "-o", str(output), str(tmp_path / "in" / "plan"))[0] == 0
    assert tar("-tf", output) == "000000000.jpg\n"


def test_tarp_create_takes_a_recipe(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "recipe").write_text("b.txt text:hello\nREADME text:read me\na.txt pipe:echo hi\n")
    output = tmp_path / "out.tar"
    assert program(capsysbinary, "tarp", "create", "-o", str(output), str(tmp_path / "recipe"))[0] == 0
    assert tar("-tf", output) == "b.txt\nREADME\na.txt\n"


def test_tarp_create_gives_members_the_names_that_the_recipe_has(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "recipe").write_text("IMG.0030.jpg text:1\nIMG.0031.jpg text:2\n")
    output = tmp_path / "out.tar"
    assert program(capsysbinary, "tarp", "create", "-o", str(output), str(tmp_path / "recipe"))[0] == 0
    assert tar("-tf", output) == "IMG.0030.jpg\nIMG.0031.jpg\n"


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
