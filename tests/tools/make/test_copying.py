"""Shards copied, passed over and verified."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from webdataset.errors import ShardWarning, StorageError
from webdataset.handlers import ignore_and_continue
from webdataset.tools.make.copying import copy_shards, target_of


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A web server for the test's folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "copies"
    target.mkdir()
    return target


def test_shards_are_copied_byte_for_byte(make_shards: Callable[..., list[str]], folder: Path) -> None:
    shards = make_shards(3)
    done = list(copy_shards(shards, str(folder), parallel=2))
    assert [copy.target for copy in done] == [f"{folder}/shard-00000{i}.tar" for i in range(3)]
    for shard, copy in zip(shards, done, strict=True):
        assert Path(copy.target).read_bytes() == Path(shard).read_bytes()


def test_shards_come_from_a_server(make_shard: Callable[..., str], server: str, folder: Path) -> None:
    path = make_shard("a.tar", 100)
    (copy,) = copy_shards([f"{server}/a.tar"], f"{folder}/")
    assert (copy.size, copy.skipped) == (Path(path).stat().st_size, False)
    (again,) = copy_shards([f"{server}/a.tar"], f"{folder}/")
    assert again.skipped


def test_what_is_there_is_passed_over_and_what_is_cut_is_copied_again(
    make_shards: Callable[..., list[str]], folder: Path
) -> None:
    shards = make_shards(2)
    list(copy_shards(shards, f"{folder}/"))
    with open(folder / "shard-000001.tar", "r+b") as file:
        file.truncate(100)
    assert [copy.skipped for copy in copy_shards(shards, f"{folder}/")] == [True, False]
    assert (folder / "shard-000001.tar").read_bytes() == Path(shards[1]).read_bytes()


def test_a_copy_of_the_same_size_but_other_content_is_found_by_checksum(
    make_shard: Callable[..., str], folder: Path
) -> None:
    shard = make_shard()
    (folder / "a.tar").write_bytes(bytes(Path(shard).stat().st_size))
    assert [copy.skipped for copy in copy_shards([shard], f"{folder}/")] == [True]
    assert [copy.skipped for copy in copy_shards([shard], f"{folder}/", checksum=True)] == [False]
    assert [copy.skipped for copy in copy_shards([shard], f"{folder}/", checksum=True)] == [True]


def test_a_source_that_fails_leaves_nothing(folder: Path) -> None:
    with pytest.raises(StorageError):
        list(copy_shards(["pipe:printf abc; exit 3"], f"{folder}/a.tar"))
    assert list(folder.iterdir()) == []


def test_a_missing_shard_can_be_skipped(make_shard: Callable[..., str], folder: Path) -> None:
    done = copy_shards(["nowhere.tar", make_shard()], f"{folder}/", handler=ignore_and_continue)
    assert [copy.target for copy in done] == [f"{folder}/a.tar"]


def test_an_archive_without_its_end_is_copied_with_a_warning(make_shard: Callable[..., str], folder: Path) -> None:
    with pytest.warns(ShardWarning, match="marker"):
        list(copy_shards([make_shard(end=False)], f"{folder}/"))


def test_shards_with_one_name_from_two_folders_clash(make_shard: Callable[..., str], folder: Path) -> None:
    shards = [make_shard("x/a.tar"), make_shard("y/a.tar")]
    with pytest.raises(StorageError, match="same name"):
        copy_shards(shards, f"{folder}/")


def test_a_shard_is_not_copied_onto_itself(make_shard: Callable[..., str]) -> None:
    shard = make_shard()
    before = Path(shard).read_bytes()
    with pytest.raises(StorageError, match="onto itself"):
        copy_shards([shard], shard)
    assert Path(shard).read_bytes() == before


def test_several_shards_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="/"):
        target_of("a.tar", str(tmp_path / "b.tar"), 2)


@pytest.mark.parametrize("source", ["-", "pipe:cat a.tar", "http://host/", "http://host/.."])
def test_a_source_without_a_name_needs_one(source: str) -> None:
    with pytest.raises(StorageError, match="no name"):
        target_of(source, "data/")


def test_an_interrupted_copy_ends_at_once_and_leaves_nothing(folder: Path) -> None:
    """The server sends a little and then nothing more."""
    asked, over = threading.Event(), threading.Event()

    class Stuck(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(bytes(1000))
            asked.set()
            over.wait()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stuck) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{web.server_port}/a.tar"
        command = [sys.executable, "-m", "webdataset", "cp", url, f"{folder}/"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                assert asked.wait(60)
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 130
            finally:
                process.kill()
                over.set()
                web.shutdown()
                thread.join()
    assert list(folder.iterdir()) == []


def test_progress_is_a_bar_of_tqdm_with_the_bytes(
    make_shards: Callable[..., list[str]], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shards = make_shards(3, samples=2)
    assert [shard.skipped for shard in copy_shards(shards[:2], f"{folder}/", progress=True)] == [False, False]
    assert "copy: 100%" in capfd.readouterr().err
    assert [shard.skipped for shard in copy_shards(shards, f"{folder}/", progress=True)] == [True, True, False]
    assert "copy: 100%" in capfd.readouterr().err
    copies = copy_shards(shards, f"{folder}/", progress=True, force=True)
    next(copies)
    copies.close()  # type: ignore[attr-defined]
    assert "copy: " in capfd.readouterr().err
    list(copy_shards(shards, f"{folder}/", force=True))
    assert not capfd.readouterr().err
