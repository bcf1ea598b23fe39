"""Indices of datasets: made when missing or stale, kept, found again, by many processes at once."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import webdataset as wds
from servers.faults import Together, fault_proxy
from tests_support import WITHOUT_PRIVILEGES, numbered, tar_bytes
from webdataset.base.settings import settings
from webdataset.errors import MissingShardError, ShardError, ShardWarning
from webdataset.indices import making
from webdataset.indices.catalogue import Catalogue, Shard
from webdataset.indices.files import StaleIndexError, check_fits, find_index, index_place, kept_index, load_index
from webdataset.indices.making import catalogue_of
from webdataset.indices.rules import ReadingRules


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of indices that cannot stand beside their shards."""
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "indices"


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*.wdx"))


def touched(shard: str) -> None:
    """The shard with another time of change."""
    status = os.stat(shard)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns + 10**10 + 1))


# -- one shard ---------------------------------------------------------------------------------------


def test_index_makes_the_file_beside_the_shard(make_shards):
    shards = make_shards(3, samples=5)
    catalogue = wds.index(shards)
    assert [os.path.exists(f"{shard}.wdx") for shard in shards] == [True] * 3
    assert (catalogue.urls, catalogue.total) == (shards, 15)
    assert (catalogue.counts.tolist(), catalogue.counts.dtype) == ([5, 5, 5], np.int64)
    assert catalogue.sizes.tolist() == [os.path.getsize(shard) for shard in shards]
    index = load_index(f"{shards[1]}.wdx")
    assert (index.key(0), index.size) == ("000005", os.path.getsize(shards[1]))
    status = os.stat(shards[1])
    assert index.version == f"{status.st_size}-{status.st_mtime_ns}"


def test_braces_paths_and_globs_are_expanded(make_shards, tmp_path):
    make_shards(2, samples=3)
    assert wds.index(f"{tmp_path}/shard-{{000000..000001}}.tar").total == 6
    assert wds.index(f"{tmp_path}/*.tar").total == 6
    assert wds.index(tmp_path / "shard-000000.tar").total == 3


@pytest.mark.parametrize("where", ["cache", "folder"])
def test_an_index_can_be_kept_elsewhere(make_shard, tmp_path, cache, where):
    shard = make_shard()
    wds.index(shard, where="cache" if where == "cache" else str(tmp_path / "elsewhere"))
    assert not os.path.exists(f"{shard}.wdx")
    (name,) = kept(cache if where == "cache" else tmp_path / "elsewhere")
    assert re.fullmatch(r"a-[0-9a-f]{20}\.tar\.wdx", name)
    assert find_index(shard, where=None if where == "cache" else str(tmp_path / "elsewhere")).samples == 10


def test_a_folder_that_cannot_be_written_gets_its_indices_into_the_cache(make_shard, cache):
    shard = make_shard("ro/a.tar")
    os.chmod(os.path.dirname(shard), 0o555)
    code = f"{WITHOUT_PRIVILEGES}\nimport webdataset as wds; print(wds.index({shard!r}).total)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    os.chmod(os.path.dirname(shard), 0o755)
    assert (told.stdout, told.stderr, len(kept(cache))) == ("10\n", "", 1)
    assert os.listdir(os.path.dirname(shard)) == ["a.tar"]


def test_what_reading_makes_goes_to_the_cache(make_shard, cache):
    shard = make_shard()
    assert catalogue_of(shard).index(0).samples == 10
    assert not os.path.exists(f"{shard}.wdx")
    assert len(kept(cache)) == 1


def test_an_index_beside_the_shard_is_used_by_reading(make_shard, cache):
    shard = make_shard()
    wds.index(shard)
    assert catalogue_of([shard]).index(0).samples == 10
    assert kept(cache) == []


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


def test_force_makes_all_anew(make_shard):
    shard = make_shard(samples=5)
    wds.index(shard)
    os.utime(f"{shard}.wdx", ns=(0, 0))
    wds.index(shard)
    assert os.stat(f"{shard}.wdx").st_mtime_ns == 0
    wds.index(shard, force=True)
    assert os.stat(f"{shard}.wdx").st_mtime_ns != 0


def test_an_index_that_is_gone_is_made_again_when_it_is_needed(make_shard, cache):
    shard = make_shard(samples=5)
    wds.index(shard)
    catalogue = catalogue_of(shard)
    os.unlink(f"{shard}.wdx")
    assert catalogue.index(0).samples == 5
    assert len(kept(cache)) == 1
    wds.index(shard)
    assert os.path.exists(f"{shard}.wdx")


def test_names_in_the_cache_tell_no_secrets():
    url = "https://me:hush@host/a.tar?X-Amz-Signature=abc123&X-Amz-Expires=5"
    place = index_place(url, "cache")
    assert os.path.basename(place).startswith("a-")
    assert not any(word in place for word in ("hush", "me:", "abc123"))
    assert index_place(url.replace("abc123", "def456"), "cache") == place
    assert index_place("https://host/b/a.tar", "cache") != place


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


# -- what cannot be indexed --------------------------------------------------------------------------


def test_compressed_shards_are_refused_with_the_cure(tmp_path, make_shard):
    for name, mode in (("a.tar.gz", "w:gz"), ("a.tar.xz", "w:xz"), ("a.tar.bz2", "w:bz2")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
        with pytest.raises(ShardError, match=r"compressed with .* cannot be indexed.*store it uncompressed"):
            wds.index(tmp_path / name)
        os.rename(tmp_path / name, tmp_path / "b.tar")
        with pytest.raises(ShardError, match=r"compressed with .* cannot be indexed.*store it uncompressed"):
            wds.index(tmp_path / "b.tar")


def test_commands_are_refused_with_the_cure(make_shard):
    with pytest.raises(ShardError, match=r"the output of a command cannot be indexed.*cache_dir"):
        wds.index(f"pipe:cat {make_shard()}")
    with pytest.raises(ShardError, match="standard input cannot be indexed"):
        wds.index("-")


def test_a_cut_shard_is_an_error_and_leaves_no_index(make_shard, tmp_path):
    shard = make_shard()
    Path(shard).write_bytes(Path(shard).read_bytes()[:3000])
    with pytest.raises(ShardError, match=r"ends early.*url"):
        wds.index(shard)
    assert list(tmp_path.rglob("*.wdx")) == []


def test_a_missing_shard_is_an_error(tmp_path):
    with pytest.raises(MissingShardError, match="no such file"):
        wds.index(tmp_path / "gone.tar")
    with pytest.raises(MissingShardError, match="no such file"):
        catalogue_of([str(tmp_path / "gone.tar")])


def test_the_handler_decides_about_shards_that_cannot_be_indexed(make_shards, tmp_path):
    shards = make_shards(3, samples=2)
    Path(shards[1]).write_bytes(b"x" * 2048)
    seen: list[Exception] = []
    catalogue = wds.index(shards, handler=lambda exn: seen.append(exn) or True)
    assert catalogue.urls == [shards[0], shards[2]]
    assert [type(exn) for exn in seen] == [ShardError]
    assert wds.index(shards, handler=lambda exn: False).urls == [shards[0]]


def test_a_missing_end_marker_is_told_once(make_shard):
    shard = make_shard(end=False)
    with pytest.warns(ShardWarning, match="no end marker"):
        wds.index(shard)
    assert wds.index(shard).total == 10


# -- many shards, many processes ---------------------------------------------------------------------


def test_progress_is_told_after_each_shard(make_shards):
    shards, told = make_shards(4, samples=2), []
    wds.index(shards, progress=lambda *args: told.append(args))
    assert told == [(n + 1, 4, shard) for n, shard in enumerate(shards)]


def test_other_processes_help_where_it_is_worth_it(make_shard, make_shards, monkeypatch):
    monkeypatch.setattr(making, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(making, "WORTH_SECONDS", 0.0)
    shards = make_shards(12, samples=3)
    make_shard(os.path.basename(shards[6]), samples=3, end=False)
    Path(shards[5]).write_bytes(b"\x1f\x8b" + b"x" * 2048)
    seen, told = [], []
    with pytest.warns(ShardWarning, match="no end marker"):
        catalogue = wds.index(
            shards, jobs=2, handler=lambda exn: seen.append(exn) or True, progress=lambda *args: told.append(args[0])
        )
    assert catalogue.urls == [shard for number, shard in enumerate(shards) if number != 5]
    assert catalogue.total == 33
    assert told == list(range(1, 13))
    assert [str(exn.message) for exn in seen] == ["a shard compressed with gzip cannot be indexed"]
    assert all(os.path.exists(f"{shard}.wdx") for shard in catalogue.urls)


def test_a_killed_helper_is_an_error_that_names_the_shard(make_shards, monkeypatch):
    monkeypatch.setattr("webdataset.indices.jobs.CODE", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(making, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(making, "WORTH_SECONDS", 0.0)
    with pytest.raises(wds.StorageError, match=r"the process that made its index has ended.*shard-0000"):
        wds.index(make_shards(6, samples=2), jobs=2)


def test_eight_processes_make_each_index_once(make_shards, tmp_path, cache):
    shards = make_shards(5, samples=200)
    log = tmp_path / "log"
    code = f"""
import webdataset as wds
from webdataset.indices import files
make = files.make_index
def counted(url, **options):
    with open({str(log)!r}, "a") as file:
        file.write(url + "\\n")
    return make(url, **options)
files.make_index = counted
catalogue = wds.index({shards!r}, where="cache")
assert catalogue.total == 1000, catalogue
assert [catalogue.index(n).samples for n in range(5)] == [200] * 5
"""
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
    assert sorted(log.read_text().split()) == shards
    assert len(kept(cache)) == 5


def test_many_shards_are_known_from_one_file(tmp_path, make_shard):
    """The shards are real, but are links to a few files; what was learned of them is put there by the library."""
    count, folder = 20_000, tmp_path / "many"
    folder.mkdir()
    sources = [make_shard(f"source-{n}.tar", samples=2) for n in range(4)]
    urls = [f"{folder}/shard-{n:06d}.tar" for n in range(count)]
    for n, url in enumerate(urls):
        os.link(sources[n % 4], url)
    index = kept_index(sources[0])
    versions = [kept_index(source).version for source in sources]
    work = making._Work(urls, ReadingRules())
    work._remember([(2, index.size, versions[n % 4]) for n in range(count)])
    code = f"""
import json, resource, sys
from webdataset.indices.making import catalogue_of
before, opened = resource.getrusage(resource.RUSAGE_SELF), []
sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" else None)
catalogue = catalogue_of("{folder}/shard-{{000000..{count - 1:06d}}}.tar")
after = resource.getrusage(resource.RUSAGE_SELF)
opened = [name for name in opened if "{tmp_path}" in str(name)]
print(json.dumps([catalogue.total, opened, after.ru_maxrss - before.ru_maxrss, after.ru_utime - before.ru_utime]))
"""
    total, opened, kilobytes, seconds_of_cpu = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    assert total == 2 * count
    assert len(opened) <= 2
    assert kilobytes < 100_000
    assert seconds_of_cpu < 5


# -- over the network --------------------------------------------------------------------------------


def test_a_remote_shard_is_read_once_and_its_index_kept(nginx, cache):
    archive = tar_bytes(numbered(300))
    nginx.put("index/a.tar", archive)
    with fault_proxy(nginx.port) as proxy:
        away = proxy.url("/index/a.tar")
        catalogue = wds.index(away)
        passed = proxy.passed
        assert (catalogue.total, catalogue.sizes.tolist()) == (300, [len(archive)])
        assert len(archive) <= passed < len(archive) + 5000
        assert catalogue_of(away).index(0).samples == 300
        assert proxy.passed == passed
    assert len(kept(cache)) == 1


@pytest.mark.parametrize(("members", "size"), [(4, 12_000_000), (600, 70_000)])
def test_large_members_of_remote_shards_are_jumped_over(nginx, members, size):
    archive = tar_bytes([(f"{n:03d}.{ext}", bytes(size)) for n in range(members) for ext in ("bin", "cls")])
    nginx.put("large/a.tar", archive)
    with fault_proxy(nginx.port) as proxy:
        catalogue = wds.index(proxy.url("/large/a.tar"))
        assert (catalogue.total, catalogue.sizes.tolist()) == (members, [len(archive)])
        assert [member.size for member in catalogue.index(0).members(members - 1)] == [size, size]
        assert proxy.passed < (1_000_000 if members == 4 else 1.02 * len(archive))
    (nginx.files / "large/a.tar").unlink()


def test_an_index_beside_a_remote_shard_is_fetched_instead_of_the_shard(nginx, make_shard, cache):
    shard = make_shard(samples=300)
    wds.index(shard)
    nginx.put("fetched/a.tar", Path(shard).read_bytes())
    nginx.put("fetched/a.tar.wdx", Path(f"{shard}.wdx").read_bytes())
    with fault_proxy(nginx.port) as proxy:
        catalogue = wds.index(proxy.url("/fetched/a.tar"))
        assert catalogue.total == 300
        assert proxy.passed < os.path.getsize(f"{shard}.wdx") + 3000
    assert len(kept(cache)) == 1


def test_a_remote_shard_that_changed_is_an_error_with_the_cure_until_it_is_indexed_anew(nginx):
    url = nginx.put("stale/a.tar", tar_bytes(numbered(10)))
    catalogue = wds.index(url)
    nginx.put("stale/a.tar", tar_bytes(numbered(20)))
    with (
        wds.SampleReader(catalogue) as samples,
        pytest.raises(StaleIndexError, match=r"changed since.*wl index --force"),
    ):
        samples[0]
    assert wds.index(url).total == 20


def test_many_remote_shards_are_indexed_side_by_side(nginx):
    for n in range(10):
        nginx.put(f"side/{n}.tar", tar_bytes(numbered(5, 5 * n)))
    with fault_proxy(nginx.port, default=Together(4)) as proxy:
        catalogue = wds.index([proxy.url(f"/side/{n}.tar") for n in range(10)])
        assert catalogue.total == 50


# -- catalogues --------------------------------------------------------------------------------------


def test_a_catalogue_finds_samples_by_number_and_key(make_shards):
    catalogue = wds.index(make_shards(3, samples=4))
    assert [catalogue.locate(i) for i in (0, 3, 4, 11)] == [(0, 0), (0, 3), (1, 0), (2, 3)]
    for wrong in (-1, 12):
        with pytest.raises(IndexError, match="of a dataset with 12"):
            catalogue.locate(wrong)
    assert catalogue.find("000007") == 7
    with pytest.raises(KeyError, match="none"):
        catalogue.find("none")


def test_shards_without_samples_are_passed_over():
    catalogue = Catalogue([Shard("a", 0), Shard("b", 2), Shard("c", 0), Shard("d", 1)])
    assert [catalogue.locate(i) for i in range(3)] == [(1, 0), (1, 1), (3, 0)]
    assert Catalogue([]).total == 0


def test_a_catalogue_pickles_small(make_shards):
    catalogue = wds.index(make_shards(2, samples=1000))
    catalogue.find("001500")
    assert len(pickle.dumps(catalogue)) < 1000
    again = pickle.loads(pickle.dumps(catalogue))
    assert (again.total, again.index(1).key(0), again.fingerprint()) == (2000, "001000", catalogue.fingerprint())


def test_a_fingerprint_is_that_of_the_data_not_of_its_place(make_shards, tmp_path):
    shards = make_shards(2, samples=5)
    one = wds.index(shards)
    moved = []
    (tmp_path / "b").mkdir()
    for shard in shards:
        moved.append(str(tmp_path / "b" / os.path.basename(shard)))
        Path(moved[-1]).write_bytes(Path(shard).read_bytes())
    assert wds.index(moved).fingerprint() == one.fingerprint()
    assert wds.index(shards[::-1]).fingerprint() != one.fingerprint()
    assert wds.index(shards[:1]).fingerprint() != one.fingerprint()


def test_a_catalogue_is_saved_as_wids_json(make_shards, tmp_path):
    catalogue = wds.index(make_shards(2, samples=5))
    catalogue.save(tmp_path / "all.json")
    saved = json.loads((tmp_path / "all.json").read_text())
    assert saved["__kind__"] == "wids-shard-index-v1"
    assert (saved["wids_version"], saved["name"]) == (1, "all")
    assert saved["shardlist"][0]["url"] == "shard-000000.tar"
    assert (saved["shardlist"][0]["nsamples"], saved["shardlist"][0]["filesize"]) == (5, catalogue.sizes[0])
    again = Catalogue.load(tmp_path / "all.json")
    assert again.urls == catalogue.urls
    assert (again.fingerprint(), again.versions) == (catalogue.fingerprint(), catalogue.versions)
    assert wds.index(tmp_path / "all.json").total == catalogue_of(str(tmp_path / "all.json")).total == 10


def test_a_foreign_wids_file_is_read(make_shards, tmp_path):
    shards = make_shards(2, samples=5)
    listed = [{"url": os.path.basename(shard), "nsamples": 5, "md5sum": "x"} for shard in shards]
    (tmp_path / "w.json").write_text(json.dumps({"__kind__": "wids-shard-index-v1", "shardlist": listed}))
    catalogue = Catalogue.load(tmp_path / "w.json")
    assert (catalogue.total, catalogue.index(1).key(4)) == (10, "000009")
    (tmp_path / "w.json").write_text(json.dumps({"shardlist": listed, "base": str(tmp_path)}))
    assert Catalogue.load(tmp_path / "w.json").urls == shards


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"shardlist": 3}', '{"shardlist": [{"url": "a"}]}', '{"shardlist": ["a"]}']
)
def test_what_is_no_catalogue_is_an_error(tmp_path, text):
    (tmp_path / "w.json").write_text(text)
    with pytest.raises(ShardError, match="this is no wids-shard-index-v1"):
        Catalogue.load(tmp_path / "w.json")


def test_a_catalogue_that_promises_other_samples_is_an_error(make_shard, tmp_path):
    shard = make_shard(samples=5)
    (tmp_path / "w.json").write_text(json.dumps({"shardlist": [{"url": shard, "nsamples": 6}]}))
    with pytest.raises(StaleIndexError, match="has 5 samples, the catalogue says 6"):
        Catalogue.load(tmp_path / "w.json").index(0)


def test_a_list_from_a_server_may_not_name_files_or_commands(nginx):
    for url in ("/etc/passwd", "file:/etc/passwd", "pipe:ls"):
        listed = nginx.put("lists/w.json", json.dumps({"shardlist": [{"url": url, "nsamples": 1}]}).encode())
        with pytest.raises(wds.SecurityError, match="data from elsewhere may not"):
            Catalogue.load(listed)
    listed = nginx.put("lists/w.json", json.dumps({"shardlist": [{"url": "b/a.tar", "nsamples": 1}]}).encode())
    assert Catalogue.load(listed).urls == [nginx.url("/lists/b/a.tar")]


def test_saved_catalogues_hold_no_secrets(tmp_path):
    signed = "https://me:hush@host/a.tar?X-Amz-Signature=abc123"
    Catalogue([Shard(signed, 1)]).save(tmp_path / "w.json")
    assert not any(word in (tmp_path / "w.json").read_text() for word in ("hush", "abc123"))


def test_only_some_indices_are_held_in_memory(make_shards, monkeypatch):
    monkeypatch.setattr("webdataset.indices.catalogue.SAMPLES_HELD", 10)
    catalogue = wds.index(make_shards(12, samples=2))
    for n in range(12):
        assert catalogue.index(n).key(0) == f"{2 * n:06d}"
    assert len(catalogue._held) == 8


def test_versions_are_compared_as_far_as_they_are_known(make_shard):
    index = kept_index(make_shard())
    check_fits(index, "u", None, None)
    check_fits(index, "u", index.size, '"etag"')
    with pytest.raises(StaleIndexError, match="changed since"):
        check_fits(index, "u", index.size + 512, None)


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
