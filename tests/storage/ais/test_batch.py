from __future__ import annotations

import contextlib
import time

import pytest

from webdataset import ais
from webdataset.errors import StorageError
from webdataset.storage.ais.batch import batch_item, open_batch


@pytest.mark.parametrize("url", ["ais://b", "ais://b/a?etl_name=x", "http://h/a"])
def test_a_batch_takes_objects_and_members_only(url):
    with pytest.raises(StorageError):
        list(ais.get_batch([url]))


def test_a_completed_archive_is_read_in_linear_time(ais_double):
    """Twelve times the bytes in small reads: about 12 times the processor's time, not 144 times."""
    small, large = (ais_double.put(name, bytes(size)) for name, size in (("s", 2 << 20), ("l", 24 << 20)))
    assert min(seconds_to_read(large) for _ in range(3)) < 50 * min(seconds_to_read(small) for _ in range(5))


def seconds_to_read(url):
    with contextlib.closing(open_batch([batch_item(url)], streaming=False)) as stream:
        start = time.thread_time()
        while stream.read(4096):
            pass
        return time.thread_time() - start


def test_a_member_is_known_by_its_name_with_and_without_the_bucket():
    item = batch_item("ais://b/a.tar?archpath=x/1.jpg")
    assert item.is_called("a.tar/x/1.jpg")
    assert item.is_called("b/a.tar/x/1.jpg")
    assert not item.is_called("x/1.jpg")
