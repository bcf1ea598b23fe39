from __future__ import annotations

import pathlib

import pytest

from webdataset.errors import SecurityError, StorageError
from webdataset.storage.urls import (
    UnsetVariableError,
    as_url,
    check_url_from_data,
    local_path,
    scheme_of,
    substituted,
)


def test_an_unset_variable_is_an_error_that_names_it():
    with pytest.raises(UnsetVariableError, match="WDS_NOSUCH"):
        substituted("${NOSUCH}/a.tar")
    with pytest.raises(AssertionError):
        substituted("${NOSUCH}/a.tar")


def test_variables_that_refer_to_themselves_are_an_error(monkeypatch):
    monkeypatch.setenv("WDS_LOOP", "${LOOP}x")
    with pytest.raises(ValueError, match="LOOP"):
        substituted("${LOOP}")


@pytest.mark.parametrize(
    ("url", "scheme"),
    [("a.tar", ""), ("./a:b.tar", ""), ("PIPE:cat", "pipe"), ("s3://b/a", "s3"), ("/x:y", ""), ("2024:1.tar", "")],
)
def test_the_scheme_of_a_url(url, scheme):
    assert scheme_of(url) == scheme


def test_paths_and_bytes_are_urls_but_numbers_are_not():
    assert as_url(pathlib.PurePosixPath("a/b.tar")) == "a/b.tar"
    assert as_url(b"a.tar") == "a.tar"
    with pytest.raises(TypeError, match="int"):
        as_url(7)


def test_file_urls_name_paths(tmp_path):
    (tmp_path / "a b.tar").touch()
    (tmp_path / "c%20d.tar").touch()
    assert local_path(f"file://{tmp_path}/a%20b.tar") == f"{tmp_path}/a b.tar"
    assert local_path(f"file:{tmp_path}/c%20d.tar") == f"{tmp_path}/c%20d.tar"
    assert local_path("file:///none%20here.tar") == "/none%20here.tar"
    assert local_path("http://host/a.tar") is None
    assert local_path("-") is None
    with pytest.raises(StorageError, match="host"):
        local_path("file://elsewhere/a.tar")


@pytest.mark.parametrize(
    "url",
    ["pipe:touch x", "PIPE:touch x", " pipe:touch x", "/etc/passwd", "file:/etc/passwd", "a.tar", "-", "",
     "sftp://h/a", "scp://h/a", "unknown:x", "\thttp://h/a", "C:/x"],
)  # fmt: skip
def test_data_from_elsewhere_names_no_command_and_no_file(url):
    with pytest.raises(SecurityError):
        check_url_from_data(url, "https://host/index.json")
    with pytest.raises(SecurityError):
        check_url_from_data(url, "pipe:curl https://host/index.json")


def test_data_from_elsewhere_may_name_stores_and_a_local_list_anything():
    for url in ("https://h/a.tar", "s3://b/a.tar", "ais://b/a.tar"):
        assert check_url_from_data(url, "http://host/index.json") == url
    assert check_url_from_data("pipe:cat a.tar", "lists/mine.yaml") == "pipe:cat a.tar"
