"""What users write, as the documentation shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_type

import torch
from torch.utils.data import DataLoader

import webdataset as wds


def use(*values: object) -> None:
    """What a program does with its data."""


def preprocess(sample: dict[str, object]) -> tuple[object, object]:
    return sample["jpg"], sample["cls"]


def streamed() -> None:
    dataset = wds.WebDataset("train-{000000..000146}.tar", shardshuffle=100, seed=1).shuffle(1000).decode("rgb8")
    assert_type(dataset, wds.WebDataset)
    batches = dataset.to_tuple("jpg;png", "cls").batched(32, partial=False)
    assert_type(batches, wds.WebDataset[tuple[Any, Any]])
    loader = wds.WebLoader(batches, batch_size=None, num_workers=4, persistent_workers=True).unbatched().shuffle(1000)
    assert_type(loader, wds.WebLoader)
    for images, labels in loader.batched(64).with_epoch(1000):
        use(images.shape, labels)


def length(pair: tuple[bytes, str]) -> int | None:
    return len(pair[0]) or None


def doubled(items: Iterable[Any]) -> Iterator[int]:
    yield from items


def typed() -> None:
    dataset = wds.WebDataset("train.tar").decode("rgb8", handler=wds.warn_and_continue)
    pairs = dataset.to_tuple("jpg;png", ["cls", "json"], handler=wds.warn_and_continue).shuffle(1000)
    assert_type(pairs, wds.WebDataset[tuple[Any, Any]])
    assert_type(dataset.to_tuple("a", "b", "c", missing_is_error=False), wds.WebDataset[tuple[Any, Any, Any]])
    assert_type(dataset.to_tuple("jpg cls"), wds.WebDataset[tuple[Any, ...]])
    assert_type(pairs.map_tuple(len, str), wds.WebDataset[tuple[int, str]])
    assert_type(pairs.map_tuple(len, str).map_tuple(None, int), wds.WebDataset[tuple[int, int]])
    assert_type(pairs.batched(8).unbatched().with_epoch(10), wds.WebDataset[tuple[Any, Any]])
    assert_type(pairs.batched(8, collation_fn=None), wds.WebDataset[list[tuple[Any, Any]]])
    assert_type(pairs.listed(8).unlisted(), wds.WebDataset[tuple[Any, Any]])
    assert_type(pairs.map(length), wds.WebDataset[int])
    for number in pairs.then(doubled):
        use(number + 1)
    assert_type(pairs.compose(wds.map(length)), wds.WebDataset)
    for image, label in pairs:
        use(image.shape, label + 1)
    for one, two in dataset.map(lambda sample: (sample["jpg"], sample["cls"])).batched(4):
        use(one.shape, two)
    assert_type(Mine("a.tar").to_tuple("jpg", "cls").map(length).every(2), Mine)


def annotated(dataset: wds.WebDataset, pairs: wds.WebDataset[tuple[bytes, int]]) -> int:
    for sample in dataset:
        use(sample["jpg"])
    assert_type(pairs["some key"], tuple[bytes, int])
    assert_type(pairs[:10], list[tuple[bytes, int]])
    return pairs[0][1]


def exact() -> int:
    dataset = wds.WebDataset("train-{000000..000146}.tar", exact=True, seed=1).decode("rgb8").to_tuple("jpg", "cls")
    use(dataset.plan(ranks=8).steps, dataset.catalogue.total)
    first = dataset[0]
    use(first)
    annotated(wds.WebDataset("a.tar"), dataset)
    return len(dataset)


def train(loader: DataLoader[object]) -> None:
    for batch in loader:
        use(batch)


def trained() -> None:
    train(wds.WebLoader(wds.WebDataset("a.tar"), batch_size=None))
    state = wds.WebLoader(wds.WebDataset("a.tar", exact=True), batch_size=8).state_dict()
    use(state["epoch"])


def mixed() -> None:
    mix = wds.RandomMix([wds.WebDataset("a.tar"), wds.WebDataset("b.tar")], [0.7, 0.3], longest=True)
    for batch in mix.shuffle(100).batched(8, collation_fn=wds.pad(0, multiple=8)).with_epoch(100):
        use(batch)


@wds.pipelinefilter
def every(data: object, n: int) -> object:
    return data


class Mine(wds.WebDataset):
    every = wds.fluent(every)


def written() -> None:
    with wds.ShardWriter("out-%06d.tar", maxcount=1000, index=True, compress=False) as sink:
        sink.write({"__key__": "a", "txt": "hello", "pth": torch.zeros(3)})
    with wds.TarWriter("out.tar") as one:
        one.write({"__key__": "a", "cls": 3})
    pipeline = wds.DataPipeline(
        wds.SimpleShardList("a.tar"), wds.tarfile_to_samples(), wds.map(preprocess), wds.batched(4)
    )
    for batch in pipeline:
        use(batch)
    Mine("a.tar").every(2)
    wds.index("a.tar")
