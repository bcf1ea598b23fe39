"""This package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .case import Case

PACKAGES: list[str] = []
NEEDS = ""
DISTRIBUTION = "webdataset"
DATA = ("A", "A.tgz", "B", "C")
URLS = True


def imported() -> None:
    from webdataset import ShardWriter, WebDataset, WebLoader  # noqa: F401 - names are imported when they are asked for


def raw(case: Case) -> Iterator[bytes]:
    import webdataset as wds

    name = case.field
    return (sample[name] for sample in wds.WebDataset(case.sources, shardshuffle=False))


def shuffled(case: Case) -> Iterator[bytes]:
    import webdataset as wds

    name = case.field
    return (sample[name] for sample in wds.WebDataset(case.sources, shardshuffle=len(case.sources)).shuffle(10_000))


def rgb(case: Case, threads: int = 0) -> Iterator[tuple[Any, int]]:
    import webdataset as wds

    dataset = wds.WebDataset(case.sources, shardshuffle=False).decode("rgb8").to_tuple("jpg", "cls")
    if not threads:
        return iter(dataset)
    return iter(wds.WebLoader(dataset, batch_size=None, num_workers=threads, workers="thread"))


def train(case: Case, workers: str = "process") -> Any:
    import webdataset as wds

    dataset = (
        wds.WebDataset(case.sources, shardshuffle=len(case.sources))
        .shuffle(1000)
        .decode(wds.images.train(224))
        .to_tuple("jpg", "cls")
        .batched(case.batch)
    )
    return wds.WebLoader(dataset, batch_size=None, num_workers=case.workers, workers=workers)


def write(samples: Any, folder: str) -> None:
    import webdataset as wds

    with wds.ShardWriter(f"{folder}/out-%06d.tar", maxcount=50_000, verbose=0) as writer:
        for sample in samples:
            writer.write(sample)
