"""Listings from headers agree with what readers make of the same archive."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests_support import tar_bytes
from webdataset.tariterators import group_by_keys, tar_file_expander
from webdataset.tools.listing import grouped, members

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
