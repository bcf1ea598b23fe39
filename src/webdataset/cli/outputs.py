"""Where a command's bytes go: stdout, a file that appears when it is complete, or a url."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def writing(url: str) -> Iterator[Any]:
    """A stream to write to; an error leaves nothing under the name of a local file."""
    from webdataset.gopen import gopen, rewritten_url
    from webdataset.storage.publish import AtomicFile
    from webdataset.writing.outputs import local_target

    if url == "-":
        stream = gopen("-", "wb")
        yield stream
        stream.flush()
        return
    path = local_target(rewritten_url(url))
    sink: Any = gopen(url, "wb") if path is None else AtomicFile(path)
    try:
        yield sink
        if isinstance(sink, AtomicFile):
            sink.publish()
        else:
            sink.close()
    except BaseException:
        getattr(sink, "abort", sink.close)()
        raise
