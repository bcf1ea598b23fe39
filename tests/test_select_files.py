"""A member that select_files leaves out is passed over, whatever its size."""

from __future__ import annotations

import io
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from tests_support import sparse_tar, tar_bytes
from webdataset.errors import LimitError, ShardError
from webdataset.tar.large import LargeMember, LargeMembers

pytestmark = pytest.mark.usefixtures("own_cache")

GIB = 1 << 30


def texts(name: str) -> bool:
    return name.endswith(".txt")


@pytest.fixture
def huge(tmp_path: Path) -> str:
    """A shard with a member of 9 GiB, on a few blocks of the disk."""
    path = tmp_path / "huge.tar"
    sparse_tar(path, [("a.txt", b"1"), ("a.bin", 9 * GIB), ("b.txt", b"2"), ("c.bin", 9 * GIB)])
    return str(path)


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 2 MB are too much for a member."""
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "2000000")


@pytest.fixture
def large(tmp_path: Path, small_limit: None) -> str:
    """A shard with members below and above that."""
    path = tmp_path / "large.tar"
    data = [("a.txt", b"1"), ("a.mid", b"m" * 1_500_000), ("a.bin", b"x" * 5_000_000), ("b.txt", b"2")]
    path.write_bytes(tar_bytes(data))
    return str(path)


def found(samples: Any) -> list[tuple[str, Any]]:
    return [(sample["__key__"], sample["txt"]) for sample in samples]


def test_a_member_of_nine_gigabytes_is_passed_over(huge: str) -> None:
    assert found(wds.WebDataset(huge, select_files=texts, strict=True)) == [("a", b"1"), ("b", b"2")]


def test_a_member_of_nine_gigabytes_that_is_wanted_is_an_error_still(huge: str) -> None:
    with pytest.raises(LimitError, match=str(9 * GIB)):
        list(wds.WebDataset(huge))
    with pytest.raises(LimitError, match=str(9 * GIB)):
        list(wds.WebDataset(huge, select_files=lambda name: name[0] == "a"))


def test_exact_epochs_pass_over_it_too(huge: str) -> None:
    dataset = wds.WebDataset(huge, exact=True, select_files=texts, shuffle_bytes=0, strict=True)
    assert found(dataset) == [("a", b"1"), ("b", b"2")]
    with pytest.raises(LimitError, match=str(9 * GIB)):
        list(wds.WebDataset(huge, exact=True, select_files=lambda name: name[0] == "c"))


def test_exact_epochs_do_not_fetch_it_from_a_server(large: str, tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranged, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/large.tar"
        dataset = wds.WebDataset(url, exact=True, select_files=texts, shuffle_bytes=0)
        Ranged.sent = 0
        assert found(dataset) == [("a", b"1"), ("b", b"2")]
        server.shutdown()
    assert 0 < Ranged.sent < 100_000


class Ranged(SimpleHTTPRequestHandler):
    """A server that knows ranges, and counts what it sends."""

    sent = 0

    def do_GET(self) -> None:
        if self.path != "/large.tar":
            self.send_error(404)
            return
        data = Path(self.directory, "large.tar").read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop = 0, len(data)
        if wanted:
            start, stop = int(wanted[1]), int(wanted[2]) + 1 if wanted[2] else stop
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        Ranged.sent += self.wfile.write(data[start:stop])

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.mark.parametrize("way", ["file", "pipe", "stage", "functions", "cached", "exact"])
def test_every_way_to_read_passes_over_large_members(large: str, tmp_path: Path, way: str) -> None:
    shards = [{"url": large}]
    samples = {
        "file": lambda: wds.WebDataset(large, select_files=texts),
        "pipe": lambda: wds.WebDataset(f"pipe:cat {large}", select_files=texts),
        "stage": lambda: wds.tarfile_to_samples(select_files=texts)(shards),
        "functions": lambda: wds.group_by_keys(wds.tar_file_expander(wds.url_opener(shards), select_files=texts)),
        "cached": lambda: wds.WebDataset(f"pipe:cat {large}", cache_dir=str(tmp_path / "c"), select_files=texts),
        "exact": lambda: wds.WebDataset(large, exact=True, select_files=texts, shuffle_bytes=0),
    }[way]()
    assert found(samples) == [("a", b"1"), ("b", b"2")]


def test_a_file_need_not_begin_with_its_archive(large: str, tmp_path: Path) -> None:
    path = tmp_path / "with-a-beginning"
    path.write_bytes(b"beginning" + Path(large).read_bytes())
    with open(path, "rb") as file:
        file.seek(9)
        files = list(wds.tariterators.tar_file_iterator(file, select_files=texts))
    assert [(item["fname"], item["data"]) for item in files] == [("a.txt", b"1"), ("b.txt", b"2")]


def test_the_new_name_decides(large: str) -> None:
    options = {
        "rename_files": lambda name: name.replace(".bin", ".big"),
        "select_files": lambda name: ".big" not in name,
    }
    [first, _] = wds.WebDataset(large, **options)
    assert len(first["mid"]) == 1_500_000
    with pytest.raises(LimitError, match="5000000"):
        list(wds.WebDataset(large, rename_files=options["rename_files"], select_files=lambda name: ".bin" not in name))


def test_what_is_wanted_comes_whole_whatever_its_size(tmp_path: Path) -> None:
    files = [(f"{n}.bin", bytes([n]) * size) for n, size in enumerate([10, 3_000_000, 1 << 20, (1 << 20) + 1])]
    (tmp_path / "a.tar").write_bytes(tar_bytes(files))
    dataset = wds.WebDataset(str(tmp_path / "a.tar"), select_files=lambda name: name != "1.bin")
    assert [sample["bin"] for sample in dataset] == [data for name, data in files if name != "1.bin"]


def test_members_that_come_in_pieces_can_be_left_out(large: str) -> None:
    opened: list[str] = []
    members = LargeMembers(lambda name: opened.append(name) or True)
    [first, _] = wds.WebDataset(large, large=members, select_files=lambda name: name != "a.bin")
    assert sorted(first) == ["__key__", "__local_path__", "__url__", "mid", "txt"]
    assert opened == []
    [first, _] = wds.WebDataset(large, large=members)
    assert isinstance(first["bin"], LargeMember)


@pytest.mark.parametrize("size", [1_400_000, 4_000_000])
def test_a_cut_in_a_member_that_is_left_out_is_an_error(large: str, tmp_path: Path, size: int) -> None:
    data = Path(large).read_bytes()[:size]
    (tmp_path / "cut.tar").write_bytes(data)
    for url in (str(tmp_path / "cut.tar"), f"pipe:cat {tmp_path}/cut.tar"):
        with pytest.raises(ShardError, match="early"):
            list(wds.WebDataset(url, select_files=texts))


def test_only_headers_are_read_of_a_large_member_that_is_left_out(large: str) -> None:
    class Counted(io.FileIO):
        taken = 0

        def readinto(self, buffer: Any) -> int:
            taken = super().readinto(buffer) or 0
            Counted.taken += taken
            return taken

    with io.BufferedReader(Counted(large)) as file:
        assert len(list(wds.tariterators.tar_file_iterator(file, select_files=texts))) == 2
    assert Counted.taken < 5_000_000
