"""Index files: kept, found again, compared with their shard."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import webdataset as wds
from servers.faults import fault_proxy
from tests_support import numbered, tar_bytes
from webdataset.base.settings import settings
from webdataset.errors import ShardError
from webdataset.indices.files import StaleIndexError, check_fits, find_index, index_place, kept_index, load_index
from webdataset.indices.making import catalogue_of

pytestmark = pytest.mark.usefixtures("cache")


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*.wdx"))


def touched(shard: str) -> None:
    """The shard with another time of change."""
    status = os.stat(shard)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns + 10**10 + 1))


@pytest.mark.parametrize("where", ["cache", "folder"])
def test_an_index_can_be_kept_elsewhere(make_shard, tmp_path, cache, where):
    shard = make_shard()
    wds.index(shard, where="cache" if where == "cache" else str(tmp_path / "elsewhere"))
    assert not os.path.exists(f"{shard}.wdx")
    (name,) = kept(cache if where == "cache" else tmp_path / "elsewhere")
    assert re.fullmatch(r"[0-9a-f]{20}-a\.tar\.wdx", name)
    assert find_index(shard, where=None if where == "cache" else str(tmp_path / "elsewhere")).samples == 10


def test_a_shard_that_changed_is_indexed_anew(make_shard):
    shard = make_shard(samples=3)
    assert wds.index(shard).total == catalogue_of(shard).total == 3
    make_shard(samples=7)
    assert catalogue_of(shard).total == 7
    assert wds.index(shard).total == 7
    assert load_index(f"{shard}.wdx").samples == 7


def test_a_shard_that_only_looks_changed_is_indexed_anew(make_shard):
    shard = make_shard(samples=3)
    wds.index(shard)
    touched(shard)
    assert find_index(shard) is None
    wds.index(shard)
    assert find_index(shard).samples == 3


def test_whole_seconds_are_enough_for_a_copy(make_shard):
    shard = make_shard(samples=3)
    wds.index(shard)
    second = os.stat(shard).st_mtime_ns // 10**9
    os.utime(shard, ns=(0, second * 10**9))
    assert find_index(shard).samples == 3
    os.utime(shard, ns=(0, (second + 1) * 10**9))
    assert find_index(shard) is None


@pytest.mark.parametrize("damage", [b"", b"no index", "cut", "flipped"])
def test_a_damaged_index_is_made_anew(make_shard, damage):
    shard = make_shard(samples=5)
    wds.index(shard)
    path = Path(f"{shard}.wdx")
    good = path.read_bytes()
    bad = {"cut": good[:-9], "flipped": good[:30] + b"~" + good[31:]}
    path.write_bytes(bad.get(damage, damage) if isinstance(damage, str) else damage)
    assert find_index(shard) is None
    wds.index(shard, force=True)
    assert path.read_bytes() == good


def test_a_relative_path_has_one_place_in_the_cache(make_shard, monkeypatch):
    shard = make_shard("sub/a.tar")
    monkeypatch.chdir(os.path.dirname(shard))
    assert index_place("a.tar", "cache") == index_place(shard, "cache")


def test_rules_of_ones_own_have_indices_of_their_own(make_shard, cache):
    shard = make_shard(files=[("a.x.txt", b"1"), ("a.y.txt", b"2")])
    assert wds.index(shard).total == 1
    by_last_dot = wds.index(shard, keys=lambda name: tuple(name.rsplit(".", 1)))
    assert by_last_dot.total == 2
    assert [member.name for member in by_last_dot.index(0).members(0)] == ["a.x.txt"]
    assert len(kept(cache)) == 1
    assert load_index(f"{shard}.wdx").samples == 1


def test_compressed_shards_are_refused_with_the_cure(tmp_path, make_shard):
    for name, mode in (("a.tar.gz", "w:gz"), ("a.tar.xz", "w:xz"), ("a.tar.bz2", "w:bz2")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
        os.link(tmp_path / name, tmp_path / f"{name}.tar")
        for shard in (tmp_path / name, tmp_path / f"{name}.tar"):
            with pytest.raises(ShardError, match="compressed") as raised:
                wds.index(shard)
            assert (raised.value.url, "uncompressed" in raised.value.hint) == (str(shard), True)


def test_commands_are_refused_with_the_cure(make_shard):
    for url in (f"pipe:cat {make_shard()}", "-"):
        with pytest.raises(ShardError) as raised:
            wds.index(url)
        assert (raised.value.url, "cache_dir" in raised.value.hint) == (url, True)


@pytest.mark.parametrize(("members", "size"), [(4, 12_000_000), (600, 70_000)])
def test_large_members_of_remote_shards_are_jumped_over(nginx, members, size):
    archive = tar_bytes([(f"{n:03d}.{ext}", bytes(size)) for n in range(members) for ext in ("bin", "cls")])
    nginx.put("large/a.tar", archive)
    with fault_proxy(nginx.port) as proxy:
        catalogue = wds.index(proxy.url("/large/a.tar"))
        assert (catalogue.total, catalogue.sizes.tolist()) == (members, [len(archive)])
        assert [member.size for member in catalogue.index(0).members(members - 1)] == [size, size]
        # small ones are read once over; a connection that is given up may have had some megabytes on the way
        assert proxy.passed < (1_000_000 if members == 4 else 1.25 * len(archive))
    (nginx.files / "large/a.tar").unlink()


def test_versions_are_compared_as_far_as_they_are_known(make_shard):
    index = kept_index(make_shard())
    check_fits(index, "u", None, None)
    check_fits(index, "u", index.size, '"etag"')
    with pytest.raises(StaleIndexError) as raised:
        check_fits(index, "u", index.size + 512, None)
    assert raised.value.url == "u"


def test_the_cache_folder_follows_the_settings(monkeypatch, tmp_path):
    monkeypatch.delenv("WDS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.indices_dir == f"{tmp_path}/webdataset/indices"


def test_a_local_copy_is_indexed_in_the_shards_stead(nginx, tmp_path, make_shard):
    archive = tar_bytes(numbered(30))
    nginx.put("copy/a.tar", archive)
    copies = wds.cache.FileCache(str(tmp_path / "copies"))
    with fault_proxy(nginx.port) as proxy:
        urls = [proxy.url("/copy/a.tar"), f"pipe:cat {make_shard(samples=4)}"]
        catalogue = catalogue_of(urls, local_copy=copies.get_file)
        assert (catalogue.counts.tolist(), catalogue.urls) == ([30, 4], urls)
        assert proxy.passed < len(archive) + 5000
        assert [catalogue.index(n).samples for n in range(2)] == [30, 4]
        again = catalogue_of(urls, local_copy=copies.get_file)
        with wds.SampleReader(again, open_range=lambda url: wds.gopen.open_ranges(copies.get_file(url))) as samples:
            assert (samples[29]["cls"], samples[31]["cls"]) == (b"29", b"1")
        assert proxy.passed < len(archive) + 5000


def test_a_server_that_knows_only_get_and_no_ranges_is_read_in_one_stream(plain_server):
    catalogue = wds.index(plain_server(tar_bytes(numbered(20))))
    assert catalogue.total == 20
    assert catalogue.index(0).key(19) == "000019"


@pytest.fixture
def plain_server():
    """`plain_server(data)` serves it under the url that it gives, to GET alone, as a whole."""

    class Whole(BaseHTTPRequestHandler):
        data = b""

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.data)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(self.data)

        def log_message(self, *args):
            """Nobody reads it."""

    def serve(data):
        Whole.data = data
        return f"http://127.0.0.1:{server.server_port}/a.tar"

    with ThreadingHTTPServer(("127.0.0.1", 0), Whole) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield serve
        server.shutdown()
        thread.join()
