"""Staging: outputs and what lies beside them appear together, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from webdataset.runs.staging import MissingOutputError, Stages, UnseenFolderError, staged


def test_outputs_appear_when_they_are_published(tmp_path: Path) -> None:
    output = tmp_path / "out.tar"
    with staged([str(output)]) as places:
        Path(places.paths[0]).write_bytes(b"tar")
        Path(f"{places.paths[0]}.idx").write_bytes(b"index")
        assert not output.exists()
        places.publish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.tar", "out.tar.idx"]


def test_a_folder_that_a_worker_does_not_see_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(UnseenFolderError) as raised, staged([str(tmp_path / "deep" / "out.tar")]):
        """There is no place for it."""
    assert raised.value.url == str(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_published_leaves_nothing(tmp_path: Path) -> None:
    with staged([str(tmp_path / "out.tar")]) as places:
        Path(places.paths[0]).write_bytes(b"half")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_was_not_written(tmp_path: Path) -> None:
    with pytest.raises(MissingOutputError) as raised, staged([str(tmp_path / "out.tar")]) as places:
        places.publish()
    assert raised.value.url == str(tmp_path / "out.tar")


def test_urls_are_as_they_are() -> None:
    with staged(["s3://bucket/out.tar"]) as places:
        assert places.paths == ["s3://bucket/out.tar"]
        places.publish()


def test_only_whole_names_are_replaced_in_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with staged(["a.tar"]) as places:
        given = ["cp", "data.tar", "a.tar", "--out=a.tar", "x > a.tar", "a.tar.gz"]
        words = places.placed_in(given, ["a.tar"])
    place = places.paths[0]
    assert words == ["cp", "data.tar", place, f"--out={place}", f"x > {place}", "a.tar.gz"]


def test_an_output_replaces_an_older_one_and_keeps_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "out.tar").write_bytes(b"old")
    with staged([str(tmp_path / "out.tar")]) as places:
        Path(places.paths[0]).write_bytes(b"new")
        assert os.stat(os.path.dirname(places.paths[0])).st_mode & 0o700 == 0o700
        places.publish()
    assert (tmp_path / "out.tar").read_bytes() == b"new"


def test_a_hidden_folder_is_used_again_under_another_name(tmp_path: Path) -> None:
    spare, used = Stages(), []
    for name in ("a.tar", "b.tar"):
        with staged([str(tmp_path / name)], spare) as places:
            used.append(os.stat(os.path.dirname(places.paths[0])).st_ino)
            open(places.paths[0], "w").close()
            places.publish()
    assert used[0] == used[1]
    spare.remove()
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "b.tar"]


def test_a_hidden_folder_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    spare = Stages()
    for name in ("a.tar", "b.tar"):
        with staged([str(tmp_path / name)], spare) as places:
            open(places.paths[0], "w").close()
            places.publish()
        os.rmdir(os.path.dirname(places.paths[0]))
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "b.tar"]


def test_a_folder_with_what_a_failure_left_is_not_used_again(tmp_path: Path) -> None:
    spare = Stages()
    with staged([str(tmp_path / "a.tar")], spare) as places:
        open(places.paths[0], "w").close()  # and it is never published
    assert os.listdir(tmp_path) == []
