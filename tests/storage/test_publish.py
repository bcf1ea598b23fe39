from __future__ import annotations

import errno
import os

import pytest

from webdataset.errors import StorageError
from webdataset.storage.publish import AtomicFile, as_storage_error


def test_a_file_appears_when_it_is_published_and_replaces_another(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"old")
    file = AtomicFile(str(tmp_path / "a.tar"), durable=True)
    file.write(b"new ")
    file.writev([b"and ", b"more"])
    assert (tmp_path / "a.tar").read_bytes() == b"old"
    file.publish()
    assert (tmp_path / "a.tar").read_bytes() == b"new and more"
    assert os.listdir(tmp_path) == ["a.tar"]


def test_an_aborted_file_leaves_nothing_and_cannot_be_published(tmp_path):
    file = AtomicFile(str(tmp_path / "a.tar"))
    file.write(b"half")
    file.abort()
    assert os.listdir(tmp_path) == []
    with pytest.raises(StorageError, match="incomplete"):
        file.publish()


def test_bytes_of_another_file_are_copied(tmp_path):
    (tmp_path / "source").write_bytes(b"0123456789")
    file = AtomicFile(str(tmp_path / "a.tar"))
    with open(tmp_path / "source", "rb") as source:
        file.append(source.fileno(), 2, 5)
        with pytest.raises(StorageError, match="3"):
            file.append(source.fileno(), 8, 5)
    assert os.listdir(tmp_path) == ["source"]


def test_the_first_free_of_numbered_names_is_taken(tmp_path):
    names = [(number, str(tmp_path / f"{number}.tar")) for number in range(3)]
    for expected in (0, 1):
        file = AtomicFile(str(tmp_path / "any.tar"))
        file.write(b"%d" % expected)
        assert file.publish_as_first_free(iter(names)) == names[expected]
    assert sorted(os.listdir(tmp_path)) == ["0.tar", "1.tar"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_errors_of_the_system_keep_their_number_and_name_the_file(number):
    error = as_storage_error(OSError(number, os.strerror(number)), "a.tar")
    assert (error.errno, error.url) == (number, "a.tar")
    assert bool(error.hint) == (number != errno.EIO)
