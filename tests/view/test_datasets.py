"""The dataset that is looked at: at once as a stream, with an index as soon as there is one."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.nginx import Nginx
from waiting import soon
from webdataset.view import datasets
from webdataset.view.datasets import ViewedDataset
from webdataset.view.samples import StreamedSamples

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def look(request: pytest.FixtureRequest) -> Callable[..., ViewedDataset]:
    def opened(urls: list[str], **options: bool) -> ViewedDataset:
        dataset = ViewedDataset(urls, **options)
        request.addfinalizer(dataset.close)
        dataset.start()
        return dataset

    return opened


def test_a_dataset_is_indexed_in_the_background(
    make_shards: Callable[..., list[str]], look: Callable[..., ViewedDataset]
) -> None:
    dataset = look(make_shards(3, samples=4))
    assert dataset.wait(60)
    assert (dataset.samples.known(), dataset.indexed, dataset.errors()) == (12, (3, 3), [])


def test_samples_are_there_before_the_index_is(
    make_shards: Callable[..., list[str]], look: Callable[..., ViewedDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    held = threading.Event()
    making = datasets.catalogue_of

    def slow(*args: object, **options: object) -> object:
        held.wait(60)
        return making(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(datasets, "catalogue_of", slow)
    dataset = look(make_shards(2, samples=4))
    assert not dataset.is_settled
    assert isinstance(dataset.samples, StreamedSamples)
    before = dataset.samples.sample(5)
    held.set()
    assert dataset.wait(60)
    after = dataset.samples.sample(5)
    assert (before.key, before.shard, before.place) == (after.key, after.shard, after.place)
    assert before.fields["txt"].read(99) == after.fields["txt"].read(99)


def test_nothing_is_written_beside_the_data(
    make_shards: Callable[..., list[str]], look: Callable[..., ViewedDataset], tmp_path: Path
) -> None:
    shards = make_shards(2)
    dataset = look(shards)
    assert dataset.wait(60)
    beside = [name for name in os.listdir(tmp_path) if name != "cache-home"]
    assert sorted(beside) == sorted(os.path.basename(shard) for shard in shards)


def test_a_compressed_shard_is_streamed(
    make_shard: Callable[..., str], look: Callable[..., ViewedDataset], tmp_path: Path
) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(Path(make_shard(samples=7)).read_bytes()))
    dataset = look([str(tmp_path / "a.tar.gz")])
    assert dataset.wait(60)
    assert dataset.samples.sample(6).key == "000006"
    assert "compressed" in dataset.why_streamed


def test_the_output_of_a_command_is_streamed(
    make_shard: Callable[..., str], look: Callable[..., ViewedDataset]
) -> None:
    dataset = look([f"pipe:cat {make_shard(samples=3)}"])
    assert dataset.wait(60)
    assert [dataset.samples.sample(i).key for i in range(3)] == ["000000", "000001", "000002"]
    assert dataset.catalogue is None


def test_a_broken_shard_is_told_and_the_others_are_indexed(
    make_shards: Callable[..., list[str]], look: Callable[..., ViewedDataset]
) -> None:
    shards = make_shards(3, samples=4)
    with open(shards[1], "r+b") as file:
        file.truncate(1300)
    dataset = look(shards)
    assert dataset.wait(60)
    assert dataset.samples.known() == 8
    rows = dataset.shards()
    assert [row.get("samples") for row in rows] == [4, None, 4]
    assert "early" in rows[1]["error"]
    assert [row["first"] for row in (rows[0], rows[2])] == [0, 4]


def test_a_shard_that_is_named_twice_is_there_twice(
    make_shard: Callable[..., str], look: Callable[..., ViewedDataset]
) -> None:
    shard = make_shard(samples=4)
    dataset = look([shard, shard])
    assert dataset.wait(60)
    assert [(row["samples"], row["first"]) for row in dataset.shards()] == [(4, 0), (4, 4)]


def test_shards_that_are_not_there_are_told(look: Callable[..., ViewedDataset]) -> None:
    dataset = look(["/nowhere/a.tar"])
    assert dataset.wait(60)
    with pytest.raises(IndexError):
        dataset.samples.sample(0)
    (error,) = dataset.errors()
    assert "/nowhere/a.tar" in error


def test_shards_of_a_web_server_are_indexed_and_read_by_ranges(
    nginx: Nginx, make_shard: Callable[..., str], look: Callable[..., ViewedDataset]
) -> None:
    dataset = look([nginx.put("view.tar", Path(make_shard(samples=9)).read_bytes())])
    assert dataset.wait(60)
    assert dataset.samples.known() == 9
    assert dataset.samples.sample(8).fields["txt"].read(99) == b"txt8"


@pytest.mark.filterwarnings("ignore:a member's header behind the archive's end marker")
def test_archives_put_together_are_read_on_if_asked_for(look: Callable[..., ViewedDataset], tmp_path: Path) -> None:
    from tests_support import concatenated_tar

    path = concatenated_tar(tmp_path, 2, 3)
    counts = []
    for concatenated in (False, True):
        dataset = look([path], concatenated=concatenated)
        assert dataset.wait(60)
        counts.append(dataset.samples.known())
    assert counts == [2, 5]


def test_closing_does_not_wait_for_a_server_that_is_down(
    closed_port: int, look: Callable[..., ViewedDataset], patient: None
) -> None:
    dataset = look([f"http://127.0.0.1:{closed_port}/a.tar"])
    assert not dataset.is_settled
    dataset.close()
    assert soon(lambda: dataset.is_settled)
