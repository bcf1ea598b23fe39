"""`wl view`: the address, the browser, and the end."""

from __future__ import annotations

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from waiting import soon

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`started(url)` starts the command."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, **environment: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "webdataset", "view", *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running.append(subprocess.Popen(line, env=os.environ | environment, **pipes))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def asked(url: str) -> Any:
    with urllib.request.urlopen(f"{url}api/state", timeout=60) as reply:
        return json.load(reply)


def test_it_prints_its_address_and_ends_with_an_interrupt(
    make_shard: Callable[..., str], started: Callable[..., subprocess.Popen[str]]
) -> None:
    process = started("--nobrowser", make_shard(samples=5))
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    assert soon(lambda: asked(url)["mode"] == "indexed")
    assert asked(url)["samples"] == 5
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told.count("\n"), "Ctrl-C" in told) == (0, 1, True)


def test_a_small_field_that_expands_to_much_is_refused(
    make_shard: Callable[..., str], started: Callable[..., subprocess.Popen[str]]
) -> None:
    bomb = gzip.compress(bytes(8 << 20)) * 100
    process = started("--nobrowser", make_shard(files=[("a.json.gz", bomb)]))
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with urllib.request.urlopen(f"{url}api/field?n=0&field=json.gz", timeout=100) as reply:
        assert "more than" in json.load(reply)["error"]


def test_without_urls_it_shows_loaders(started: Callable[..., subprocess.Popen[str]]) -> None:
    process = started("--nobrowser")
    assert process.stdout is not None
    assert asked(process.stdout.readline().strip())["mode"] == "live"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_the_browser_is_given_a_private_file_and_not_the_token(
    make_shard: Callable[..., str], started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """All users of a machine can see the arguments of a program."""
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {seen}.tmp\nmv {seen}.tmp {seen}\n')
    browser.chmod(0o755)
    process = started(make_shard(), BROWSER=str(browser))
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert soon(seen.exists)
    address = seen.read_text()
    assert address.startswith("file://")
    path = address.removeprefix("file://")
    assert url in Path(path).read_text()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert not os.path.exists(path)


def test_a_port_that_is_taken_is_said(wl: Any, make_shard: Callable[..., str], closed_port: int) -> None:
    ended = wl("view", "--nobrowser", "--port", closed_port, make_shard())
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert (f" {closed_port} " in ended.err, "--port" in ended.err) == (True, True)


def test_shards_that_are_not_there_are_an_error(wl: Any) -> None:
    ended = wl("view", "--nobrowser", "/nowhere/{0..3}.tar")
    assert (ended.code, ended.err.count("\n"), "[url /nowhere/0.tar]" in ended.err) == (1, 1, True)


def test_ranges_and_channels_are_refused(wl: Any, make_shard: Callable[..., str]) -> None:
    for url in (f"{make_shard()}#1,2", "zpull://127.0.0.1:0"):
        ended = wl("view", "--nobrowser", url)
        assert (ended.code, ended.err.count("\n"), url in ended.err) == (2, 1, True)


def test_a_port_is_a_port(wl: Any) -> None:
    assert wl("view", "--port", "70000").code == 2
