"""Listings from headers agree with what readers make of the same archive."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from tests_support import tar_bytes
from webdataset.tariterators import group_by_keys, tar_file_expander
from webdataset.tools.listing import grouped, members, samples

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
