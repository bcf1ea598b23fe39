"""Samples over ZeroMQ."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgpack
import pytest
import zmq

from cli_support import without_summary
from webdataset.errors import MissingPackageError, SampleError, StorageError
from webdataset.handlers import ignore_and_continue
from webdataset.tools.channels import ChannelAddress, Sender, received

PAIRS = [("zpush", "zpull"), ("zrpush", "zrpull"), ("zpub", "zsub"), ("zrpub", "zrsub")]


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where two processes meet: a socket of our own, so that no port is anybody else's."""
    return f"+ipc://{tmp_path}/channel"


def started(*words: object) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "webdataset", *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize(("out", "back"), PAIRS)
def test_a_dataset_goes_from_process_to_process(
    make_shard: Callable[..., str], place: str, members: Any, *, out: str, back: str
) -> None:
    shard = make_shard("a.tar", 300)
    tmp_path = Path(shard).parent
    with (
        started("concat", f"{back}{place}", "-o", tmp_path / "got.tar") as receiver,
        started("concat", shard, "-o", f"{out}{place}") as sender,
    ):
        assert without_summary(sender.communicate(timeout=60)[1].decode()) == ""
        assert without_summary(receiver.communicate(timeout=60)[1].decode()) == ""
        assert (sender.returncode, receiver.returncode) == (0, 0)
    assert members(tmp_path / "got.tar") == members(shard)


def in_thread(function: Callable[[], Iterator[Any]]) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(function()))
    thread.start()
    return thread, got


def listening() -> tuple[threading.Thread, list[Any], str]:
    """A receiver on a port that was free, and the url that its senders use."""
    told: SimpleQueue[str] = SimpleQueue()
    thread, got = in_thread(lambda: received("zpull://127.0.0.1:0", bound=told.put))
    return thread, got, told.get(timeout=60).replace("zpull", "zpush")


def test_tarcat_ends_the_stream_only_if_asked(wl: Any, make_shard: Callable[..., str]) -> None:
    shard = make_shard("a.tar", 2)
    thread, got, url = listening()
    for flags in ((), (), ("--eof",)):
        assert wl.old("tarcat", *flags, shard, "-o", url).code == 0
    thread.join()
    assert [sample["__key__"] for sample in got] == ["000000", "000001"] * 3
    assert got[1] == {"__key__": "000001", "cls": b"1", "txt": b"txt1", "__url__": "zpull://127.0.0.1:0"}


def test_tarp_cat_and_wl_concat_end_it_unless_told_not_to(wl: Any, make_shard: Callable[..., str]) -> None:
    shard = make_shard("a.tar", 1)
    thread, got, url = listening()
    assert wl.old("tarp", "cat", "-E", shard, "-o", url).code == 0
    assert wl("concat", "--noeof", shard, "-o", url).code == 0
    assert wl.old("tarp", "cat", shard, "-o", url).code == 0
    thread.join()
    assert len(got) == 3


@pytest.mark.parametrize(("binds", "connects"), [("zpull", "zpush"), ("zrpush", "zrpull")])
def test_port_0_is_a_free_one_and_the_command_says_which(
    make_shard: Callable[..., str], members: Any, *, binds: str, connects: str
) -> None:
    shard = make_shard("a.tar", 3)
    target = Path(shard).parent / "got.tar"

    def words(url: str) -> list[object]:
        return ["concat", url, "-o", target] if "pull" in url else ["concat", shard, "-o", url]

    with started(*words(f"{binds}://127.0.0.1:0")) as first:
        assert first.stderr is not None
        found = re.fullmatch(rf"wl: listening on {binds}(://127\.0\.0\.1:[1-9]\d*)\n", first.stderr.readline().decode())
        assert found is not None
        with started(*words(f"{connects}{found[1]}")) as second:
            assert without_summary(second.communicate(timeout=60)[1].decode()) == ""
        assert without_summary(first.communicate(timeout=60)[1].decode()) == ""
    assert members(target) == members(shard)


def test_samples_go_to_one_of_several_receivers(wl: Any, make_shard: Callable[..., str], place: str) -> None:
    shard = make_shard("a.tar", 60)
    threads = [in_thread(lambda n=n: received(f"zpull{place}{n}")) for n in range(2)]  # type: ignore[misc]
    assert wl.old("tarcat", "--eof", "--output-mode", "random", shard, "-o", f"zpush{place}{{0..1}}").code == 0
    for thread, _ in threads:
        thread.join()
    keys = [[sample["__key__"] for sample in got] for _, got in threads]
    assert all(keys)
    assert sorted(keys[0] + keys[1]) == [f"{i:06d}" for i in range(60)]


@pytest.mark.parametrize(
    "message", [b"\xc1", b"", b"[1, 2]", msgpack.packb([1]), msgpack.packb({"txt": b"x"}),
                msgpack.packb({"__key__": 7}), msgpack.packb({"__key__": "a", "txt": 7}),
                msgpack.packb({"__key__": "a", 7: b"x"})],
)  # fmt: skip
def test_what_is_no_sample_is_an_error_or_skipped(place: str, message: bytes) -> None:
    def sent() -> zmq.Socket[bytes]:
        socket = zmq.Context.instance().socket(zmq.PUSH)
        socket.connect(f"{place[1:]}")
        socket.send(message)
        socket.send(msgpack.packb({"__key__": "b", "txt": b"y", "__url__": b"evil"}))
        socket.send(msgpack.packb({"__EOF__": True}))
        return socket

    with sent():
        assert list(received(f"zpull{place}", ignore_and_continue)) == [
            {"__key__": "b", "txt": b"y", "__url__": f"zpull{place}"}
        ]
    with sent(), pytest.raises(SampleError):
        list(received(f"zpull{place}"))


def test_over_ipc_the_end_must_be_said(wl: Any, make_shard: Callable[..., str], place: str) -> None:
    ended = wl.old("tarcat", make_shard(), "-o", f"zpush{place}")
    assert ended.code == 1
    assert "lost" in ended.err


def test_the_direction_matters(wl: Any, make_shard: Callable[..., str], place: str) -> None:
    ended = wl("concat", f"zpush{place}")
    assert ended.code == 1
    assert "zpull, zsub" in ended.err
    assert "zpush, zpub" in wl("concat", make_shard(), "-o", f"zpull{place}").err
    with pytest.raises(StorageError) as raised:
        Sender(["zrpush+ipc:///no/such/folder/channel"])
    assert "/no/such/folder/channel" in str(raised.value.url)


def test_urls_are_taken_apart() -> None:
    assert ChannelAddress.of("zsub://host:7880") == ChannelAddress("SUB", False, "tcp://host:7880")
    with pytest.raises(ValueError, match="zpop"):
        ChannelAddress.of("zpop://host:7880")


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(MissingPackageError, match=r"webdataset\[net\]"):
        Sender(["zpush+ipc:///nowhere"])


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "[::]", "10.1.2.3", "eth0", "127.0.0.1.example"])
@pytest.mark.parametrize("scheme", ["zpull", "zrsub", "zpub", "zrpush"])
def test_a_port_that_other_machines_reach_is_not_bound_unless_allowed(scheme, host, wl, make_shard):
    url = f"{scheme}://{host}:0"
    ended = (
        wl("concat", url, "-o", "out.tar") if scheme in ("zpull", "zrsub") else wl("concat", make_shard(), "-o", url)
    )
    assert ended.code in (1, 2)
    assert "WDS_ALLOW_BIND=1" in ended.err
    assert ended.err.count("\n") == 1


def test_it_is_bound_when_it_is_allowed(monkeypatch):
    monkeypatch.setenv("WDS_ALLOW_BIND", "1")
    told: list[str] = []
    Sender(["zrpush://*:0"], bound=told.append).abort()
    assert told[0].startswith("zrpush://*:")
