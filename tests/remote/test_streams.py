"""Streams under Tensorcom's urls: its format, its names, and none of its defects."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import zmq

import webdataset as wds
from webdataset.codecs import tenbin


def batches(count, start=0):
    return [[np.full((2, 3), i, "u1"), np.arange(i, i + 2, dtype="i4")] for i in range(start, start + count)]


def same(left, right) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def ends(tmp_path, kind):
    """The two ends of a stream: who sends and who receives."""
    place = f"+ipc://{tmp_path}/s"
    return {
        "push": (f"zpush{place}", f"zpull{place}"),
        "rpush": (f"zrpush{place}", f"zrpull{place}"),
        "pub": (f"zpub{place}", f"zsub{place}"),
        "rpub": (f"zrpub{place}", f"zrsub{place}"),
    }[kind]


@pytest.mark.parametrize("kind", ["push", "rpush", "pub", "rpub"])
def test_all_eight_kinds_carry_batches_in_order_to_the_end(tmp_path, kind) -> None:
    there, here = ends(tmp_path, kind)
    sent = batches(20)
    thread = threading.Thread(target=wds.serve, args=(sent, there), daemon=True)
    with wds.RemoteLoader(here) as loader:
        thread.start()
        found = [[np.asarray(array) for array in batch] for batch in loader]
    thread.join(60)
    assert len(found) == 20
    assert all(map(same, found, sent))


def test_an_old_receiver_reads_what_is_sent_and_an_old_sender_is_read(tmp_path) -> None:
    """As Tensorcom does it: header and data of each array alternate, in one message of several parts."""
    context = zmq.Context()
    old = context.socket(zmq.PULL)
    old.bind(f"ipc://{tmp_path}/a")
    with wds.Connection(f"zpush+ipc://{tmp_path}/a") as connection:
        connection.send(batches(1)[0])
        parts = old.recv_multipart()
    assert len(parts) == 4
    shape, dtype, _ = tenbin.decode_header(parts[0])
    assert (shape, dtype) == ((2, 3), np.dtype("u1"))
    old.close(linger=0)
    old = context.socket(zmq.PUSH)
    old.bind(f"ipc://{tmp_path}/b")
    with wds.zconnect(f"zrpull+ipc://{tmp_path}/b") as connection:
        old.send_multipart([bytes(part) for part in tenbin.encode_list(batches(1, 5)[0])])
        assert same(connection.recv(), batches(1, 5)[0])
        old.send(bytes(tenbin.encode_buffer(batches(1, 6)[0])))  # multipart=False
        assert same(connection.recv(), batches(1, 6)[0])
    old.close(linger=0)
    context.term()


def test_several_urls_are_all_read(tmp_path) -> None:
    urls = [f"zrpush+ipc://{tmp_path}/{n}" for n in range(3)]
    threads = [threading.Thread(target=send, args=(url, batches(4, 10 * n)), daemon=True) for n, url in enumerate(urls)]
    with wds.Connection(f"zrpull+ipc://{tmp_path}/{{0..2}}", total=12) as connection:
        for thread in threads:
            thread.start()
        found = sorted(int(batch[0][0, 0]) for batch in connection)
    for thread in threads:
        thread.join(60)
    assert found == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


def send(url, items):
    with wds.Connection(url) as connection:
        for item in items:
            connection.send(item)


def test_total_is_reached_and_len_is_the_epoch(tmp_path) -> None:
    sink = wds.Connection(f"zrpush+ipc://{tmp_path}/a", queue=20)
    with wds.Connection(f"zrpull+ipc://{tmp_path}/a", epoch=7, total=3) as source, sink:
        for batch in batches(5):
            sink.send(batch)
        assert len(source) == 7
        assert len(list(source)) == 3
        assert source.stats.count == 3


@pytest.fixture
def received(tmp_path):
    """What a connection with some options receives of a batch with infos."""

    def receive(**options):
        place = f"+ipc://{tmp_path}/{len(options)}{options}"
        sink = wds.Connection(f"zrpush{place}", infos=["image", "label"], noexpand=True)
        with sink, wds.Connection(f"zrpull{place}", noexpand=True, **options) as source:
            sink.send(batches(1)[0])
            return source.recv()

    return receive


def test_raw_gives_the_frames_and_infos_the_names(received) -> None:
    assert len(received(raw=True)) == 4
    assert received(infos=True)[1] == ["image", "label"]
    with pytest.raises(ValueError, match="required"):
        received(infos=["x", "y"])


def test_transforms_and_tensors_on_arrival(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    options = {"converters": "torch", "batch_transforms": [lambda array: array + 1, None]}
    source = wds.Connection(f"zrpull+ipc://{tmp_path}/a", **options)
    with wds.Connection(f"zrpush+ipc://{tmp_path}/a") as sink, source:
        sink.send([torch.zeros(2, 3, 4, 5), torch.ones(2, dtype=torch.int32)])
        images, labels = source.recv()
        assert images.shape == (2, 3, 4, 5)
        assert images.min() == 1
        assert isinstance(labels, torch.Tensor)


def test_an_error_of_the_sender_reaches_the_receiver(tmp_path) -> None:
    def broken():
        yield batches(1)[0]
        raise RuntimeError("no more disk")

    def send_all():
        with pytest.raises(RuntimeError):
            wds.serve(broken(), f"zrpush+ipc://{tmp_path}/a")

    thread = threading.Thread(target=send_all, daemon=True)
    thread.start()
    told = pytest.raises(wds.WorkerError, match="RuntimeError: no more disk")
    with wds.RemoteLoader(f"zrpull+ipc://{tmp_path}/a") as loader, told as raised:
        list(loader)
    assert raised.value.url == f"zrpull+ipc://{tmp_path}/a"
    thread.join(60)


def test_what_a_subscriber_has_missed_is_counted(tmp_path) -> None:
    with wds.Connection(f"zpub+ipc://{tmp_path}/a") as sink, wds.Connection(f"zsub+ipc://{tmp_path}/a") as source:
        sink.send(batches(1)[0])
        source.recv()
        sink._sent += 5  # five that were lost on the way
        sink.send(batches(1)[0])
        source.recv()
        assert source.lost == 5


def test_a_publisher_waits_for_its_first_subscriber_and_loses_nothing(tmp_path) -> None:
    thread = threading.Thread(target=wds.serve, args=(batches(10), f"zpub+ipc://{tmp_path}/a"), daemon=True)
    thread.start()
    with wds.Connection(f"zsub+ipc://{tmp_path}/a") as source:
        assert len(list(source)) == 10
        assert source.lost == 0
    thread.join(60)


ENDLESS = """
import sys
import webdataset as wds
stream = wds.WebDataset(sys.argv[2:], resampled=True, seed=1).decode().to_tuple("cls").batched(4)
wds.serve(stream, sys.argv[1])
"""


def test_endless_resampled_data_as_a_stream(tmp_path, shards) -> None:
    url = f"ipc://{tmp_path}/a"
    with subprocess.Popen([sys.executable, "-c", ENDLESS, f"zrpush+{url}", *shards]) as server:
        with wds.RemoteLoader(f"zrpull+{url}").with_epoch(50) as loader:
            assert [len(batch[0]) for batch in loader] == [4] * 50
            assert loader.stats()["batches_lost"] == 0
            with pytest.raises(wds.StateError, match="saved"):
                loader.state_dict()
        server.kill()


def test_a_dataset_connects_when_it_is_read(tmp_path) -> None:
    reader = wds.TensorcomDataset(f"zrpull+ipc://{tmp_path}/{{a,b}}", length=3)
    assert len(reader) == 3
    thread = threading.Thread(target=send, args=(f"zrpush+ipc://{tmp_path}/a", batches(3)), daemon=True)
    thread.start()
    assert len(list(reader)) == 3
    thread.join(60)


@pytest.mark.parametrize(
    ("batch", "named"),
    [({"x": np.zeros(3)}, "dict"), ([np.zeros(3), ["a", "b"]], "1 .*list"), ([np.array(["a"])], "<U1"), (3, "int")],
)
def test_what_the_format_has_no_room_for_is_told(tmp_path, batch, named: str) -> None:
    told = pytest.raises(wds.EncodingError, match=named)
    with wds.Connection(f"zrpush+ipc://{tmp_path}/a") as sink, told as raised:
        sink.send(batch)
    assert raised.value.hint


def test_64_bits_only_if_allowed(tmp_path) -> None:
    with wds.Connection(f"zrpush+ipc://{tmp_path}/a") as sink, pytest.raises(ValueError, match="64 bit"):
        sink.send([np.zeros(3)])


@pytest.mark.parametrize("parts", [[b"x"], [b"x" * 24, b""], [b"a", b"b", b"c"], [b"", b""]])
def test_damaged_messages_are_errors(tmp_path, parts) -> None:
    context = zmq.Context()
    raw = context.socket(zmq.PUSH)
    raw.bind(f"ipc://{tmp_path}/a")
    with wds.Connection(f"zrpull+ipc://{tmp_path}/a") as source:
        raw.send_multipart(parts)
        with pytest.raises(wds.SampleError, match="message") as raised:
            source.recv()
    assert raised.value.url == f"zrpull+ipc://{tmp_path}/a"
    raw.close(linger=0)
    context.term()


@pytest.mark.parametrize("url", ["zfoo://a", "zpush:a", "tcp://a:1", "zpush://"])
def test_what_is_no_stream_is_told(url: str) -> None:
    with pytest.raises(ValueError, match=f"'{url}'"):
        wds.Connection(url)


def test_a_port_open_to_others_needs_keys_or_a_word() -> None:
    with pytest.raises(wds.SecurityError, match="keys") as raised:
        wds.Connection("zpull://0.0.0.0:0")
    assert "insecure=True" in raised.value.hint
    wds.Connection("zpull://0.0.0.0:0", insecure=True).close()


def test_urls_of_two_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="kind"):
        wds.Connection(["zpush://127.0.0.1:0", "zpull://127.0.0.1:0"])


def test_an_exact_pipeline_can_be_a_stream(tmp_path, shards) -> None:
    pipeline = wds.WebDataset(shards, exact=True, seed=5).decode().to_tuple("cls").batched(16)
    thread = threading.Thread(target=wds.serve, args=(pipeline, f"zrpush+ipc://{tmp_path}/a"), daemon=True)
    thread.start()
    with wds.RemoteLoader(f"zrpull+ipc://{tmp_path}/a") as loader:
        found = sorted(int(number) for batch in loader for number in batch[0])
    assert found == list(range(129))


def test_statistics_count_items_and_bytes(tmp_path) -> None:
    with wds.Connection(f"zrpull+ipc://{tmp_path}/a"), wds.Connection(f"zrpush+ipc://{tmp_path}/a") as sink:
        for _ in range(3):
            sink.send([np.zeros(100, "u1")])
        assert (sink.stats.count, sink.stats.total) == (3, 300)
        assert "3 batches" in sink.stats.summary()
        assert sink.stats.rate() > 0 < sink.stats.recent_throughput()
