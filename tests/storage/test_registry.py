from __future__ import annotations

from webdataset.storage.registry import OPENERS


def test_every_scheme_has_an_opener():
    assert set(OPENERS) >= {"", "file", "pipe", "http", "https", "s3", "gs", "hf", "ais", "sftp", "scp", "ftps", "htgs"}
