"""What programs written for the package do with it, beyond calling it: one test for each habit."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader, Dataset, IterableDataset, default_collate

import webdataset as wds
from webdataset import tariterators
from webdataset.cache import FileCache, StreamingOpen
from webdataset.filters import _shuffle
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_iterator, url_opener, valid_sample

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    """Four shards of five samples each, with a label, a text and a record."""
    with wds.ShardWriter(f"{tmp_path}/s-%02d.tar", maxcount=5, verbose=0) as sink:
        for i in range(20):
            sink.write({"__key__": f"{i:03d}", "cls": i, "txt": f"text {i}", "json": {"i": i}})
    return [f"{tmp_path}/s-{i:02d}.tar" for i in range(4)]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Put something in the place of a function of `webdataset.tariterators`, until the test ends."""
    return lambda name, value: monkeypatch.setattr(tariterators, name, value)


def labels(dataset: Any) -> list[int]:
    return sorted(int(sample["cls"]) for sample in dataset)


def as_is(x: Any) -> Any:
    return x


# -- datasets that torch and trainers look at ------------------------------------------------------


@pytest.mark.parametrize("check", [Dataset, IterableDataset])
def test_datasets_pass_for_torch_datasets(shards: list[str], check: type) -> None:
    dataset = wds.WebDataset(shards)
    assert isinstance(dataset, check)
    assert isinstance(wds.DataPipeline([1]), check)
    assert isinstance(wds.WebLoader(dataset, batch_size=None), check)
    assert isinstance(wds.RandomMix([dataset]), check)
    assert isinstance(wds.SimpleShardList(shards), check)
    assert isinstance(dataset.with_length(3, silent=True), check)


def test_the_class_of_a_dataset_is_still_its_own(shards: list[str]) -> None:
    dataset = wds.WebDataset(shards)
    assert type(dataset) is wds.WebDataset
    assert isinstance(dataset, wds.WebDataset)
    assert dataset.__class__.__name__ == "WebDataset"
    assert issubclass(dataset.__class__, wds.WebDataset)
    assert type(dataset.__class__(shards)) is wds.WebDataset
    assert labels(dataset.__class__(shards)) == list(range(20))


def test_a_program_that_registers_subclasses_sees_only_its_own() -> None:
    seen: list[str] = []

    class Registered(wds.DataPipeline):
        def __init_subclass__(cls, *, title: str) -> None:
            seen.append(title)

    class Mine(Registered, title="mine"):
        pass

    assert isinstance(Mine([1]), Dataset)
    assert seen == ["mine"]


def test_a_class_with_a_metaclass_of_its_own_is_an_iterable_dataset() -> None:
    class Meta(type):
        pass

    class Odd(wds.DataPipeline, metaclass=Meta):
        pass

    assert isinstance(Odd([1]), IterableDataset)


def test_a_dataset_may_be_a_torch_dataset_by_birth(shards: list[str]) -> None:
    class Both(wds.WebDataset, IterableDataset):  # type: ignore[type-arg]
        pass

    dataset = Both(shards)
    assert dataset.__class__ is Both
    assert labels(dataset) == list(range(20))


def test_two_datasets_add_up_to_a_chain(shards: list[str]) -> None:
    both = wds.WebDataset(shards[:2]) + wds.WebDataset(shards[2:])
    assert isinstance(both, ChainDataset)
    assert labels(both) == list(range(20))
    assert labels(ChainDataset([wds.WebDataset(shards)])) == list(range(20))


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_every_dataset_is_pickled_and_copied_with_torch_around(shards: list[str], again: Any) -> None:
    dataset = wds.WebDataset(shards).with_length(20, silent=True)
    assert len(again(dataset)) == 20
    assert labels(again(dataset)) == list(range(20))
    assert list(again(wds.SimpleShardList(shards))) == [{"url": url} for url in shards]
    assert list(again(wds.RoundRobin([[1, 2], [3, 4]]))) == [1, 3, 2, 4]
    assert list(again(wds.MockDataset({"a": 1}, 2))) == [{"a": 1}] * 2


def test_a_subclass_with_a_state_of_its_own_is_pickled() -> None:
    assert list(pickle.loads(pickle.dumps(WithState(["a.tar"])))) == [{"url": "a.tar"}, {"url": "b.tar"}]


class WithState(wds.SimpleShardList):
    def __getstate__(self) -> dict[str, Any]:
        return {"urls": [*self.urls, "b.tar"], "seed": None}


def test_a_subclass_that_iterates_by_itself_is_read_by_a_worker_and_by_a_pipeline(shards: list[str]) -> None:
    class Both(wds.DataPipeline, wds.compat.FluidInterface):
        def __init__(self, *datasets: Any) -> None:
            super().__init__()
            self.datasets = datasets

        def __iter__(self) -> Iterator[Any]:
            for dataset in self.datasets:
                yield from dataset

    both = Both(wds.WebDataset(shards[:2]), wds.WebDataset(shards[2:]))
    assert labels(DataLoader(both, batch_size=None, num_workers=1)) == list(range(20))
    assert labels(wds.DataPipeline(both, wds.shuffle(5))) == list(range(20))


def test_attributes_set_on_datasets_and_loaders_stay(shards: list[str]) -> None:
    loader = wds.WebLoader(wds.WebDataset(shards).batched(5), batch_size=None)
    loader.num_batches, loader.num_samples = 4, 20
    loader = loader.with_epoch(3)
    assert (loader.num_batches, loader.num_samples, sum(1 for _ in loader)) == (4, 20, 3)


# -- pipelines put together by hand ----------------------------------------------------------------


def test_a_training_pipeline_of_a_contrastive_model(shards: list[str]) -> None:
    class EpochShuffle(wds.PipelineStage):
        def run(self, src: Iterator[Any]) -> Iterator[Any]:
            return _shuffle(src, 2000, 500, random.Random(1))

    dataset = wds.DataPipeline(
        wds.SimpleShardList(shards),
        EpochShuffle(),
        wds.split_by_node,
        wds.split_by_worker,
        wds.tarfile_to_samples(handler=wds.warn_and_continue),
        wds.shuffle(bufsize=10, initial=5),
        wds.select(lambda sample: "txt" in sample and "cls" in sample),
        wds.decode("pilrgb", handler=wds.warn_and_continue),
        wds.rename(image="jpg;png;cls", text="txt"),
        wds.map_dict(image=float, text=len),
        wds.to_tuple("image", "text"),
        wds.batched(5, partial=False),
    )
    loader = wds.WebLoader(dataset, batch_size=None, shuffle=False, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert sorted(x for images, _ in loader for x in images.tolist()) == list(range(20))


def test_samples_grouped_by_a_function_that_reads_names_only(shards: list[str]) -> None:
    def grouped_without_errors(files: Any, handler: Any = None) -> Iterator[Any]:
        sample: Any = None
        for file in files:
            key, field = base_plus_ext(file["fname"])
            if sample is None or sample["__key__"] != key:
                if valid_sample(sample):
                    yield sample
                sample = {"__key__": key, "__url__": file["__url__"]}
            sample[field] = file["data"]
        if valid_sample(sample):
            yield sample

    def samples(src: Any) -> Iterator[Any]:
        opened = url_opener(src, handler=wds.warn_and_continue)
        return grouped_without_errors(tariterators.tar_file_expander(opened, handler=wds.warn_and_continue))

    assert labels(wds.DataPipeline(wds.SimpleShardList(shards), samples)) == list(range(20))


def test_every_step_of_reading_as_a_stage_of_its_own(shards: list[str]) -> None:
    dataset = wds.DataPipeline()
    dataset.append(wds.SimpleShardList(shards))
    dataset.append(wds.split_by_node)
    dataset.append(wds.split_by_worker)
    dataset.append(StreamingOpen())
    dataset.append(wds.pipelinefilter(tariterators.tar_file_expander)())
    dataset.append(wds.pipelinefilter(group_by_keys)())
    dataset.append(wds.compat.check_empty)
    assert labels(DataLoader(dataset, batch_size=None, num_workers=2)) == list(range(20))


def test_processors_in_a_row(shards: list[str]) -> None:
    def shifted(source: Any, by: int = 0) -> Iterator[Any]:
        for (label,) in source:
            yield label + by

    dataset: Any = wds.ShardList(shards)
    dataset = wds.Processor(dataset, wds.url_opener)
    dataset = wds.Processor(dataset, wds.tar_file_expander)
    dataset = wds.Processor(dataset, wds.group_by_keys)
    dataset = wds.Processor(dataset, wds.decode)
    dataset = wds.Processor(dataset, wds.to_tuple, "cls")
    dataset = wds.Processor(dataset, shifted, by=100)
    assert [batch.tolist() for batch in DataLoader(dataset, batch_size=10)] == [
        list(range(100, 110)),
        list(range(110, 120)),
    ]


def test_a_processor_has_the_methods_of_a_dataset(shards: list[str]) -> None:
    dataset = wds.Processor(wds.WebDataset(shards), wds.map, as_is)
    assert isinstance(dataset, Dataset)
    assert [len(batch) for batch in dataset.shuffle(10).batched(8, collation_fn=None)] == [8, 8, 4]


def test_a_processor_without_a_dataset_is_no_dataset_yet() -> None:
    waiting = wds.Processor(wds.map, str)
    assert list(waiting([1, 2]).slice(1)) == ["1"]
    with pytest.raises(ValueError, match="empty"):
        list(waiting)


def test_the_first_stage_of_a_finished_dataset_is_exchanged(shards: list[str]) -> None:
    dataset = wds.WebDataset(shards, resampled=True, shardshuffle=False, nodesplitter=wds.split_by_node)
    drawn = dataset.pipeline[0]
    assert (drawn.urls, drawn.seed) == (shards, 0)
    dataset.pipeline[0] = wds.SimpleShardList(drawn.urls[:2])
    assert labels(dataset) == list(range(10))


def test_the_cache_of_a_finished_dataset_is_exchanged(shards: list[str], tmp_path: Path) -> None:
    def my_cache(src: Any) -> Iterator[Any]:
        for shard in src:
            path = shard["url"].removeprefix("pipe:cat ")
            yield {"url": "mine", "stream": wds.gopen(path), "local_path": path}

    dataset = wds.WebDataset([f"pipe:cat {path}" for path in shards], cache_dir=str(tmp_path))
    (place,) = [i for i, stage in enumerate(dataset.pipeline) if isinstance(stage, FileCache)]
    assert labels(dataset) == list(range(20))
    dataset.pipeline[place] = my_cache
    assert {(sample["__url__"], sample["__local_path__"]) for sample in dataset} == {("mine", path) for path in shards}


def test_a_shard_list_of_the_program_is_a_source(shards: list[str]) -> None:
    class Shards(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            return ({"url": url} for url in shards)

    assert labels(wds.WebDataset(Shards())) == list(range(20))
    assert labels(wds.DataPipeline(Shards(), wds.split_by_worker, wds.tarfile_to_samples())) == list(range(20))


# -- functions put in the place of ours ------------------------------------------------------------


def test_a_url_opener_of_the_program_opens_the_shards(shards: list[str], replaced: Any) -> None:
    def from_memory(data: Any, handler: Any = wds.reraise_exception, **kw: Any) -> Iterator[Any]:
        for shard in data:
            shard.update(stream=io.BytesIO(Path(shard["url"].removeprefix("store://")).read_bytes()))
            yield shard

    replaced("url_opener", from_memory)
    urls = [f"store://{path}" for path in shards]
    assert labels(wds.WebDataset(urls)) == list(range(20))
    assert labels(wds.DataPipeline(wds.SimpleShardList(urls), wds.tarfile_to_samples())) == list(range(20))


def test_an_expander_of_the_program_needs_no_options_that_are_not_used(shards: list[str], replaced: Any) -> None:
    def expander(data: Any, handler: Any = wds.reraise_exception) -> Iterator[Any]:
        for source in data:
            for file in tar_file_iterator(source["stream"]):
                yield {**file, "__url__": "mine"}

    replaced("tar_file_expander", expander)
    assert {sample["__url__"] for sample in wds.WebDataset(shards)} == {"mine"}
    with pytest.raises(TypeError, match="select_files"):
        list(wds.WebDataset(shards, select_files=bool))


def test_a_grouping_of_the_program_groups(shards: list[str], replaced: Any) -> None:
    def one_by_one(data: Any, handler: Any = None) -> Iterator[Any]:
        return ({"__key__": file["fname"]} for file in data)

    replaced("group_by_keys", one_by_one)
    assert len(list(wds.WebDataset(shards))) == 60


def test_a_reading_stage_of_the_program_reads(shards: list[str], replaced: Any) -> None:
    def names(src: Any, handler: Any = wds.reraise_exception) -> Iterator[Any]:
        return ({"__key__": shard["url"]} for shard in src)

    replaced("tarfile_to_samples", wds.pipelinefilter(names))
    assert [sample["__key__"] for sample in wds.WebDataset(shards)] == shards


def test_check_empty_of_the_program_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tarfile.open(tmp_path / "empty.tar", "w").close()
    monkeypatch.setattr(wds.compat, "check_empty", iter)
    assert list(wds.WebDataset(f"{tmp_path}/empty.tar")) == []


def test_a_scheme_of_the_program_returns_a_body_with_read_only(
    shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Body:
        def __init__(self, path: str) -> None:
            self.data = io.BytesIO(Path(path).read_bytes())

        def read(self, amt: int | None = None) -> bytes:
            return self.data.read(amt)

        def close(self) -> None:
            self.data.close()

    monkeypatch.setitem(wds.gopen.gopen_schemes, "bucket", lambda url, *_args, **_kw: Body(url[len("bucket:/") :]))
    assert labels(wds.WebDataset([f"bucket:/{path}" for path in shards])) == list(range(20))


# -- small habits ----------------------------------------------------------------------------------


def test_gopen_is_called_as_a_function_and_through_its_module(tmp_path: Path) -> None:
    (tmp_path / "info.json").write_text('{"a": 1}')
    for opener in (wds.gopen, wds.gopen.gopen):
        with opener(f"{tmp_path}/info.json", "rb") as stream:
            assert json.load(stream) == {"a": 1}


def test_names_of_version_0_1_in_the_dataset_module() -> None:
    from webdataset import dataset

    assert dataset.IterableDataset is IterableDataset
    assert (dataset.Composable, dataset.Shorthands) == (wds.DataPipeline, wds.FluidInterface)
    assert dataset.warn_and_continue is wds.warn_and_continue
    with pytest.raises(AttributeError, match="nonsense"):
        dataset.nonsense  # noqa: B018 - the access is what is tested


def test_a_decoder_of_the_program_decodes_some_fields_itself(shards: list[str]) -> None:
    class Shouting(wds.autodecode.Decoder):
        def decode1(self, key: str, data: Any) -> Any:
            return data.decode().upper() if key.endswith("txt") else super().decode1(key, data)

    sample = next(iter(wds.WebDataset(shards).map(Shouting([wds.imagehandler("pil")], only=["txt", "cls"]))))
    assert (sample["txt"], sample["cls"], sample["json"]) == ("TEXT 0", 0, b'{"i": 0}')


def test_batches_are_collated_by_torch_and_reshuffled_behind_the_loader(shards: list[str]) -> None:
    dataset = wds.WebDataset(shards, shardshuffle=10).shuffle(10, initial=10).decode().to_tuple("cls", "__key__")
    loader = wds.WebLoader(dataset.batched(5, collation_fn=default_collate), batch_size=None, num_workers=2)
    reshuffled = loader.unbatched().shuffle(20).batched(4)
    batches = list(reshuffled)
    assert [tuple(numbers.shape) for numbers, _ in batches] == [(4,)] * 5
    assert sorted(int(x) for numbers, _ in batches for x in numbers) == list(range(20))
    assert isinstance(batches[0][0], torch.Tensor)
