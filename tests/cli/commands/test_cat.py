"""wl cat."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inspected import Capture, mixed_shard, picture, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def test_cat_writes_one_field_as_it_is_stored(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "cat", shard, "png") == (0, picture(), "")


def test_cat_finds_by_number_key_and_condition(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "cat", shard, "json", "4")[:2] == (0, b'{"n": 1}')
    assert wl(capsysbinary, "cat", "-k", "s5", shard, "json")[:2] == (0, b'{"n": 2}')
    assert wl(capsysbinary, "cat", "-v", "-S", "cls == 2", shard, "jpg;png") == (0, picture(), "s2.png\n")
    assert wl(capsysbinary, "cat", "-v", "-S", "_['cls'] == 2", shard, "txt", "1") == (0, b"hello", "s5.txt\n")


def test_cat_with_a_typo_says_which_fields_there_are(shard: str, capsysbinary: Capture) -> None:
    code, out, err = wl(capsysbinary, "cat", shard, "clss")
    assert (code, out) == (1, b"")
    assert ("'cls'" in err, "cls json npy png txt" in err) == (True, True)
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["99"], ["-k", "nobody"], ["-S", "cls == 77"]])
def test_cat_without_a_sample_is_an_error(shard: str, capsysbinary: Capture, words: list[str]) -> None:
    options = words if words[0].startswith("-") else []
    code, out, err = wl(capsysbinary, "cat", *options, shard, "txt", *(words if not options else []))
    assert (code, out, err.count("\n")) == (1, b"", 1)


def test_cat_reads_no_further_than_it_needs(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    path = make_shard("a.tar", 2000)
    with open(path, "r+b") as file:  # the end is lost
        file.truncate(1_900_000)
    assert wl(capsysbinary, "cat", path, "txt")[:2] == (0, b"txt0")
