"""What stands behind an end marker: left out with a word, or read if concatenated=True says that it belongs there."""

from __future__ import annotations

import gzip
import json
import os
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
import wids
from tests_support import concatenated_tar, tar_bytes
from webdataset import tariterators
from webdataset.errors import ShardError, ShardWarning
from webdataset.indices import files, making
from webdataset.indices.files import index_place, kept_index
from webdataset.indices.rules import ReadingRules
from webdataset.tar.index import ShardIndex
from wids.commands import main as wids_main

pytestmark = pytest.mark.usefixtures("own_cache")

FIRST = [f"{i:06d}" for i in range(3)]
ALL = [f"{i:06d}" for i in range(5)]
BYTE = 3 * 2 * 1024 + 1024
"""Where the second archive begins."""


def keys(samples: Any) -> list[str]:
    return [sample["__key__"] for sample in samples]


@pytest.fixture
def joined(tmp_path: Path) -> str:
    """Three samples and two, each by themselves an archive of GNU tar's, put together with `cat`."""
    return concatenated_tar(tmp_path, 3, 2)


@pytest.fixture
def quiet() -> Any:
    """Warnings are not what a test is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShardWarning)
        yield


# -- streamed ----------------------------------------------------------------------------------------


def test_samples_behind_the_end_marker_are_left_out_with_one_counted_warning(joined: str) -> None:
    dataset = wds.WebDataset(joined, shardshuffle=False)
    with pytest.warns(ShardWarning, match=rf"concatenated=True.*joined.tar.*offset {BYTE}\]") as told:
        assert keys(dataset) == FIRST
    assert len(told) == 1
    assert dataset.stats()["warnings"] == 1


def test_samples_behind_the_end_marker_are_an_error_in_strict_mode(joined: str) -> None:
    with pytest.raises(ShardError) as raised:
        list(wds.WebDataset(joined, strict=True))
    assert (raised.value.url, raised.value.offset) == (joined, BYTE)


def test_archives_that_were_put_together_are_read_through_if_wanted(joined: str) -> None:
    dataset = wds.WebDataset(joined, concatenated=True, strict=True)
    assert keys(dataset) == ALL
    assert dataset.stats()["warnings"] == 0


@pytest.mark.parametrize("way", ["pipe", "gzip members", "one gzip", "cache", "cached stage", "functions"])
def test_every_way_to_read_shards_knows_where_they_end(joined: str, tmp_path: Path, way: str) -> None:
    data = Path(joined).read_bytes()
    compressed = tmp_path / "joined.tar.gz"
    compressed.write_bytes(gzip.compress(data[:BYTE]) + gzip.compress(data[BYTE:]))
    (tmp_path / "one.tar.gz").write_bytes(gzip.compress(data))

    def read(**options: Any) -> list[str]:
        folder = str(tmp_path / "cache")
        match way:
            case "pipe":
                return keys(wds.WebDataset(f"pipe:cat {joined}", **options))
            case "gzip members":
                return keys(wds.WebDataset(str(compressed), **options))
            case "one gzip":
                return keys(wds.WebDataset(str(tmp_path / "one.tar.gz"), **options))
            case "cache":
                return keys(wds.WebDataset(f"pipe:cat {joined}", cache_dir=folder, **options))
            case "cached stage":
                shards = [{"url": f"pipe:cat {joined}"}]
                return keys(wds.cache.cached_tarfile_to_samples(cache_dir=folder, **options)(shards))
        with open(joined, "rb") as file:
            files = wds.tariterators.tar_file_iterator(file, **options)
            return keys(wds.group_by_keys(files))

    with pytest.warns(ShardWarning, match=f"offset {BYTE}"):
        assert read() == FIRST
    assert read(concatenated=True) == ALL


def test_a_reader_of_a_program_is_asked_only_for_what_it_must_know(
    joined: str, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    asked: list[dict[str, Any]] = []

    def expander(data: Any, handler: Any, **options: Any) -> Any:
        asked.append(options)
        return ours(data, handler, **options)

    ours = tariterators.tar_file_expander
    monkeypatch.setattr(tariterators, "tar_file_expander", expander)
    assert keys(wds.WebDataset(joined)) == FIRST
    assert keys(wds.WebDataset(joined, concatenated=True)) == ALL
    assert asked == [{}, {"concatenated": True}]


def test_a_shuffled_stream_goes_on_behind_an_end_marker(tmp_path: Path) -> None:
    """What the shuffle held is read again by its places: the index must be that of the whole shard."""
    parts = [tar_bytes([(f"{part}-{n:02d}.bin", bytes(50_000)) for n in range(40)]) for part in range(2)]
    urls = []
    for number in range(3):
        urls.append(str(tmp_path / f"{number}.tar"))
        Path(urls[-1]).write_bytes(b"".join(parts))

    def made() -> Any:
        return wds.WebDataset(urls, concatenated=True).shuffle(60, seed=1).map(lambda sample: sample["__key__"])

    dataset = made()
    items = iter(dataset)
    assert len(list(islice(items, 100))) == 100
    other = made()
    other.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
    rest = list(items)
    assert len(rest) == 140
    assert list(other) == rest


# -- by an index -------------------------------------------------------------------------------------


def test_an_exact_dataset_stops_where_a_streamed_one_does(joined: str) -> None:
    with pytest.warns(ShardWarning, match=f"offset {BYTE}"):
        dataset = wds.WebDataset(joined, exact=True, shuffle_bytes=0)
    assert len(dataset) == 3
    with pytest.warns(ShardWarning, match=f"concatenated=True.*offset {BYTE}"):
        assert keys(dataset) == FIRST
    assert dataset.stats()["warnings"] == 1
    with pytest.warns(ShardWarning, match=f"offset {BYTE}"):
        assert dataset[-1]["__key__"] == "000002"


def test_a_strict_exact_dataset_raises_also_when_the_index_is_there_already(joined: str) -> None:
    with pytest.warns(ShardWarning, match="end marker"):
        kept_index(joined)
    dataset = wds.WebDataset(joined, exact=True, strict=True)
    with pytest.raises(ShardError) as raised:
        list(dataset)
    assert (raised.value.url, raised.value.offset) == (joined, BYTE)


def test_an_exact_dataset_of_several_archives_has_all_samples(joined: str) -> None:
    dataset = wds.WebDataset(joined, exact=True, concatenated=True, seed=3)
    assert len(dataset) == 5
    assert sorted(keys(dataset)) == ALL
    assert keys(dataset[0:5]) == ALL
    assert dataset["000004"]["txt"] == b"txt4"


@pytest.mark.parametrize("order", [[False, True, False, True], [True, False, True, False]])
def test_indices_of_the_two_ways_are_not_mixed(joined: str, quiet: None, order: list[bool]) -> None:
    for concatenated in order:
        assert len(wds.WebDataset(joined, exact=True, concatenated=concatenated)) == (5 if concatenated else 3)


def test_an_index_beside_the_shard_serves_whom_it_fits(joined: str, quiet: None) -> None:
    assert wds.index(joined, concatenated=True).total == 5
    assert os.path.exists(joined + ".wdx")
    assert len(wds.WebDataset(joined, exact=True)) == 3
    assert len(wds.WebDataset(joined, exact=True, concatenated=True)) == 5
    assert wds.index(joined).total == 3
    assert wds.index(joined, concatenated=True).total == 5


def test_the_index_of_a_usual_shard_serves_both(make_shard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = make_shard("a.tar")
    kept_index(shard)
    monkeypatch.setattr(files, "make_index", None)
    assert kept_index(shard, ReadingRules(concatenated=True)).samples == 10


def test_an_index_that_does_not_say_where_it_stopped_is_made_again(joined: str, quiet: None) -> None:
    older = kept_index(joined, ReadingRules(concatenated=True))
    del older._header["archives"]
    data = _with_header(older)
    place = index_place(joined, "cache")
    Path(place).write_bytes(data)
    assert ShardIndex.from_bytes(data).samples == 5
    assert kept_index(joined).samples == 3


def _with_header(index: ShardIndex) -> bytes:
    """An index with another header, as an older version wrote it."""
    import zlib

    from webdataset.tar.index import _FRONT, MAGIC

    start = len(index.to_bytes()) - index._header["length"]
    text = json.dumps(index._header).encode()
    text += b" " * (-(_FRONT.size + len(text)) % 8)
    return _FRONT.pack(MAGIC, len(text), zlib.crc32(text)) + text + index.to_bytes()[start:]


def test_lists_of_shards_from_before_are_not_believed(joined: str, quiet: None) -> None:
    catalogue = making.catalogue_of([joined])
    [path] = (Path(files.settings.indices_dir) / "lists").iterdir()
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"samples": [5]}))
    assert making.catalogue_of([joined]).total == 5  # such a list is what is believed
    del kept["format"]
    path.write_text(json.dumps(kept | {"samples": [5]}))
    assert making.catalogue_of([joined]).total == catalogue.total == 3


def test_a_catalogue_remembers_how_its_shards_are_read(joined: str, tmp_path: Path) -> None:
    catalogue = wds.index(joined, concatenated=True)
    catalogue.save(tmp_path / "train.json")
    assert len(wds.WebDataset(str(tmp_path / "train.json"), exact=True)) == 5
    assert keys(wids.ShardListDataset(str(tmp_path / "train.json"))) == ALL


def test_a_catalogue_of_the_other_way_is_refused(make_shard: Any) -> None:
    with pytest.raises(ValueError, match="concatenated=True"):
        wds.WebDataset(wds.index(make_shard()), exact=True, concatenated=True)


def test_a_list_of_wids_can_be_made_of_several_archives(joined: str, tmp_path: Path) -> None:
    path = str(tmp_path / "list.json")
    assert wids_main(["create", "--concatenated", "-o", path, joined]) == 0
    assert keys(wids.ShardListDataset(path)) == ALL


def test_wids_reads_several_archives_if_told_to(joined: str) -> None:
    rows = [{"url": joined, "nsamples": 5}]
    assert keys(wids.ShardListDataset(rows, concatenated=True)) == ALL


def test_indices_are_made_the_same_way_by_other_processes(
    joined: str, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    monkeypatch.setattr(making, "TRIAL_SECONDS", -1.0)
    monkeypatch.setattr(making, "WORTH_SECONDS", -1.0)
    urls = [joined]
    for number in range(2):
        urls.append(f"{joined}-{number}.tar")
        Path(urls[-1]).write_bytes(Path(joined).read_bytes())
    assert wds.index(urls, jobs=2, concatenated=True).counts.tolist() == [5, 5, 5]
    assert wds.index(urls, jobs=2, force=True).counts.tolist() == [3, 3, 3]
