"""Inputs other than whole shards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webdataset.tools.channels import Sender


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where two processes meet: a socket of our own, so that no port is anybody else's."""
    return f"+ipc://{tmp_path}/channel"


def in_thread(function: Callable[[], Iterator[Any]]) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(function()))
    thread.start()
    return thread, got


def test_a_range_of_a_channel(wl: Any, make_shard: Callable[..., str], place: str, names: Any) -> None:
    shard = make_shard("a.tar", 6)
    thread, got = in_thread(lambda: iter([wl("concat", "-f", "cls", f"zpull{place}#1,2")]))
    with Sender([f"zpush{place}"]) as sender:
        for i in range(3):
            sender.write({"__key__": f"{i}", "cls": b"%d" % i})
    thread.join()
    assert names(got[0].out) == ["1.cls", "2.cls"]
    assert wl("concat", f"zpull{place}#topic", shard).code == 2
