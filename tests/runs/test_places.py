"""Places: the same in a folder and in a bucket."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from webdataset.errors import MissingShardError, StorageError
from webdataset.runs.places import Place


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(str(tmp_path / "run") if request.param == "folder" else request.getfixturevalue("s3_prefix"))


def test_files_by_name(place: Place) -> None:
    assert place.sizes("plans/") == {}
    assert place.read_if_there("plans/a") is None
    place.write("plans/a", b"one")
    place.write("plans/a", b"three")
    place.write("other/b", b"")
    assert place.read("plans/a") == b"three"
    assert dict(place.read_new({"plans/a": 2, "plans/none": 0})) == {"plans/a": b"ree"}
    assert place.sizes("plans/") == place.sizes("plans/a") == {"plans/a": 5}
    assert place.sizes("plans/b") == {}
    with pytest.raises(MissingShardError):
        place.read("plans/b")


def test_a_relative_folder_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Place("run").url == str(tmp_path / "run")


@pytest.mark.parametrize("url", ["-", "pipe:cat", "http://server/run"])
def test_where_a_run_cannot_be_kept(url: str) -> None:
    with pytest.raises(StorageError, match="run") as raised:
        Place(url)
    assert raised.value.url == url


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        Place(str(tmp_path / "file" / "run")).write("a", b"")


def test_a_run_is_for_its_user_only(tmp_path: Path) -> None:
    place = Place(f"{tmp_path}/runs/one")
    place.write("plan/a.json", b"{}")
    assert stat.S_IMODE((tmp_path / "runs" / "one").stat().st_mode) == 0o700
