from __future__ import annotations

import pytest

from webdataset.errors import MissingShardError
from webdataset.storage.patterns import expanded
from webdataset.storage.urls import (
    scheme_of,
)


def test_urls_are_split_at_double_colons_but_not_inside_an_address():
    assert expanded("a.tar::b-{0..1}.tar") == ["a.tar", "b-0.tar", "b-1.tar"]
    assert expanded("http://[::1]:8000/a.tar::http://[fe80::1]/b.tar") == [
        "http://[::1]:8000/a.tar",
        "http://[fe80::1]/b.tar",
    ]


def test_variables_come_from_the_environment_with_a_prefix(monkeypatch):
    monkeypatch.setenv("WDS_DATA", "/data/${SET}")
    monkeypatch.setenv("WDS_SET", "train-{0..1}")
    assert expanded("${DATA}.tar") == ["/data/train-0.tar", "/data/train-1.tar"]


def test_globs_list_local_files_in_order(tmp_path):
    for name in ("b.tar", "a.tar", "c.txt"):
        (tmp_path / name).touch()
    assert expanded(f"{tmp_path}/*.tar") == [f"{tmp_path}/a.tar", f"{tmp_path}/b.tar"]
    assert expanded(tmp_path / "?.tar") == [f"{tmp_path}/a.tar", f"{tmp_path}/b.tar"]
    assert expanded(f"file:{tmp_path}/a*.tar") == [f"{tmp_path}/a.tar"]


def test_a_glob_that_matches_nothing_is_an_error(tmp_path):
    with pytest.raises(MissingShardError, match="no file matches"):
        expanded(f"{tmp_path}/*.tar")


def test_a_file_whose_name_looks_like_a_glob_stands_for_itself(tmp_path):
    (tmp_path / "a[1].tar").touch()
    assert expanded(f"{tmp_path}/a[1].tar") == [f"{tmp_path}/a[1].tar"]


def test_a_question_mark_in_a_web_address_is_no_glob():
    assert expanded("http://host/a.tar?x=1") == ["http://host/a.tar?x=1"]


def test_a_windows_path_keeps_its_backslashes():
    assert expanded(r"C:\data\a-{0..1}.tar") == [r"C:\data\a-0.tar", r"C:\data\a-1.tar"]
    assert scheme_of(r"C:\data\a.tar") == ""


def test_a_number_after_an_at_sign_says_how_many_shards_there_are(tmp_path):
    assert expanded("s3://b/train-@000002.tgz") == ["s3://b/train-000000.tgz", "s3://b/train-000001.tgz"]
    for literal in ("http://me@010.0.0.1/a.tar", "a@2023.tar", "pipe:cat x-@002.tar", "hf://datasets/o/n@main/a.tar"):
        assert expanded(literal) == [literal]
    existing = tmp_path / "x@002.tar"
    existing.write_bytes(b"")
    assert expanded(existing) == [str(existing)]
    with pytest.raises(ValueError, match="no shard"):
        expanded("x-@000.tar")


def test_a_pattern_of_a_web_server_says_that_it_cannot_be_listed():
    with pytest.raises(MissingShardError, match=r"web servers cannot be listed.*train-\{000000\.\.000146\}\.tar"):
        expanded("http://localhost/train-*.tar")
    assert expanded("http://localhost/a.tar?x=*") == ["http://localhost/a.tar?x=*"]
