from __future__ import annotations

import io
from pathlib import Path

import pytest

from webdataset.storage.registry import OPENERS, open_url
from webdataset.storage.shell.commands import CommandStream
from webdataset.storage.streams import arriving


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


def test_a_slow_source_is_read_as_it_arrives():
    with CommandStream("printf abc; sleep 1000") as stream:
        assert arriving(stream).read(1 << 20) == b"abc"


def test_a_stream_that_cannot_do_that_stays_itself():
    class Plain:
        def read(self, size):
            return b""

    plain = Plain()
    assert arriving(plain) is plain
    assert arriving(io.BytesIO(b"abc")).read(2) == b"ab"


def test_no_opener_but_the_local_one_takes_a_path():
    with pytest.raises(OSError, match="no such file"):
        open_url(Path("none.tar"))
