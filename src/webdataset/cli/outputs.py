"""Write bytes to stdout, to a url, or to a file that appears when it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def writing(url: str) -> Iterator[Any]:
    """Open a stream to write to; after an error there is no file under the name of a local one."""
    from webdataset.gopen import gopen
    from webdataset.storage.publish import AtomicFile
    from webdataset.storage.urls import rewritten_url
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


def image_format(name: str) -> str:
    """Return the format of the image that --plot names.

    >>> image_format("histograms.PNG")
    'png'
    """
    from .grammar import UsageError

    ending = name.rpartition(".")[2].lower()
    if ending not in ("png", "pdf", "svg"):
        raise UsageError(f"--plot {name!r} is not an image; its name must end in .png, .pdf or .svg")
    return ending
