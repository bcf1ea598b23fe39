from __future__ import annotations

import os

from webdataset.storage.cache import contents


def test_facts_come_back_and_rubbish_fits_no_file(tmp_path):
    path = str(tmp_path / "a.tar")
    assert contents.read_facts(path) is None
    facts = contents.Facts(3, 4, "http://h/a.tar", '"etag"')
    contents.write_facts(path, facts)
    assert contents.read_facts(path) == facts
    for rubbish in ("", "[]", "{}", '{"size": "x", "crc32": 1}', "null"):
        (tmp_path / ".a.tar.facts").write_text(rubbish)
        assert contents.read_facts(path) is contents.UNREADABLE


def test_a_lock_is_had_by_one_and_leaves_no_file(tmp_path):
    path = str(tmp_path / "lock")
    lock = contents.lock_now(path)
    assert lock is not None
    assert contents.lock_now(path) is None
    lock.release()
    lock.release()
    assert os.listdir(tmp_path) == []
    again = contents.lock_now(path)
    assert again is not None
    again.release()
