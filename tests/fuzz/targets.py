"""What is fuzzed: for each kind of foreign data honest examples, and what reads it.

A reader gives a value or raises one of the errors that its users expect, on one line; anything else is a finding.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import json
import pickle
import socket
import tarfile
import tempfile
import threading
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import webdataset as wds
from tests_support import numbered, tar_bytes
from webdataset.autodecode import Decoder, morehandlers
from webdataset.codecs import png, pnm, tenbin
from webdataset.errors import WebDatasetError
from webdataset.remote import wire
from webdataset.remote.producer import Producer
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunProgram, write_plan
from webdataset.runs.records import AttemptRecord, RecordWriter
from webdataset.runs.runs import Run
from webdataset.runs.status import status_of
from webdataset.tar.index import ShardIndex
from webdataset.tar.plain import MemberPlace
from webdataset.tools.make.creating import from_plan, from_recipe
from webdataset.tools.make.importing import from_image_folder, from_zip
from webdataset.tools.transform.mixtures import mixture_sources


@dataclass(frozen=True)
class Target:
    """One kind of data: examples of it, and the function that reads it."""

    examples: Callable[[], list[bytes]]
    read: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...] = field(default=(WebDatasetError,))


# -- fields ----------------------------------------------------------------------------------------


def decoded(name: str) -> Callable[[bytes], Any]:
    decoder = Decoder([morehandlers])
    return lambda data: decoder({"__key__": "a", name: data})


def pickled() -> list[bytes]:
    values: list[Any] = [
        {"a": [1, 2.5, None, True, "text", b"bytes", (1, 2)], "b": {1, 2}, "c": frozenset([3]), 2**70: -(2**70)},
        [deque([1, 2]), defaultdict(int, a=1), OrderedDict(a=1), Counter("abc"), 1 + 2j, range(5), slice(1, 2)],
        [datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.UTC), datetime.date(2020, 1, 1), datetime.timedelta(1)],
        [np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.array([1, [2]], dtype=object), np.float32(1)],
        [np.zeros(2, [("a", "f4", (2,)), ("b", "M8[ns]")]), np.array(["2020-01-01"], "M8[D]")],
    ]
    return [pickle.dumps(value, protocol) for value in values for protocol in (0, 2, 4, 5)]


def saved_arrays() -> list[bytes]:
    found = []
    arrays: list[Any] = [np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.asfortranarray(np.ones((3, 2), "i2"))]
    for array in [*arrays, np.zeros(2, [("a", "<f4", (2,)), ("b", "<M8[25s]")])]:
        stream = io.BytesIO()
        np.save(stream, array)
        found.append(stream.getvalue())
    return found


def tenbins() -> list[bytes]:
    return [bytes(tenbin.encode_buffer([np.arange(5, dtype="f4"), np.ones((2, 3), "u1")], ["a", "b"]))]


def cbors() -> list[bytes]:
    import cbor2

    values: list[Any] = [{"a": [1, -2, 2.5, None, True, "text", b"bytes"], "b": {(1, 2): {3}}}, 2**70, -(2**70)]
    return [cbor2.dumps(value) for value in [*values, datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)]]


# -- images, films and sounds ----------------------------------------------------------------------


def in_every_way(name: str, *ways: Any) -> Callable[[bytes], Any]:
    """The field decoded by each of these handlers; the last error counts."""
    decoders = [Decoder([way]) for way in ways]

    def read(data: bytes) -> None:
        failure = None
        for decoder in decoders:
            try:
                decoder({"__key__": "a", "__url__": "u", name: data})
            except WebDatasetError as error:
                failure = error
        if failure is not None:
            raise failure

    return read


def photos() -> list[bytes]:
    found = []
    rng = np.random.default_rng(0)
    for mode, channels in (("RGB", (3,)), ("L", ()), ("CMYK", (4,))):
        picture = Image.fromarray(rng.integers(0, 255, (40, 56, *channels), np.uint8), mode)
        for options in ({}, {"progressive": True}, {"subsampling": 0, "restart_marker_rows": 1}):
            stream = io.BytesIO()
            picture.save(stream, "JPEG", quality=30, **options)
            found.append(stream.getvalue())
    return found


def deep_images() -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for channels in ((), (2,), (3,), (4,)):
        values = rng.integers(0, 65535, (6, 9, *channels), np.uint16)
        found.append(png.encode_deep(values))
        if channels in ((), (3,)):
            found.append(pnm.encode_deep(values))
    found += [b"P2 # gray\n3 2 9\n1 2 3 4 5 6\n", b"P3 1 1 65535\n1 2 65535\n"]
    for values in (rng.integers(0, 255, (7, 5, 3), np.uint8), rng.random((7, 5), np.float32)):
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
            stream = io.BytesIO()
            Image.fromarray(values).save(stream, "TIFF", compression=compression)
            found.append(stream.getvalue())
    return found


def films() -> list[bytes]:
    import av

    found = []
    for form, codec in (("webm", "libvpx"), ("mp4", "mpeg4")):
        stream = io.BytesIO()
        with av.open(stream, "w", format=form) as container:
            video = container.add_stream(codec, rate=10)
            video.width, video.height, video.pix_fmt = 16, 16, "yuv420p"
            for gray in range(5):
                pixels = np.full((16, 16, 3), 40 * gray, np.uint8)
                container.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(video.encode())
        found.append(stream.getvalue())
    return found


# -- archives and indices --------------------------------------------------------------------------


def archives() -> list[bytes]:
    found = [tar_bytes(numbered(3)), tar_bytes(numbered(3), end=False)]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            for name in ("a.txt", "ü" * 70 + ".cls", "d/" * 60 + "x.json"):
                member = tarfile.TarInfo(name)
                member.size, member.mtime = 5, 1.5 if form == tarfile.PAX_FORMAT else 1
                archive.addfile(member, io.BytesIO(b"12345"))
        found.append(stream.getvalue())
    return found


def read_archive(data: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar"
        path.write_bytes(data)
        return len(list(wds.WebDataset(str(path), shardshuffle=False, empty_check=False)))


def indices() -> list[bytes]:
    one = [("a", ["txt", "cls"], [MemberPlace("a.txt", 0, 512, 5, 1024), MemberPlace("a.cls", 1024, 1536, 1, 2048)])]
    two = [*one, ("b", ["txt"], [MemberPlace("b.txt", 2048, 2560, 9, 3072)])]
    return [ShardIndex.from_entries(samples, size=10240, version="1-2").to_bytes() for samples in (one, two)]


def read_index(data: bytes) -> Any:
    index = ShardIndex.from_bytes(data)
    members = [index.members(i) for i in range(min(index.samples, 100))]
    return index.starts.tolist(), list(index.keys()), members, index.field_names, index.field_bytes("txt")


# -- servers ---------------------------------------------------------------------------------------


def http_answers() -> list[bytes]:
    body = b"0123456789"
    chunked = b"5\r\n01234\r\n5;x=y\r\n56789\r\n0\r\nTrailer: x\r\n\r\n"
    return [
        b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: "1"\r\nAccept-Ranges: bytes\r\n\r\n' + body,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n" + body,
        b"HTTP/1.0 404 Not Found\r\n\r\nnothing",
        b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + body,
    ]


def read_answer(answer: bytes) -> bytes:
    """Read a url from a server that says just this to whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        server = threading.Thread(target=_answer, args=(listener, answer), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/a"
        try:
            with wds.gopen(url, storage_options={"retries": 0, "patience": 0, "timeout": 5}) as stream:
                return bytes(stream.read(1 << 20))
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            server.join(10)


def _answer(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(5)
            try:
                connection.recv(65536)
                connection.sendall(answer)
            except OSError:
                continue


# -- batches from other machines -------------------------------------------------------------------


def batch_messages() -> list[bytes]:
    """Messages as one piece: the length of each frame before it."""
    ragged = np.empty(2, object)
    ragged[:] = [np.arange(3), np.arange(2)]
    values: list[Any] = [
        (np.arange(600.0).reshape(20, 30), ["a", "b"], np.float32(1), 2**70, None),
        {"x": np.zeros((3, 400), "u1"), "y": b"12345" * 400, "z": ragged, "t": np.array(["2020-01-01"], "M8[D]")},
        [np.zeros(300, [("a", "<f4", (2,)), ("b", "S5")])],
    ]
    return [_joined(wire.packed_batch([value], counts={}, reasons={})) for value in values] + [
        _joined([wire.packed({"kind": "get", "id": 1, "epoch": 0, "feeds": 4, "at": [0, 0, 4, 0, 1, 0, 8, 0]})])
    ]


def _joined(frames: list[Any]) -> bytes:
    return b"".join(len(bytes(frame)).to_bytes(4, "little") + bytes(frame) for frame in frames)


def read_batch(data: bytes) -> Any:
    frames = []
    while len(data) >= 4:
        size = int.from_bytes(data[:4], "little")
        frames.append(bytearray(data[4 : 4 + size]))
        data = data[4 + size :]
    return wire.unpacked_batch(frames[0], frames[1:]) if frames else wire.unpacked(b"")


def requests() -> list[bytes]:
    """What trainers send, one request after the other."""
    who = {"job": "", "rank": 0, "world": 1, "session": "s", "name": "n", "turn": 1}
    outline = {"kind": "outline", "id": 1, "epoch": 0, "start": 0, "feeds": 4, "order": 1}
    get = {"kind": "get", "id": 2, "epoch": 0, "feeds": 1, "at": [0, 0, 1, 0]}
    leave = {"kind": "leave", "epoch": 0, "feeds": 1, "feed": [0, 0, 1]}
    others: list[dict[str, Any]] = [{"kind": kind} for kind in ("status", "ping", "bye")]
    hello = {"kind": "hello", "version": wire.VERSION, **who}
    return [_joined([wire.packed({"kind": "join", **who}), *map(wire.packed, (outline, get, leave))])] + [
        _joined([wire.packed(message)]) for message in (hello, {"kind": "join", **who}, *others)
    ]


@functools.cache
def live_producer() -> tuple[Producer, threading.Thread]:
    producer = Producer(exact(), "tcp://127.0.0.1:0", threads=1)
    thread = threading.Thread(target=producer.run, daemon=True)
    thread.start()
    return producer, thread


def serve_requests(data: bytes) -> None:
    """A producer that has got these requests says how it is, as ever."""
    import zmq

    producer, thread = live_producer()
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger, client.rcvtimeo = 0, 10_000
        client.connect(producer.address)
        while len(data) >= 4:
            size = int.from_bytes(data[:4], "little")
            client.send(data[4 : 4 + size])
            data = data[4 + size :]
        client.send(wire.packed({"kind": "status"}))
        while thread.is_alive() and wire.unpacked(client.recv_multipart()[0]).get("kind") != "status":
            """Answers to what came before."""
    if not thread.is_alive():
        raise AssertionError("the producer has ended")


def stream_messages() -> list[bytes]:
    return [_joined(tenbin.encode_list([np.arange(5, dtype="f4"), np.ones((2, 3), "u1")], ["~ab10001", "b"]))]


def read_stream_message(data: bytes) -> Any:
    frames = []
    while len(data) >= 4:
        size = int.from_bytes(data[:4], "little")
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return tenbin.decode_list(frames, infos=True)


# -- states and recipes ----------------------------------------------------------------------------


@functools.cache
def shards() -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    paths = [folder / f"{number}.tar" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(tar_bytes(numbered(7, number * 7)))
    return [str(path) for path in paths]


def exact() -> Any:
    return wds.WebDataset(shards(), exact=True, seed=1, shardshuffle=False).batched(2)


def streamed() -> Any:
    return wds.WebDataset(shards(), shardshuffle=100, seed=1).shuffle(5, seed=1)


def states() -> list[bytes]:
    found = []
    for make in (exact, streamed):
        dataset = make()
        items = iter(dataset)
        for _ in range(4):
            next(items)
        found.append(json.dumps(dataset.state_dict()).encode())
    return found


def read_state(data: bytes) -> None:
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return  # JSON is read by the program
    for make in (exact, streamed):
        dataset = make()
        try:
            dataset.load_state_dict(state)
            list(dataset)
        except WebDatasetError:
            continue


def recipes() -> list[bytes]:
    return [
        b"a.txt text:hello\na.cls\ttext:7\nb.txt file.txt\n",
        b"name,@file\na,b.jpg\nc,d.jpg\n",
        b"{0..9}.txt text:x\n",
    ]


def read_recipe(data: bytes) -> None:
    text = data.decode("utf-8", "replace").splitlines(keepends=True)
    for read in (from_recipe, from_plan):
        try:
            for item in read(text, origin="http://elsewhere/recipe"):
                item.name  # noqa: B018 - what it would fetch is not fetched
        except WebDatasetError:
            continue


def metadata() -> list[bytes]:
    return [
        b'file_name,text\nd/a.jpg,"hello, ""you"""\nb.jpg,x\n',
        b'{"file_name": "d/a.jpg", "text": "x", "boxes": [[1, 2.5]]}\n{"file_name": "b.jpg"}\n',
    ]


def read_metadata(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("metadata.csv", "metadata.jsonl"):
            path = Path(folder) / name
            path.write_bytes(data)
            with contextlib.suppress(WebDatasetError):
                for item in from_image_folder("http://elsewhere", str(path)):
                    if item.name.endswith(".json"):
                        item.content()


def zips() -> list[bytes]:
    found = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name in ("d/a.txt", "d/b.txt", "c.json"):
                archive.writestr(name, name * 20)
        found.append(stream.getvalue())
    return found


def read_zip(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        path = Path(folder) / "a.zip"
        path.write_bytes(data)
        for item in from_zip(str(path), opened):
            item.content()


@functools.cache
def run_folder() -> Path:
    """A run of two items, of which one is done."""
    place = Place(tempfile.mkdtemp(prefix="fuzz-"))
    items = [Item(name, (f"{name}.tar",), (f"{place.url}/{name}.out",), 5, "1-2") for name in "ab"]
    program = RunProgram({"kind": "command", "words": ["true", "{}"], "outputs": []}, "d1")
    plan, run = write_plan(place, program, TaskOptions(), items), Run(place.url)
    with run.owned(plan, "local") as generation:
        submission = run.submission(plan, "local", [0, 1], 1, generation=generation, tried={1: 2})
        writer = RecordWriter(place, submission.task_name([0]))
        for status in ("start", "done"):
            writer.write(AttemptRecord("a", status, 1, plan.id, generation.name, digest="d1", final=status == "done"))
    return Path(place.url)


def run_files() -> list[Path]:
    return sorted(path for path in run_folder().rglob("*") if path.is_file())


def read_run(data: bytes) -> None:
    """Any of the files of a run says this; what it says is looked at as `wl jobs status` and `logs` do."""
    failure = None
    for path in run_files():
        before = path.read_bytes()
        path.write_bytes(data)
        try:
            run = Run(str(run_folder()), foreign=True)
            status_of(run).text()
            for name in run.submissions():
                list(run.read_submission(name).tasks())
        except WebDatasetError as error:
            failure = error
        finally:
            path.write_bytes(before)
    if failure is not None:
        raise failure


def mixtures() -> list[bytes]:
    return [b'{"sources": [{"shards": "http://h/a-{0..9}.tar", "weight": 1.5, "shuffle": 10}]}']


def read_mixture(data: bytes) -> None:
    try:
        spec = json.loads(data)
    except (ValueError, RecursionError):
        return
    mixture_sources(spec, "http://elsewhere/mix.json")


TARGETS: dict[str, Target] = {
    "pickle": Target(pickled, decoded("pyd")),
    "npy": Target(saved_arrays, decoded("npy")),
    "tenbin": Target(tenbins, decoded("ten")),
    "cbor": Target(cbors, decoded("cbor")),
    "jpeg": Target(
        photos,
        in_every_way(
            "jpg", "rgb8", "rgba8", "l8", "pixels", wds.images.train(8), wds.images.pipeline(wds.images.random_crop(5))
        ),
    ),
    "image": Target(deep_images, in_every_way("png", "pixels", "rgb8", "rgba", "l", "pil")),
    "film": Target(
        films, in_every_way("mp4", wds.video(fps=4), wds.video(frames=3), wds.torch_video, wds.video(start="random"))
    ),
    "batch": Target(batch_messages, read_batch),
    "producer": Target(requests, serve_requests),
    "stream": Target(stream_messages, read_stream_message, (ValueError,)),
    "tar": Target(archives, read_archive),
    "index": Target(indices, read_index),
    "http": Target(http_answers, read_answer, (OSError,)),
    "state": Target(states, read_state),
    "recipe": Target(recipes, read_recipe),
    "metadata": Target(metadata, read_metadata),
    "zip": Target(zips, read_zip),
    "run": Target(lambda: [path.read_bytes() for path in run_files()], read_run),
    "mixture": Target(mixtures, read_mixture),
}
