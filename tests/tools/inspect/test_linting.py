"""What will surprise is found; what is fine is not."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from PIL import Image

from tests_support import numbered, tar_bytes
from webdataset.tools.inspect.linting import PROBLEMS, lint


def problems(*urls: str, **options: bool) -> list[str]:
    return [finding.problem for finding in lint(urls, **options)]


def picture(kind: str = "JPEG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(stream, kind)
    return stream.getvalue()


def test_a_good_dataset_has_no_problems(make_shards: Callable[..., list[str]]) -> None:
    assert problems(*make_shards(4)) == []


FILES = {
    "no-key": [("README", b"x"), *numbered(3)],
    "reserved": [("000000.__url__", b"x"), *numbered(3)],
    "repeated-field": [("a.JPG", picture()), ("a.jpg", picture())],
    "not-adjacent": [("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3")],
    "case-collision": [("a.txt", b"1"), ("A.txt", b"2")],
    "empty-field": [("a.txt", b"")],
    "wrong-image": [("a.jpg", b"not a picture")],
    "other-format": [("a.jpg", picture("PNG"))],
    "half-sample": [*numbered(5), ("x.txt", b"1")],
    "dots-in-keys": [(f"img.{i}.jpg", picture()) for i in range(5)],
    "empty": [],
}


@pytest.mark.parametrize("problem", FILES)
def test_each_problem_is_found(make_shard: Callable[..., str], problem: str) -> None:
    found = set(problems(make_shard(files=FILES[problem])))
    assert problem in found
    assert found <= {problem, "half-sample"}


def test_a_cut_picture_is_wrong(make_shard: Callable[..., str]) -> None:
    assert problems(make_shard(files=[("a.jpg", picture()[:-300])])) == ["wrong-image"]


def test_a_wrong_picture_is_told_without_addresses(make_shard: Callable[..., str]) -> None:
    (finding,) = lint([make_shard(files=[("a.jpg", b"not a picture")])])
    assert "cannot identify" in finding.detail
    assert "0x" not in finding.detail


def test_pictures_need_not_be_decoded(make_shard: Callable[..., str]) -> None:
    assert problems(make_shard(files=[("a.jpg", b"not a picture")]), images=False) == []


def test_a_missing_end_is_found_with_its_place(make_shard: Callable[..., str]) -> None:
    (finding,) = lint([make_shard(end=False)])
    assert (finding.problem, finding.offset) == ("no-end", 20 * 1024)


def test_a_cut_shard_is_found_with_its_place(make_shard: Callable[..., str]) -> None:
    path = make_shard()
    with open(path, "r+b") as file:
        file.truncate(3000)
    (finding,) = lint([path])
    assert finding.problem == "unreadable"
    assert finding.offset == 3000


def test_a_missing_shard_does_not_end_the_search(make_shard: Callable[..., str]) -> None:
    assert problems("nowhere.tar", make_shard(files=[("a.txt", b"")])) == ["unreadable", "empty-field"]


def test_a_key_in_two_shards_is_a_collision(make_shard: Callable[..., str]) -> None:
    first, second = make_shard("a.tar", 3), make_shard("b.tar", 3)
    found = list(lint([first, second]))
    assert [finding.problem for finding in found] == ["key-collision"] * 3
    assert first in found[0].detail


def test_a_name_that_is_no_text_is_found(tmp_path: object, make_shard: Callable[..., str]) -> None:
    path = make_shard("x.tar", files=[("X.txt", b"1")])
    with open(path, "wb") as file:
        file.write(tar_bytes([("caf\udce9.txt", b"1")]))
    assert problems(path) == ["not-utf8"]


def test_shards_of_very_different_size_are_found(make_shard: Callable[..., str]) -> None:
    usual = [make_shard(f"{i}.tar", 10, start=10 * i) for i in range(4)]
    large = make_shard("large.tar", 100, start=1000)
    assert problems(usual[0], large, *usual[1:]) == ["size-imbalance"]


def test_the_last_shard_may_be_small(make_shard: Callable[..., str]) -> None:
    usual = [make_shard(f"{i}.tar", 10, start=10 * i) for i in range(4)]
    assert problems(*usual, make_shard("last.tar", 1, start=100)) == []


def test_every_problem_is_explained(make_shard: Callable[..., str]) -> None:
    for finding in lint([make_shard(files=FILES["not-adjacent"])]):
        assert finding.as_dict()["message"] == PROBLEMS[finding.problem]
