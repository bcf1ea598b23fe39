"""Exact datasets on servers without range requests: shards are fetched whole, and kept."""

from __future__ import annotations

import contextlib
import http.server
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import webdataset as wds
from tests_support import numbered_shards, tar_bytes
from webdataset.indices import wholeshards

SIZES = (7, 11, 2)
TOTAL = sum(SIZES)
KEYS = [f"{i:06d}" for i in range(TOTAL)]

pytestmark = pytest.mark.usefixtures("own_cache")


class PlainServer:
    """`python -m http.server`, which knows nothing of range requests."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.log = log
        words = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
        with open(log, "wb") as said:
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said)
        port = re.search(rb"port (\d+)", self._process.stdout.readline())[1].decode()
        self.urls = [f"http://127.0.0.1:{port}/{number}.tar" for number in range(len(SIZES))]

    def gets(self) -> list[str]:
        """The shards that were asked for so far; indices are looked for, too."""
        return sorted(re.findall(r'"GET (\S+tar) ', self.log.read_text()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    folder.mkdir()
    numbered_shards(folder, SIZES)
    return folder


@pytest.fixture
def plain(shards: Path, tmp_path: Path) -> Iterator[PlainServer]:
    server = PlainServer(shards, tmp_path / "requests")
    yield server
    server.close()


class OddHandler(http.server.SimpleHTTPRequestHandler):
    """A server with ranges, as long as `parts` says so, and other habits."""

    def send_head(self):
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not found or not self.server.gives_part():
            return super().send_head()
        path = Path(self.translate_path(self.path))
        first, last = int(found[1]), min(int(found[2]), path.stat().st_size - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{path.stat().st_size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        self.wfile.write(path.read_bytes()[first : last + 1])
        return None

    def do_HEAD(self):
        if self.server.has_head:
            super().do_HEAD()
        else:
            self.send_error(405)

    def end_headers(self):
        if self.server.lies:
            self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def log_message(self, *args):
        pass


class OddServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, *, parts: int = 0, has_head: bool = True, lies: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), lambda *args: OddHandler(*args, directory=str(folder)))
        self.parts, self.has_head, self.lies = parts, has_head, lies
        self.urls = [f"http://127.0.0.1:{self.server_address[1]}/{number}.tar" for number in range(len(SIZES))]

    def gives_part(self) -> bool:
        self.parts -= 1
        return self.parts >= 0

    def handle_error(self, *args):
        pass


@contextlib.contextmanager
def odd(folder: Path, **habits) -> Iterator[OddServer]:
    with OddServer(folder, **habits) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def exact(urls, **options):
    return wds.WebDataset(urls, exact=True, **{"seed": 1, "lanes": 4, **options}).to_tuple("__key__")


def keys(dataset) -> list[str]:
    return [key for (key,) in dataset]


def kept() -> list[str]:
    folder = wholeshards.settings.copies_dir
    return sorted(name for name in os.listdir(folder) if not name.startswith(".")) if os.path.isdir(folder) else []


# -- a server without range requests ---------------------------------------------------------------


def test_a_server_without_range_requests_gives_every_sample_and_each_shard_once(plain, caplog):
    dataset = exact(plain.urls)
    assert len(dataset) == TOTAL
    for _ in range(2):
        assert sorted(keys(dataset)) == KEYS
    assert sorted({*plain.gets()}) == ["/0.tar", "/1.tar", "/2.tar"]
    assert len(plain.gets()) == 3 + 1  # one byte was asked for
    assert len(kept()) == 3
    [said] = [record.getMessage() for record in caplog.records if record.name == "webdataset.cache"]
    assert wholeshards.settings.copies_dir in said
    assert plain.urls[0].rpartition("/")[0] in said


def test_the_order_is_that_of_the_same_shards_elsewhere(plain, shards):
    here = exact([str(shards / f"{number}.tar") for number in range(3)])
    assert keys(exact(plain.urls)) == keys(here)


def test_a_dataset_whose_index_is_known_finds_out_when_it_reads(plain, caplog):
    wds.index(plain.urls)
    before = len(plain.gets())
    dataset = exact(plain.urls)
    assert len(plain.gets()) == before
    assert sorted(keys(dataset)) == KEYS
    assert len(kept()) == 3
    assert len(caplog.records) == 1


@pytest.mark.parametrize("loader", ["DataLoader", "WebLoader"])
def test_ranks_and_worker_processes_share_the_copies(plain, loader):
    import torch

    kinds = {"DataLoader": torch.utils.data.DataLoader, "WebLoader": wds.WebLoader}
    seen = []
    for rank in range(2):
        dataset = exact(plain.urls, rank=rank, world_size=2)
        seen += keys(kinds[loader](dataset, batch_size=None, num_workers=2))
    assert sorted(seen) == KEYS
    assert len(plain.gets()) == 3 + 1  # one byte was asked for


def test_a_run_is_resumed_on_such_a_server(plain):
    whole = keys(exact(plain.urls))
    dataset = exact(plain.urls)
    passing = iter(dataset)
    begun = [next(passing)[0] for _ in range(9)]
    state = dataset.state_dict()
    other = exact(plain.urls)
    other.load_state_dict(state)
    assert begun + keys(other) == whole


def test_samples_by_number_and_by_key(plain):
    dataset = exact(plain.urls)
    assert dataset[8] == ("000008",)
    assert dataset.samples["000019"]["txt"] == b"txt19"
    assert dataset.samples[-1]["__url__"] == plain.urls[2]
    with wds.SampleReader(wds.index(plain.urls)) as samples:
        assert samples[8]["__key__"] == "000008"


def test_a_cache_folder_that_was_asked_for_is_the_one_that_is_used(plain, tmp_path, caplog):
    assert sorted(keys(exact(plain.urls, cache_dir=str(tmp_path / "mine")))) == KEYS
    assert plain.gets() == ["/0.tar", "/1.tar", "/2.tar"]
    assert not kept()
    assert not caplog.records


def test_what_was_found_out_goes_to_other_processes(plain):
    dataset = exact(plain.urls)
    before = len(plain.gets())
    assert sorted(keys(pickle.loads(pickle.dumps(dataset)))) == KEYS
    assert len(plain.gets()) == before


def test_a_shard_that_was_replaced_is_not_read_from_its_old_copy(plain, shards):
    dataset = exact(plain.urls)
    assert dataset.samples[0]["cls"] == b"0"
    data = tar_bytes([("other.cls", b"1"), ("other.txt", b"x" * 3000)])
    (shards / "0.tar").write_bytes(data)
    with pytest.raises(wds.ShardError) as raised:
        keys(exact(plain.urls))
    assert (raised.value.url, "wl index --force" in raised.value.hint) == (plain.urls[0], True)


# -- room --------------------------------------------------------------------------------------------


def test_a_disk_that_is_nearly_full_is_left_alone(plain, monkeypatch):
    full = type(shutil.disk_usage("/"))(total=100_000, used=94_000, free=6_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(wds.StorageError, match="free") as raised:
        exact(plain.urls)
    assert "cache_dir=" in raised.value.hint
    assert not kept()


def test_a_folder_that_takes_nothing_is_an_error_with_the_cure(plain, tmp_path):
    (tmp_path / "cache-home").write_text("this is no folder")
    with pytest.raises(wds.StorageError, match="cache-home") as raised:
        exact(plain.urls)
    assert "cache_dir=" in raised.value.hint


def test_the_limit_of_the_cache_holds_for_copies(plain, shards, monkeypatch):
    monkeypatch.setenv("WDS_CACHE_SIZE", str((shards / "1.tar").stat().st_size + 2000))
    assert sorted(keys(exact(plain.urls))) == KEYS
    assert len(kept()) < 3
    (shards / "more").mkdir()
    numbered_shards(shards / "more", [3] * 60)
    urls = [plain.urls[0].replace("0.tar", f"more/{number}.tar") for number in range(60)]
    assert len(exact(urls)) == 180  # a copy may be pushed out by the next before anything was read of it


def test_a_copy_may_be_asked_for_by_others_while_it_is_read(plain, tmp_path):
    for options in ({}, {"cache_dir": str(tmp_path / "mine")}):
        dataset = exact(plain.urls, shuffle_bytes=0, block_bytes=1024, **options)
        passing = iter(dataset)
        first = next(passing)
        other = exact(plain.urls, **options)  # notes that the copies were used now
        assert sorted(keys(other)) == KEYS
        assert sorted([first[0], *keys(passing)]) == KEYS


# -- other habits of servers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "habits",
    [{"has_head": False}, {"lies": True}, {"lies": True, "has_head": False}, {"parts": 1}, {"parts": 3}, {"parts": 4}],
    ids=str,
)
def test_every_sample_comes_once_whatever_a_server_says_of_its_ranges(shards, habits):
    with odd(shards, **habits) as server:
        dataset = exact(server.urls)
        for _ in range(2):
            assert sorted(keys(dataset)) == KEYS


def test_a_server_with_range_requests_is_read_in_parts(shards, caplog):
    with odd(shards, parts=1_000_000) as server:
        assert sorted(keys(exact(server.urls))) == KEYS
    assert not kept()
    assert not caplog.records


def test_a_shard_that_changes_when_the_server_gives_no_more_parts_is_an_error(shards):
    with odd(shards, parts=1_000_000) as server:
        dataset = exact(server.urls[:1], shuffle_bytes=0, block_bytes=1024)
        samples = dataset.samples
        assert samples[0]["__key__"] == "000000"
        server.parts = 0
        data = (shards / "0.tar").read_bytes()
        (shards / "0.tar").write_bytes(data.replace(b"txt6", b"TXT6"))
        os.utime(shards / "0.tar", (1, 1))
        with pytest.raises(wds.StorageError, match="changed") as raised:
            samples[6]
        assert raised.value.url == server.urls[0]


def test_a_scheme_of_ones_own_is_read_whole(shards, monkeypatch):
    monkeypatch.setitem(wds.gopen.gopen_schemes, "mine", lambda url, *args, **kw: (shards / url[7:]).open("rb"))
    dataset = exact([f"mine://{number}.tar" for number in range(3)])
    assert sorted(keys(dataset)) == KEYS
    assert len(kept()) == 3


@pytest.mark.parametrize("url", ["pipe:cat 0.tar", "http://host.invalid/0.tar.gz"])
def test_what_cannot_be_indexed_is_still_refused_at_construction(url, caplog):
    with pytest.raises(wds.ShardError) as raised:
        exact(url)
    assert raised.value.url == url
    assert not kept()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
