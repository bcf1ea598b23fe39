from __future__ import annotations

import pytest

from webdataset.cache import (
    pipe_cleaner,
    unique_cache_name,
    url_to_cache_name,
)


@pytest.mark.parametrize(
    ("url", "ndir", "name"),
    [
        ("http://h/a/b/c.tar", 0, "c.tar"),
        ("http://h/a/b/c.tar", 1, "b/c.tar"),
        ("gs://b/x/y.tar", 2, "x/y.tar"),
        ("s3://b/c.tar?x=1", 0, "c.tar"),
        ("pipe:cat a.tar", 0, "pipe%3Acat%20a.tar"),
        ("hf://d/a.tar", 0, "hf%3A%2F%2Fd%2Fa.tar"),
        ("/x/y/z.tar", 1, "y/z.tar"),
        ("pipe:" + "y" * 300, 0, "y" * 128),
    ],
)
def test_old_names_are_what_they_were(url, ndir, name):
    assert url_to_cache_name(url, ndir) == name


def test_names_are_unique_for_each_url_and_readable():
    urls = ["http://h/a/t.tar", "http://h/b/t.tar", "https://h/a/t.tar", "s3://h/a/t.tar", "http://h/a/t.tar?part=1",
            "http://h/a/t.tar?key=x", "http://h/a/t.tar?key=y", "pipe:cat /a/t.tar", "pipe:cat /b/t.tar"]  # fmt: skip
    names = {unique_cache_name(url) for url in urls}
    assert len(names) == len(urls)
    assert all(name.endswith("-t.tar") for name in names)


def test_a_new_signature_or_password_is_the_same_object_and_no_secret_is_in_the_name():
    plain = unique_cache_name("https://h/t.tar?versionId=1")
    signed = "https://me:pw@h/t.tar?versionId=1&X-Amz-Signature=secret&X-Amz-Date=2&X-Amz-Expires=3"
    assert unique_cache_name(signed) == plain
    assert "secret" not in unique_cache_name("pipe:curl https://me:secret@h/?token=secret")


@pytest.mark.parametrize(
    "url", ["http://h/", "http://h", "pipe:x/../../y", "http://h/a/..", "http://h/.ssh", "s3://b/" + "n" * 400 + ".tar"]
)
def test_any_url_gives_a_harmless_name(url):
    name = unique_cache_name(url)
    assert "/" not in name
    assert not name.startswith(".")
    assert len(name) < 200


def test_the_url_inside_a_command_is_found():
    assert pipe_cleaner("pipe:curl -s http://h/a.tar || true") == "http://h/a.tar"
    assert pipe_cleaner("pipe:cat a.tar") == "cat a.tar"
    assert pipe_cleaner("http://h/a.tar") == "http://h/a.tar"
