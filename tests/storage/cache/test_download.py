from __future__ import annotations

import io
import os

import pytest

from webdataset.errors import StorageError
from webdataset.storage.cache import contents
from webdataset.storage.cache.checks import NotATarError, TarChecks
from webdataset.storage.cache.download import Download
from webdataset.storage.cache.eviction import Evictor
from webdataset.storage.cache.folder import open_in_use
from webdataset.storage.cache.kinds import check_tar_format

DATA = bytes(2048)


class Source(io.BytesIO):
    def __init__(self, data=DATA, length=None):
        super().__init__(data)
        self.length = len(data) if length is None else length
        self.validator = '"v1"'


@pytest.fixture
def download(tmp_path):
    def download(source, validator=check_tar_format, size=-1):
        path = str(tmp_path / "a.tar")
        lock = contents.lock_now(contents.beside(path, "lock"))
        checks = TarChecks(validator, "http://host/a.tar")
        return Download(path, lock, source, checks, Evictor(str(tmp_path), size), url="http://host/a.tar")

    return download


def test_a_complete_file_gets_its_name_and_its_facts(tmp_path, download):
    found = download(Source())
    assert found.begin()
    assert any(name.endswith(".2048.temp") for name in os.listdir(tmp_path))
    found.run()
    assert (found.published, found.error, found.refused) == (True, None, None)
    assert (tmp_path / "a.tar").read_bytes() == DATA
    facts = contents.read_facts(str(tmp_path / "a.tar"))
    assert (facts.size, facts.url, facts.validator) == (2048, "http://host/a.tar", '"v1"')
    assert sorted(os.listdir(tmp_path)) == [".a.tar.facts", "a.tar"]


def test_a_body_that_ends_early_leaves_nothing(tmp_path, download):
    found = download(Source(length=5000))
    found.begin()
    found.run()
    assert isinstance(found.error, StorageError)
    assert "2048 of 5000" in str(found.error)
    assert os.listdir(tmp_path) == []


def test_an_error_page_is_noticed_by_its_first_bytes(tmp_path, download):
    source = Source(b"<html>busy</html>" * 50)
    with pytest.raises(NotATarError, match="<html>"):
        download(source).begin()
    assert source.closed
    assert os.listdir(tmp_path) == []


def test_a_folder_without_space_leaves_the_source_to_its_reader(tmp_path, download):
    used = str(tmp_path / "used.tar")
    with open(used, "wb") as file:
        file.write(bytes(2000))
    contents.write_facts(used, contents.Facts(2000, 0))
    source = Source()
    with open_in_use(used):
        found = download(source, size=1000)
        assert not found.begin()
    assert "1000" in str(found.refused)
    assert (found.rest, source.closed) == (DATA, False)
    assert not (tmp_path / "a.tar").exists()
