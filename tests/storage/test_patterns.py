from __future__ import annotations

import pytest

from webdataset.errors import MissingShardError
from webdataset.shardlists import expand_urls


def test_urls_are_split_at_double_colons_but_not_inside_an_address():
    assert expand_urls("a.tar::b-{0..1}.tar") == ["a.tar", "b-0.tar", "b-1.tar"]
    assert expand_urls("http://[::1]:8000/a.tar::http://[fe80::1]/b.tar") == [
        "http://[::1]:8000/a.tar",
        "http://[fe80::1]/b.tar",
    ]


def test_variables_come_from_the_environment_with_a_prefix(monkeypatch):
    monkeypatch.setenv("WDS_DATA", "/data/${SET}")
    monkeypatch.setenv("WDS_SET", "train-{0..1}")
    assert expand_urls("${DATA}.tar") == ["/data/train-0.tar", "/data/train-1.tar"]


def test_globs_list_local_files_in_order(tmp_path):
    for name in ("b.tar", "a.tar", "c.txt"):
        (tmp_path / name).touch()
    assert expand_urls(f"{tmp_path}/*.tar") == [f"{tmp_path}/a.tar", f"{tmp_path}/b.tar"]
    assert expand_urls(tmp_path / "?.tar") == [f"{tmp_path}/a.tar", f"{tmp_path}/b.tar"]
    assert expand_urls(f"file:{tmp_path}/a*.tar") == [f"{tmp_path}/a.tar"]


def test_a_glob_that_matches_nothing_is_an_error(tmp_path):
    with pytest.raises(MissingShardError) as raised:
        expand_urls(f"{tmp_path}/*.tar")
    assert raised.value.url == f"{tmp_path}/*.tar"


def test_a_file_whose_name_looks_like_a_glob_stands_for_itself(tmp_path):
    (tmp_path / "a[1].tar").touch()
    assert expand_urls(f"{tmp_path}/a[1].tar") == [f"{tmp_path}/a[1].tar"]


def test_a_question_mark_in_a_web_address_is_no_glob():
    assert expand_urls("http://host/a.tar?x=1") == ["http://host/a.tar?x=1"]


def test_a_windows_path_keeps_its_backslashes():
    assert expand_urls(r"C:\data\a-{0..1}.tar") == [r"C:\data\a-0.tar", r"C:\data\a-1.tar"]


def test_a_number_after_an_at_sign_says_how_many_shards_there_are(tmp_path):
    assert expand_urls("s3://b/train-@000002.tgz") == ["s3://b/train-000000.tgz", "s3://b/train-000001.tgz"]
    for literal in ("http://me@010.0.0.1/a.tar", "a@2023.tar", "pipe:cat x-@002.tar", "hf://datasets/o/n@main/a.tar"):
        assert expand_urls(literal) == [literal]
    existing = tmp_path / "x@002.tar"
    existing.write_bytes(b"")
    assert expand_urls(existing) == [str(existing)]
    with pytest.raises(ValueError, match="@000"):
        expand_urls("x-@000.tar")


def test_a_pattern_of_a_web_server_says_that_it_cannot_be_listed():
    with pytest.raises(MissingShardError) as raised:
        expand_urls("http://localhost/train-*.tar")
    assert (raised.value.url, "{000000..000146}" in raised.value.hint) == ("http://localhost/train-*.tar", True)
    assert expand_urls("http://localhost/a.tar?x=*") == ["http://localhost/a.tar?x=*"]
