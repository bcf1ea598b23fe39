"""What bounds a dataset is named rightly: the network when it is slow, the CPU when it is busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from webdataset.tools.inspect.speed import Speed, SpeedTest, StageSpeed, measure, measure_workers, verdict

CHUNK = 256 << 10
PAUSE = 1.0
"""Far longer than a busy machine lets a process wait for a core."""


@pytest.fixture
def slow_server(tmp_path: Path) -> Iterator[str]:
    """A web server that sends 256 kB at a time, to each client, with pauses between."""

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = (tmp_path / self.path.lstrip("/")).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            try:
                for begin in range(0, len(data), CHUNK):
                    self.wfile.write(data[begin : begin + CHUNK])
                    time.sleep(PAUSE)  # what a slow network is
            except ConnectionError:
                return

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            thread.join()


def busy(sample: object) -> object:
    sum(i * i for i in range(60_000))
    return sample


def test_a_slow_server_is_the_bound(make_shard: Callable[..., str], slow_server: str) -> None:
    make_shard("a.tar", 500)
    speed = measure([f"{slow_server}/a.tar"], SpeedTest(seconds=20))
    assert speed.samples == 500
    assert speed.bound() == ("network", "read")
    assert "network" in verdict(speed)
    assert speed.megabytes_per_second < CHUNK / PAUSE / 1e6


def test_a_busy_function_is_the_bound(make_shard: Callable[..., str]) -> None:
    speed = measure([make_shard("a.tar", 100)], SpeedTest(function=busy, batchsize=10))
    assert speed.samples == 100
    assert speed.bound() == ("cpu", "map")
    assert "'map'" in verdict(speed)


def test_a_busy_function_is_the_bound_also_on_a_server_that_is_fast_enough(
    make_shard: Callable[..., str], slow_server: str
) -> None:
    make_shard("a.tar", 100)
    speed = measure([f"{slow_server}/a.tar"], SpeedTest(function=busy))
    assert speed.bound() == ("cpu", "map")


def test_a_slow_command_is_the_bound(make_shard: Callable[..., str]) -> None:
    path = make_shard("a.tar", 20)
    speed = measure([f"pipe:sleep 0.3; cat {path}"], SpeedTest())
    assert speed.bound() == ("command", "first_byte")
    assert speed.first_byte_seconds > 0.2


def test_local_data_is_read_as_fast_as_the_cpu_can(make_shard: Callable[..., str]) -> None:
    speed = measure([make_shard("a.tar", 2000)], SpeedTest())
    assert speed.bound() == ("cpu", "parse")
    assert speed.bytes == sum(len(f"txt{i}") + len(str(i)) for i in range(2000))


def test_it_stops_after_so_many_samples_or_seconds(make_shard: Callable[..., str]) -> None:
    shard = make_shard("a.tar", 200)
    assert measure([shard], SpeedTest(count=7)).samples == 7
    assert measure([shard] * 100, SpeedTest(function=busy, seconds=0.2)).samples < 20_000


def test_workers_are_measured_and_say_what_bounds_them(make_shards: Callable[..., list[str]]) -> None:
    speed = measure_workers(make_shards(2, 60), SpeedTest(function=busy, batchsize=5), 2)
    assert speed.samples == 115  # the first batch starts the clock
    assert speed.bound() == ("cpu", "map")


def test_workers_wait_for_a_slow_server(make_shards: Callable[..., list[str]], slow_server: str) -> None:
    names = [Path(path).name for path in make_shards(2, 400)]
    speed = measure_workers([f"{slow_server}/{name}" for name in names], SpeedTest(batchsize=20), 2)
    assert speed.samples == 780
    assert speed.bound() == ("network", "read")


def test_the_stages_are_told_apart(make_shard: Callable[..., str]) -> None:
    plan = SpeedTest(decode="basic", function=busy, fields="cls txt", shuffle=10, batchsize=4)
    speed = measure([make_shard("a.tar", 40)], plan)
    assert [stage.name for stage in speed.stages] == [
        "open", "first_byte", "read", "parse", "decode", "map", "fields", "shuffle", "batch",
    ]  # fmt: skip
    assert speed.as_dict()["bound_in"] == "map"


def test_idle_workers_mean_that_the_main_process_is_the_bound() -> None:
    stages = [StageSpeed("read", 1.0, 100.0, 1.0)]
    speed = Speed(2, 100, 10**6, 10.0, 0.0, 0.0, 0.1, 0.1, 1.0, stages, "disk")
    assert speed.bound() == ("cpu", "transfer")
    assert "main process" in verdict(speed)
