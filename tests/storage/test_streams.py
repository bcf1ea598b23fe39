from __future__ import annotations

import io

from webdataset.storage.shell.commands import CommandStream
from webdataset.storage.streams import partial_reads


def test_a_slow_source_is_read_as_it_arrives():
    with CommandStream("printf abc; sleep 1000") as stream:
        assert partial_reads(stream).read(1 << 20) == b"abc"


def test_a_stream_that_cannot_do_that_stays_itself():
    class Plain:
        def read(self, size):
            return b""

    plain = Plain()
    assert partial_reads(plain) is plain
    assert partial_reads(io.BytesIO(b"abc")).read(2) == b"ab"
