from __future__ import annotations

import io
import os

import pytest

from webdataset.errors import StorageError
from webdataset.storage.cache import contents
from webdataset.storage.cache.tail import CompleteFile, DirectSource, PartialFile, TailStream, open_shared


@pytest.fixture
def partial_file(tmp_path):
    """What another process has fetched so far; its lock is ours to hold."""

    def partial_file(data, *, wait_seconds=60.0):
        path = str(tmp_path / "a.tar")
        temporary = contents.temporary_name(path, 10)
        with open(temporary, "wb") as file:
            file.write(data)
        warnings = []
        options = {"length": 10, "wait_seconds": wait_seconds, "warn": warnings.append}
        return PartialFile(open_shared(temporary), path, **options), temporary, warnings

    return partial_file


def test_a_reader_gets_what_another_process_has_fetched_and_then_the_rest(tmp_path, partial_file):
    partial, temporary, _ = partial_file(b"01234")
    path = str(tmp_path / "a.tar")
    lock = contents.lock_now(contents.beside(path, "lock"))
    with TailStream(partial, None) as stream:
        assert (stream.length, stream.kept) == (10, True)
        assert stream.read1(3) == b"012"
        with open(temporary, "ab") as file:
            file.write(b"56789")
        os.rename(temporary, path)
        lock.release()
        assert stream.read() == b"3456789"


def test_when_the_other_process_is_gone_the_reader_goes_on_with_the_next_source(partial_file):
    partial, temporary, _ = partial_file(b"01234")
    with TailStream(partial, lambda alone: DirectSource(io.BytesIO(b"0123456789"))) as stream:
        assert stream.read(5) == b"01234"
        os.unlink(temporary)  # given up
        assert stream.read() == b"56789"


def test_a_next_source_with_other_bytes_is_an_error(partial_file):
    partial, temporary, _ = partial_file(b"01234")
    with TailStream(partial, lambda alone: DirectSource(io.BytesIO(b"01x3456789"))) as stream:
        assert stream.read(5) == b"01234"
        os.unlink(temporary)
        with pytest.raises(StorageError, match="changed"):
            stream.read()


def test_a_process_that_receives_nothing_for_too_long_is_left(tmp_path, partial_file):
    partial, _, warnings = partial_file(b"01234", wait_seconds=0.01)
    lock = contents.lock_now(contents.beside(str(tmp_path / "a.tar"), "lock"))
    asked = []
    other = tmp_path / "other"
    other.write_bytes(b"0123456789")

    def find(alone):
        asked.append(alone)
        return CompleteFile(open_shared(str(other)))

    with TailStream(partial, find) as stream:
        assert stream.read() == b"0123456789"
    lock.release()
    assert asked == [True]
    assert len(warnings) == 1
