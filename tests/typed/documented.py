"""What users write, as the documentation shows it."""

from __future__ import annotations

from typing import assert_type

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
    assert_type(batches, wds.WebDataset)
    loader = wds.WebLoader(batches, batch_size=None, num_workers=4, persistent_workers=True).unbatched().shuffle(1000)
    assert_type(loader, wds.WebLoader)
    for images, labels in loader.batched(64).with_epoch(1000):
        use(images.shape, labels)


def exact() -> int:
    dataset = wds.WebDataset("train-{000000..000146}.tar", exact=True, seed=1).decode("rgb8").to_tuple("jpg", "cls")
    use(dataset.plan(ranks=8).steps, dataset.catalogue.total)
    first = dataset[0]
    use(first)
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
