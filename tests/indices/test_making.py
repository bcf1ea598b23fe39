"""Indices of datasets: made when missing or stale, kept, found again, by many processes at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import webdataset as wds
from servers.faults import Together, fault_proxy
from tests_support import WITHOUT_PRIVILEGES, numbered, tar_bytes
from webdataset.errors import MissingShardError, NotATarError, ShardError, ShardWarning
from webdataset.indices import making
from webdataset.indices.files import StaleIndexError, kept_index, load_index
from webdataset.indices.making import catalogue_of
from webdataset.indices.rules import ReadingRules

pytestmark = pytest.mark.usefixtures("cache")


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*.wdx"))


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


def test_a_folder_that_cannot_be_written_gets_its_indices_into_the_cache(make_shard, cache):
    shard = make_shard("ro/a.tar")
    os.chmod(os.path.dirname(shard), 0o555)
    code = f"{WITHOUT_PRIVILEGES}\nimport webdataset as wds; print(wds.index({shard!r}).total)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    os.chmod(os.path.dirname(shard), 0o755)
    assert (told.stdout, told.stderr.count("\n"), len(kept(cache))) == ("10\n", 1, 1)
    assert str(cache) in told.stderr
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


# -- what cannot be indexed --------------------------------------------------------------------------


def test_a_cut_shard_is_an_error_and_leaves_no_index(make_shard, tmp_path):
    shard = make_shard()
    Path(shard).write_bytes(Path(shard).read_bytes()[:3000])
    with pytest.raises(ShardError, match="early") as raised:
        wds.index(shard)
    assert raised.value.url == shard
    assert list(tmp_path.rglob("*.wdx")) == []


def test_a_missing_shard_is_an_error(tmp_path):
    for indexed in (wds.index, catalogue_of):
        with pytest.raises(MissingShardError) as raised:
            indexed([str(tmp_path / "gone.tar")])
        assert raised.value.url == str(tmp_path / "gone.tar")


def test_the_handler_decides_about_shards_that_cannot_be_indexed(make_shards, tmp_path):
    shards = make_shards(3, samples=2)
    Path(shards[1]).write_bytes(b"x" * 2048)
    seen: list[Exception] = []
    catalogue = wds.index(shards, handler=lambda exn: seen.append(exn) or True)
    assert catalogue.urls == [shards[0], shards[2]]
    assert [type(exn) for exn in seen] == [NotATarError]
    assert wds.index(shards, handler=lambda exn: False).urls == [shards[0]]


def test_a_missing_end_marker_is_told_once(make_shard):
    shard = make_shard(end=False)
    with pytest.warns(ShardWarning, match="end marker"):
        wds.index(shard)
    assert wds.index(shard).total == 10


# -- many shards, many processes ---------------------------------------------------------------------


def test_progress_is_told_after_each_shard(make_shards):
    shards, told = make_shards(4, samples=2), []
    wds.index(shards, progress=lambda *args: told.append(args))
    assert told == [(n + 1, 4, shard) for n, shard in enumerate(shards)]


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
    with wds.SampleReader(catalogue) as samples, pytest.raises(StaleIndexError) as raised:
        samples[0]
    assert (raised.value.url, "wl index --force" in raised.value.hint) == (url, True)
    assert wds.index(url).total == 20


def test_many_remote_shards_are_indexed_side_by_side(nginx):
    for n in range(10):
        nginx.put(f"side/{n}.tar", tar_bytes(numbered(5, 5 * n)))
    with fault_proxy(nginx.port, default=Together(4)) as proxy:
        catalogue = wds.index([proxy.url(f"/side/{n}.tar") for n in range(10)])
        assert catalogue.total == 50


def test_progress_is_a_bar_of_tqdm(make_shards, capfd):
    assert wds.index(make_shards(3, samples=2), progress=True).total == 6
    assert "3/3" in capfd.readouterr().err
    wds.index(make_shards(1), progress=False)
    assert capfd.readouterr().err == ""


def test_a_wrong_argument_says_which_was_meant_and_one_shard_is_one(make_shard):
    with pytest.raises(TypeError, match="'progress'"):
        wds.index(make_shard(samples=1), progres=True)
    assert repr(wds.index(make_shard(samples=1))) == "Catalogue(1 shard, 1 sample)"
