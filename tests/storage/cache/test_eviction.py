from __future__ import annotations

import os

import pytest

from webdataset.storage.cache.contents import CannotStoreError, Facts, beside, write_facts
from webdataset.storage.cache.eviction import Evictor, evict
from webdataset.storage.cache.folder import open_in_use


@pytest.fixture
def put(tmp_path):
    """Put a file of some bytes into the folder, last used at this second."""

    def put(name, size, used, *, facts=True):
        path = tmp_path / name
        path.write_bytes(bytes(size))
        os.utime(path, (used, used))
        if facts:
            write_facts(str(path), Facts(size, 0))
        return str(path)

    return put


def test_the_least_recently_used_files_are_removed_with_their_facts(tmp_path, put):
    old, new = put("old.tar", 100, 1), put("new.tar", 100, 2)
    assert evict(str(tmp_path), 150) == (100, [old])
    assert os.path.exists(new)
    assert not os.path.exists(beside(old, "facts"))


def test_files_in_use_and_files_of_others_stay(tmp_path, put):
    read, foreign, kept = put("read.tar", 100, 1), put("foreign.tar", 100, 2, facts=False), put("kept.tar", 100, 3)
    with open_in_use(read):
        assert evict(str(tmp_path), 0, keep=kept) == (200, [])
    assert evict(str(tmp_path), 0, keep=kept) == (100, [read])
    assert os.path.exists(foreign)


def test_a_function_of_the_users_decides_which_files_are_old(tmp_path, put):
    ages = {put("a.tar", 100, 2, facts=False): 1, put("b.tar", 100, 1, facts=False): 2}
    assert evict(str(tmp_path), 100, keyfn=ages.__getitem__)[1] == [str(tmp_path / "a.tar")]


def test_a_file_being_fetched_counts_with_its_announced_length(tmp_path, put):
    put("a.tar", 100, 1)
    (tmp_path / ".b.tar.0123456789abcdef.300.temp").write_bytes(b"so far")
    assert evict(str(tmp_path), 1000)[0] == 400


def test_nothing_is_stored_while_the_files_in_use_take_up_all_space(tmp_path, put):
    evictor = Evictor(str(tmp_path), 50)
    with (
        open_in_use(put("read.tar", 100, 1)),
        pytest.raises(CannotStoreError, match="50"),
        evictor.reserve(10),
    ):
        pass
    with evictor.reserve(10):
        assert os.listdir(tmp_path) == [".room"]
