"""Listings from headers agree with what readers make of the same archive."""

from __future__ import annotations

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from servers.moto import S3Server
from servers.nginx import Nginx
from tests_support import sparse_tar, tar_bytes
from webdataset.base.reports import Report
from webdataset.indices.files import make_index
from webdataset.tariterators import group_by_keys, tar_file_expander
from webdataset.tools.inspect.listing import grouped, members, samples

NAMES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "d/c", "__x__", "d/__y__", "./e"]), st.sampled_from(["txt", "cls", "s.png", ""])
    ),
    max_size=12,
    unique=True,
)


@given(NAMES)
@pytest.mark.filterwarnings("ignore:members of one sample are not adjacent")
def test_samples_listed_are_the_samples_read(parts: list[tuple[str, str]]) -> None:
    files = [(f"{key}.{field}" if field else key, key.encode()) for key, field in parts]
    archive = tar_bytes(files)
    listed = [(sample.key, sample.fields) for sample in grouped(members(io.BytesIO(archive)))]
    read = [
        (sample.pop("__key__"), {name: len(data) for name, data in sample.items() if name[:2] != "__"})
        for sample in group_by_keys(tar_file_expander([{"url": "a.tar", "stream": io.BytesIO(archive)}]))
    ]
    assert listed == read


def test_samples_are_listed_from_the_index_if_it_fits(make_shard, tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    shard = make_shard(samples=3)
    from_headers = list(samples(shard))
    wds.index(shard)
    assert list(samples(shard)) == from_headers == list(grouped(members(shard)))
    make_shard(samples=2)
    assert [sample.key for sample in samples(shard)] == ["000000", "000001"]


# -- remote shards -------------------------------------------------------------------------------------

LARGE = [(f"{i:03d}.bin", 20 << 20) for i in range(12)]
SMALL = [(f"{i:03d}.bin", 100 << 10) for i in range(500)]


@pytest.fixture
def no_index(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))


def listed(url: str) -> list[tuple[str, int]]:
    return [(entry.name, entry.size) for entry in members(url)]


def test_a_large_remote_shard_is_listed_by_its_headers_alone(nginx: Nginx, no_index) -> None:
    sparse_tar(nginx.files / "listing-large.tar", LARGE)
    assert listed(nginx.url("/listing-large.tar")) == LARGE
    assert nginx.sent("listing-large.tar") < 1 << 20
    assert [sample.key for sample in samples(nginx.url("/listing-large.tar"))] == [name[:3] for name, _ in LARGE]
    assert nginx.sent("listing-large.tar") < 2 << 20


def test_small_members_are_read_in_one_stream(nginx: Nginx) -> None:
    sparse_tar(nginx.files / "listing-small.tar", SMALL)
    assert listed(nginx.url("/listing-small.tar")) == SMALL
    size = (nginx.files / "listing-small.tar").stat().st_size
    assert size <= nginx.sent("listing-small.tar") < size + (1 << 20)


def test_the_first_members_of_many_need_little(nginx: Nginx) -> None:
    sparse_tar(nginx.files / "listing-first.tar", SMALL)
    found = members(nginx.url("/listing-first.tar"))
    assert [next(found).name for _ in range(3)] == ["000.bin", "001.bin", "002.bin"]
    found.close()
    assert nginx.sent("listing-first.tar") < 1 << 20


def test_a_server_without_ranges_is_read_in_one_stream(nginx: Nginx) -> None:
    sparse_tar(nginx.files / "whole.tar", LARGE[:3])
    assert listed(nginx.url("/norange/whole.tar")) == LARGE[:3]
    assert make_index(nginx.url("/norange/whole.tar")).samples == 3


def test_a_compressed_remote_shard_is_read_in_one_stream(nginx: Nginx, monkeypatch) -> None:
    monkeypatch.setattr("webdataset.indices.files.LARGE_SHARD", 1000)
    url = nginx.put("packed", gzip.compress(tar_bytes([(f"{i}.txt", b"text") for i in range(2000)])))
    assert len(listed(url)) == 2000


def test_a_cut_remote_shard_is_an_error_with_its_place(nginx: Nginx) -> None:
    sparse_tar(nginx.files / "cut.tar", LARGE[:4])
    with open(nginx.files / "cut.tar", "r+b") as file:
        file.truncate(70 << 20)
    with pytest.raises(wds.errors.ShardError, match=r"003\.bin"):
        listed(nginx.url("/cut.tar"))


def test_samples_of_a_remote_shard_come_from_the_index_beside_it(nginx: Nginx, no_index) -> None:
    sparse_tar(nginx.files / "indexed.tar", SMALL)
    wds.index(str(nginx.files / "indexed.tar"), where="beside")
    assert [sample.key for sample in samples(nginx.url("/indexed.tar"))] == [name[:3] for name, _ in SMALL]
    assert nginx.sent("indexed.tar") < 1000
    sparse_tar(nginx.files / "indexed.tar", SMALL[:5])
    assert len(list(samples(nginx.url("/indexed.tar")))) == 5


def test_a_large_object_of_a_store_is_listed_by_its_headers_alone(moto_server: S3Server, tmp_path, monkeypatch) -> None:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    sparse_tar(tmp_path / "a.tar", LARGE[:2])
    url = f"{moto_server.bucket()}/a.tar"
    with wds.gopen(url, "wb") as stream:
        stream.write((tmp_path / "a.tar").read_bytes())
    report = Report()
    with report.in_force():
        assert listed(url) == LARGE[:2]
    assert report.counts["bytes_read"] < 1 << 20
