from __future__ import annotations

import io
import os
import resource
import signal
import threading

import pytest

from webdataset.errors import StorageError
from webdataset.storage.cache.contents import CannotStoreError
from webdataset.storage.cache.eviction import evict
from webdataset.storage.cache.folder import CacheRequest, Folder

DATA = bytes(range(256)) * 40


class Checks:
    def __init__(self, over=True, refuse=()):
        self.over = over
        self.refuse = refuse
        self.seen = []

    def check_start(self, data):
        if "head" in self.refuse:
            raise ValueError("a bad beginning")

    def is_complete(self, head, tail):
        self.seen.append((head, tail))
        return self.over

    def check_file(self, path):
        if "file" in self.refuse:
            raise ValueError("a bad file")


class Source(io.BytesIO):
    """Gives some bytes at a time, waits where it is told to, and fails at its end if it is told to."""

    def __init__(self, data=DATA, piece=1000, error=None, gate=None, length=None):
        super().__init__(data)
        self.piece, self.error, self.gate = piece, error, gate
        if length is not None:
            self.length = length

    def read1(self, size=-1):
        if self.gate is not None and self.tell() >= 5000:
            self.gate.wait(60)
        data = super().read1(min(size, self.piece))
        if not data and self.error is not None:
            raise self.error
        return data


@pytest.fixture
def told():
    return []


@pytest.fixture
def wanted(told):
    def wanted(source=Source, checks=None, name="a.tar"):
        return CacheRequest(name, source, checks or Checks(), told.append)

    return wanted


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def shown(folder):
    names = sorted(os.listdir(folder.path))
    assert [name for name in names if name.endswith((".temp", ".lock"))] == []
    return [name for name in names if not name.startswith(".")]


def test_a_file_is_read_while_it_is_fetched_and_then_from_its_name(folder, wanted):
    gate = threading.Event()
    with folder.open(wanted(lambda: Source(gate=gate, length=len(DATA)))) as stream:
        assert stream.length == len(DATA)
        assert stream.read(5000) == DATA[:5000]
        assert stream.tell() == 5000
        assert not os.path.exists(f"{folder.path}/a.tar")
        gate.set()
        rest = bytearray(10_000)
        assert stream.readinto(rest) == len(DATA) - 5000
        assert rest[: len(DATA) - 5000] == DATA[5000:]
        assert stream.read1() == stream.read() == b""
    with pytest.raises(ValueError, match="closed"):
        stream.read1()
    with folder.open(wanted(lambda: pytest.fail("fetched twice"))) as stream:
        assert stream.read() == DATA
        assert stream.seekable()


def test_the_first_and_last_bytes_are_looked_at_where_the_length_is_not_known(folder, wanted):
    checks = Checks()
    assert folder.get(wanted(checks=checks)) == f"{folder.path}/a.tar"
    assert checks.seen == [(DATA[:512], DATA[-1024:])]
    assert folder.get(wanted(lambda: Source(b"short"), checks, "b.tar")) == f"{folder.path}/b.tar"
    assert checks.seen[1:] == [(b"short", b"short")]
    folder.get(wanted(lambda: Source(length=len(DATA)), checks, "c.tar"))
    assert len(checks.seen) == 2


def test_what_may_have_been_cut_is_read_but_not_kept(folder, wanted):
    with folder.open(wanted(checks=Checks(over=False))) as stream:
        assert stream.read() == DATA
    assert shown(folder) == []
    with pytest.raises(CannotStoreError, match="cut"):
        folder.get(wanted(checks=Checks(over=False)))


@pytest.mark.parametrize("refuse", ["head", "file"])
def test_what_fails_a_check_is_an_error_and_not_kept(folder, wanted, refuse):
    with pytest.raises(ValueError, match="a bad"), folder.open(wanted(checks=Checks(refuse=refuse))) as stream:
        stream.read()
    with pytest.raises(ValueError, match="a bad"):
        folder.get(wanted(checks=Checks(refuse=refuse)))
    assert shown(folder) == []


def test_a_source_that_fails_gives_its_own_error_after_its_bytes(folder, wanted):
    with folder.open(wanted(lambda: Source(error=StorageError("the disk is on fire")))) as stream:
        assert stream.read(len(DATA)) == DATA
        with pytest.raises(StorageError, match="fire"):
            stream.read()
    with pytest.raises(StorageError, match="fire"):
        folder.get(wanted(lambda: Source(error=StorageError("the disk is on fire"))))
    assert shown(folder) == []


@pytest.mark.parametrize("length", [len(DATA) - 1, len(DATA) + 1])
def test_another_length_than_announced_is_an_error(folder, wanted, length):
    with (
        folder.open(wanted(lambda: Source(length=length))) as stream,
        pytest.raises(StorageError, match=f"{len(DATA)} of {length}"),
    ):
        stream.read()
    assert shown(folder) == []


@pytest.fixture
def small_disk():
    """No file may grow beyond 3,333 bytes, which fails as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3333, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_when_the_disk_is_full_both_readers_go_on_without_it(folder, wanted, told, small_disk):
    opened = []

    def fetch():
        opened.append(Source())
        return opened[-1]

    with folder.open(wanted(fetch)) as one, folder.open(wanted(fetch)) as two:
        assert [one.read(2000), two.read(2000)] == [DATA[:2000]] * 2
        assert [one.read(), two.read()] == [DATA[2000:]] * 2
    assert shown(folder) == []
    assert {type(exn) for exn in told} == {CannotStoreError}
    assert all(source.closed for source in opened)
    with pytest.raises(CannotStoreError):
        folder.get(wanted(fetch))


def test_a_lock_that_is_a_link_is_not_followed(folder, wanted, told, tmp_path):
    (tmp_path / ".a.tar.lock").symlink_to(tmp_path / "precious")
    with folder.open(wanted()) as stream:
        assert stream.read() == DATA
    assert "lock" in str(told[0])
    assert not (tmp_path / "precious").exists()


def test_a_name_that_is_too_long_for_the_disk_means_streaming(folder, wanted, told):
    with folder.open(wanted(name="n" * 255)) as stream:
        assert stream.read() == DATA
    assert len(told) == 1


def test_a_link_in_place_of_a_file_is_replaced_by_the_file(folder, wanted, tmp_path):
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "a.tar").symlink_to(tmp_path / "other")
    with folder.open(wanted()) as stream:
        assert stream.read() == DATA
    assert not (tmp_path / "a.tar").is_symlink()
    assert (tmp_path / "other").read_bytes() == b"other"


def test_a_file_on_its_way_in_is_counted_with_the_length_that_was_announced(tmp_path, wanted):
    gate = threading.Event()
    folder = Folder(str(tmp_path), size=25_000)
    folder.get(wanted(name="old"))
    with folder.open(wanted(lambda: Source(gate=gate, length=len(DATA)), name="new")) as stream:
        assert stream.read(10) == DATA[:10]
        assert evict(str(tmp_path), 25_000) == (2 * len(DATA), [])
        assert evict(str(tmp_path), 20_000) == (len(DATA), [f"{tmp_path}/old"])
        gate.set()
        assert stream.read() == DATA[10:]
        assert evict(str(tmp_path), 0) == (len(DATA), [])  # it is in use
    assert evict(str(tmp_path), 0) == (0, [f"{tmp_path}/new"])


def test_many_files_leave_no_thread_and_no_open_file(folder, wanted):
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    before = open_files(), threading.active_count()
    for i in range(300):
        with folder.open(wanted(name=f"{i % 100}.tar")) as stream:
            stream.read(None if i % 3 else 100)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("webdataset")]
    for thread in threads:
        thread.join(60)
    assert (open_files(), threading.active_count()) == before
