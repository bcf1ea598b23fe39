from __future__ import annotations

import os
import pathlib
import threading

import pytest

from webdataset.errors import MissingShardError, SecurityError, StorageError
from webdataset.gopen import gopen


@pytest.fixture
def secure(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    return monkeypatch


def test_a_missing_file_is_a_file_not_found_error_with_its_place(tmp_path):
    with pytest.raises(MissingShardError) as caught:
        gopen(f"{tmp_path}/none/a.tar")
    assert caught.value.url == f"{tmp_path}/none/a.tar"
    assert caught.value.hint.endswith(str(tmp_path))  # so far the path exists


def test_a_url_without_its_colon_is_recognised():
    with pytest.raises(MissingShardError) as caught:
        gopen("s3//bucket/a.tar")
    assert "s3://bucket/a.tar" in caught.value.hint


def test_a_directory_where_a_file_should_be_is_an_error_with_the_cure(tmp_path):
    with pytest.raises(StorageError) as caught:
        gopen(str(tmp_path))
    assert f"{tmp_path}/*.tar" in caught.value.hint


def test_any_other_trouble_keeps_its_cause(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError) as caught:
        gopen(f"{tmp_path}/file/a.tar")
    assert isinstance(caught.value.__cause__, NotADirectoryError)


def test_a_fifo_is_read_to_its_end(tmp_path):
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: pathlib.Path(path).write_bytes(b"x" * 100_000))
    writer.start()
    with gopen(path) as stream:
        assert len(stream.read(200_000)) == 100_000
    writer.join()


def test_secure_mode_allows_files_in_its_roots_and_nothing_around_them(tmp_path, secure):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.tar").write_bytes(b"good")
    (tmp_path / "secret").write_bytes(b"bad")
    (tmp_path / "root-not").mkdir()
    (tmp_path / "root-not" / "a.tar").touch()
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    secure.setenv("WDS_SECURE_ROOTS", str(root))
    with gopen(f"{root}/a.tar") as stream:
        assert stream.read() == b"good"
    for path in (
        f"{root}/../secret",
        f"{root}/link",
        f"{root}/folder/secret",
        f"{tmp_path}/root-not/a.tar",
        "/proc/self/environ",
        "/dev/stdin",
    ):
        with pytest.raises(SecurityError):
            gopen(path)


def test_a_root_may_be_a_link_itself(tmp_path, secure):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.tar").write_bytes(b"good")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    secure.setenv("WDS_SECURE_ROOTS", f"/nonexistent:{tmp_path}/root")
    with gopen(f"{tmp_path}/root/a.tar") as stream:
        assert stream.read() == b"good"
