from __future__ import annotations

from pathlib import Path

import pytest

from webdataset.storage.registry import OPENERS, open_url


def test_urls_of_every_kind_open(tmp_path, server):
    (tmp_path / "a").write_bytes(b"data")
    for url in (tmp_path / "a", f"file:{tmp_path}/a", f"pipe:cat {tmp_path}/a", server.whole("/a", b"data")):
        with open_url(url) as stream:
            assert stream.read() == b"data"


def test_an_unknown_scheme_and_a_wrong_mode_are_errors():
    with pytest.raises(ValueError, match="known are"):
        open_url("nosuch://x")
    with pytest.raises(ValueError, match="mode"):
        open_url("a", "r")


def test_every_scheme_has_an_opener():
    assert set(OPENERS) >= {"", "file", "pipe", "http", "https", "s3", "gs", "hf", "ais", "sftp", "scp", "ftps", "htgs"}


def test_no_opener_but_the_local_one_takes_a_path():
    with pytest.raises(OSError, match="no such file"):
        open_url(Path("none.tar"))
