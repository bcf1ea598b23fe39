"""Items: names, pairs of inputs and outputs, versions; and lists that cannot be right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.faults import fault_proxy
from webdataset.errors import MissingShardError, StorageError
from webdataset.gopen import gopen
from webdataset.runs.items import (
    Item,
    ItemsError,
    checked,
    output_versions,
    shard_items,
    size_and_version,
    with_versions,
)
from webdataset.runs.numbers import parsed_ranges, ranges


def test_braces_give_their_values_as_names() -> None:
    items = list(shard_items(["s3://b/in-{0000..0999}.tar"], "s3://b/out-{}.tar"))
    assert len(items) == 1000
    assert items[7] == Item("0007", ("s3://b/in-0007.tar",), ("s3://b/out-0007.tar",))


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (["a/x-0.tar::a/x-1.tar"], ["x-0", "x-1"]),
        (["a/x-0.tar", "a/x-1.tar.gz"], ["x-0", "x-1"]),
        (["~/ds-v1.{0..1}-{2..2}.tar"], ["ds-v1.0-2", "ds-v1.1-2"]),
        (["in/{a,b}/x-{0..1}.tar"], ["a/x-0", "a/x-1", "b/x-0", "b/x-1"]),
        (["https://h/in/a/x.tar?v=a/1", "https://h/in/b/x.tar"], ["a/x", "b/x"]),
    ],
)
def test_items_are_named_by_what_differs(specs: list[str], names: list[str]) -> None:
    items = list(checked(shard_items(specs, "out/{}.tar")))
    assert [item.name for item in items] == names
    assert [item.outputs for item in items] == [(f"out/{name}.tar",) for name in names]


def test_a_shard_keeps_its_name_when_a_pattern_matches_more(tmp_path: Path) -> None:
    def names() -> list[str]:
        return [item.name for item in checked(shard_items([f"{tmp_path}/*/ds-v1.0-*.tar"], "{}.tar"))]

    (tmp_path / "b").mkdir()
    (tmp_path / "b/ds-v1.0-1.tar").touch()
    assert names() == ["b/ds-v1.0-1"]
    (tmp_path / "a").mkdir()
    for name in ("a/ds-v1.0-1.tar", "b/ds-v1.0-2.tar"):
        (tmp_path / name).touch()
    assert names() == ["a/ds-v1.0-1", "b/ds-v1.0-1", "b/ds-v1.0-2"]


def test_an_output_without_a_place_for_the_name() -> None:
    with pytest.raises(ItemsError) as raised:
        shard_items(["in-{0..9}.tar"], "out.tar")
    assert (raised.value.url, "out-{}.tar" in raised.value.hint) == ("out.tar", True)


@pytest.mark.parametrize(
    ("items", "word", "url"),
    [
        ([Item("a", (), ("x",)), Item("b", (), ("x",))], "output", "x"),
        ([Item("a", (), ("x",)), Item("a", (), ("y",))], "'a'", None),
        ([Item("a", ("x",), ("x",))], "replaced", "x"),
    ],
)
def test_items_that_cannot_be_right(items: list[Item], word: str, url: str | None) -> None:
    with pytest.raises(ItemsError, match=word) as raised:
        list(checked(items))
    assert raised.value.url == url


def test_an_input_without_a_name() -> None:
    with pytest.raises(ItemsError, match="name") as raised:
        list(shard_items(["pipe:cat a.tar", "b.tar"], "out-{}.tar"))
    assert raised.value.url == "pipe:cat a.tar"


def test_a_version_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"abc")
    size, version = size_and_version(str(path))
    assert size == 3
    os.utime(path, ns=(1, 1))
    assert size_and_version(str(path))[1] != version


def test_a_missing_input_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingShardError) as missing:
        list(with_versions([Item("a", (str(tmp_path / "no.tar"),))]))
    assert missing.value.url == str(tmp_path / "no.tar")
    with pytest.raises(StorageError, match="folder") as raised:
        size_and_version(str(tmp_path))
    assert raised.value.url == str(tmp_path)


def test_versions_of_servers_are_etags(nginx) -> None:
    url = nginx.put("versions/a.tar", b"abc")
    (item,) = with_versions([Item("a", (url,))])
    assert item.size == 3
    assert item.version
    assert output_versions([url, nginx.url("/versions/b.tar")]) == {url: item.version}


@given(st.sets(st.integers(0, 200)))
def test_numbers_as_text_are_the_same_numbers(numbers: set[int]) -> None:
    ordered = sorted(numbers)
    assert not ordered or list(parsed_ranges(ranges(ordered))) == ordered


@pytest.mark.parametrize("text", ["", "a", "1-b", "-3"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text!r}$"):
        list(parsed_ranges(text))


def test_many_objects_are_listed_instead_of_asked_for(moto_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = moto_server.bucket()
    with fault_proxy(moto_server.port) as proxy:
        for name, value in moto_server.environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        urls = [f"{bucket}/data/{n:03d}.tar" for n in range(40)]
        for url in urls[1:]:
            with gopen(url, "wb") as stream:
                stream.write(url.encode())
        before = proxy.requests
        found = output_versions(urls)
        assert proxy.requests == before + 1
        assert sorted(found) == urls[1:]
        items = list(with_versions([Item(url, (url,)) for url in urls[1:]]))
        assert proxy.requests == before + 2
        assert [item.version for item in items] == [size_and_version(url)[1] for url in urls[1:]] == [*found.values()]
        with pytest.raises(MissingShardError):
            list(with_versions([Item(url, (url,)) for url in urls]))
