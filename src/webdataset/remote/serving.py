"""Serve a pipeline: its batches by number to RemoteLoaders, or as they come to a stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from .addresses import is_stream
from .keys import Keys
from .producer import AHEAD, Producer, ProducerStatus
from .streams import Connection

ADDRESS = "tcp://127.0.0.1:7880"


def serve(
    pipeline: Any,
    url: str = ADDRESS,
    *,
    keys: Keys | None = None,
    insecure: bool = False,
    threads: int | None = None,
    ahead: int | str = AHEAD,
    watch: Callable[[ProducerStatus], Any] | None = None,
    bound: Callable[[str], Any] | None = None,
) -> None:
    """Make the batches of a pipeline for trainers on other machines, until the process ends.

    An exact pipeline, `WebDataset(..., exact=True)....batched(n)`, is served at `tcp://host:port` or `ipc:///path` to
    `RemoteLoader(url)`; any pipeline is sent, as a stream, to a url such as `zpush://host:port`. `threads` make the
    batches, and `ahead` is how many bytes of them are made before they are asked for. `keys` is a file of `wl
    keygen`; without one only programs of this machine are let in, unless `insecure=True`. `watch(status)` is called
    every second, `bound(address)` once, with the address that was bound.
    """
    if is_stream(url):
        with Connection(url, keys=keys, insecure=insecure, allow64=True) as connection:
            connection.serve(pipeline)
        return
    producer = Producer(pipeline, url, keys=keys, insecure=insecure, threads=threads, ahead=ahead)
    with closing(producer):
        if bound is not None:
            bound(producer.address)
        producer.run(watch)
