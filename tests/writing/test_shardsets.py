"""Numbered shards: their names, and what becomes of those that were there before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from servers.doubles import Double, Question, Reply
from servers.nginx import Nginx
from webdataset.errors import ExistingShardsError, ShardWarning, StorageError
from webdataset.writing.shardsets import EarlierShards, shard_name, shard_number

PATTERNS = ["a-%03d.tar", "a-%d.tar", "d%%/a-%05d.tar", "{shard}.tar", "a{shard:06d}-{shard}.tar", "a-{shard:04x}.tar"]


def write(pattern: Any, samples: int, **options: Any) -> None:
    """So many shards of one sample."""
    with wds.ShardWriter(str(pattern), maxcount=1, verbose=0, **options) as sink:
        write_all(sink, ({"__key__": f"{i:06d}", "cls": samples} for i in range(samples)))


def write_all(sink: wds.ShardWriter, samples: Iterable[dict[str, Any]]) -> None:
    for sample in samples:
        sink.write(sample)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- names -------------------------------------------------------------------------------------------


@given(pattern=st.sampled_from(PATTERNS), number=st.integers(0, 10**7))
def test_the_number_of_a_shard_is_found_in_its_name(pattern: str, number: int) -> None:
    assert shard_number(pattern, shard_name(pattern, number)) == number


@pytest.mark.parametrize(
    "name", ["a-7.tar", "a-0007.tar", "a-007.tar.wdx", "b-007.tar", "a-xyz.tar", "a-+07.tar", "a-"]
)
def test_what_the_pattern_would_not_give_has_no_number(name: str) -> None:
    assert shard_number("a-%03d.tar", name) is None


# -- what is there ------------------------------------------------------------------------------------


def test_folders_and_links_to_nowhere_are_no_shards(tmp_path: Path) -> None:
    (tmp_path / "a-0.tar").mkdir()
    (tmp_path / "a-1.tar").symlink_to("nowhere")
    (tmp_path / "a-2.tar").touch()
    assert EarlierShards(str(tmp_path / "a-%d.tar")).numbers == [2]


def test_an_input_is_known_as_a_shard_by_any_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("a-%d.tar", 2)
    Path("link.tar").symlink_to("a-1.tar")
    inputs = ["a-0.tar", "./a-0.tar", f"file:{tmp_path}/a-0.tar", "link.tar", "a-2.tar", "http://host/a-0.tar"]
    assert EarlierShards("a-%d.tar").among(inputs) == inputs[:4]


def test_a_web_server_is_asked_for_one_number_after_the_other(nginx: Nginx, make_shard: Callable[..., str]) -> None:
    for number in (*range(20), 30):
        nginx.put(f"sets/a-{number}.tar", Path(make_shard(samples=1)).read_bytes())
    nginx.put("sets/a-19.tar.wdx", b"x")
    pattern = nginx.url("/sets/a-%d.tar")
    with pytest.raises(ExistingShardsError, match="20 shards"):
        wds.ShardWriter(pattern, overwrite=False)
    with pytest.warns(ShardWarning, match="18 shards"):
        write(pattern, 2)
    write(pattern, 2, overwrite=True)
    assert names(nginx.files / "sets") == ["a-0.tar", "a-1.tar", "a-30.tar"]


def test_a_server_that_does_not_remove_is_an_error_that_says_what_is_left() -> None:
    """The new set is complete by then."""
    files = {f"/a-{number}.tar" for number in range(3)}

    def answer(question: Question) -> Reply:
        known = question.raw_path in files
        return Reply({"PUT": 204, "DELETE": 405}.get(question.method, 200 if known else 404))

    with Double(answer) as server:
        pattern = f"{server.url}/a-%d.tar"
        with pytest.raises(StorageError) as failed:
            write(pattern, 1, overwrite=True)
        assert (failed.value.status, failed.value.url) == (405, pattern % 2)
        [note] = failed.value.__notes__
        left = note.rpartition("; ")[2]
        assert (left.split()[0], pattern % 1 in left, pattern % 2 in left) == ("2", True, True)
