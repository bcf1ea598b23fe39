"""Items: names, pairs of inputs and outputs, versions; and lists that cannot be right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.errors import MissingShardError, StorageError
from webdataset.runs.items import Item, ItemsError, checked, output_sizes, shard_items, size_and_version, with_versions
from webdataset.runs.numbers import parsed_ranges, ranges


def test_braces_give_their_values_as_names() -> None:
    items = list(shard_items(["s3://b/in-{0000..0999}.tar"], "s3://b/out-{}.tar"))
    assert len(items) == 1000
    assert items[7] == Item("0007", ("s3://b/in-0007.tar",), ("s3://b/out-0007.tar",))


@pytest.mark.parametrize("spec", ["{a,b}/x-{0..1}.tar", "a/x-0.tar::a/x-1.tar"])
def test_other_patterns_give_the_names_of_files(spec: str) -> None:
    items = shard_items([spec], "out/{}.tar")
    assert [item.name for item in items][:2] == ["x-0", "x-1"]


def test_an_output_without_a_place_for_the_name() -> None:
    with pytest.raises(ItemsError, match=r"each shard needs an output of its own .*-o 'out-\{\}.tar'"):
        shard_items(["in-{0..9}.tar"], "out.tar")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([Item("a", (), ("x",)), Item("b", (), ("x",))], "two items have one output"),
        ([Item("a", (), ("x",)), Item("a", (), ("y",))], "two items have the name 'a'"),
        ([Item("a", ("x",), ("x",))], "cannot be replaced by its own result"),
    ],
)
def test_items_that_cannot_be_right(items: list[Item], message: str) -> None:
    with pytest.raises(ItemsError, match=message):
        list(checked(items))


def test_an_input_without_a_name() -> None:
    with pytest.raises(ItemsError, match="this input has no name"):
        list(shard_items(["pipe:cat a.tar", "b.tar"], "out-{}.tar"))


def test_a_version_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"abc")
    size, version = size_and_version(str(path))
    assert size == 3
    os.utime(path, ns=(1, 1))
    assert size_and_version(str(path))[1] != version


def test_a_missing_input_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingShardError, match="an input is not there"):
        list(with_versions([Item("a", (str(tmp_path / "no.tar"),))]))
    with pytest.raises(StorageError, match="an input is a folder"):
        size_and_version(str(tmp_path))


def test_versions_of_servers_are_etags(nginx) -> None:
    url = nginx.put("versions/a.tar", b"abc")
    (item,) = with_versions([Item("a", (url,))])
    assert item.size == 3
    assert item.version
    assert output_sizes([url, nginx.url("/versions/b.tar")]) == {url: 3}


@given(st.sets(st.integers(0, 200)))
def test_numbers_as_text_are_the_same_numbers(numbers: set[int]) -> None:
    ordered = sorted(numbers)
    assert not ordered or list(parsed_ranges(ranges(ordered))) == ordered


@pytest.mark.parametrize("text", ["", "a", "1-b", "-3"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="numbers of items are written"):
        list(parsed_ranges(text))
