"""webdataset 1.0.2, which this package replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .case import Case, recipe

PACKAGES = ["webdataset==1.0.2", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "webdataset"
DATA = ("A", "A.tgz", "B", "C")
URLS = True


def _sources(case: Case) -> list[str]:
    return [f"pipe:curl -s -f {url}" if url.startswith("http") else url for url in case.sources]


def imported() -> None:
    from webdataset import ShardWriter, WebDataset, WebLoader  # noqa: F401 - the import is what is measured


def raw(case: Case) -> Iterator[bytes]:
    import webdataset as wds

    name = case.field
    return (sample[name] for sample in wds.WebDataset(_sources(case), shardshuffle=False))


def shuffled(case: Case) -> Iterator[bytes]:
    import webdataset as wds

    name = case.field
    return (sample[name] for sample in wds.WebDataset(_sources(case), shardshuffle=len(case.sources)).shuffle(10_000))


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import webdataset as wds

    dataset = wds.WebDataset(_sources(case), shardshuffle=False)
    yield from dataset.decode("rgb8").to_tuple("jpg", "cls")


def train(case: Case) -> Any:
    import webdataset as wds

    dataset = (
        wds.WebDataset(_sources(case), shardshuffle=len(case.sources), empty_check=False)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(recipe(), None)
        .batched(case.batch)
    )
    return wds.WebLoader(dataset, batch_size=None, num_workers=case.workers)


def write(samples: Any, folder: str) -> None:
    import webdataset as wds

    with wds.ShardWriter(f"{folder}/out-%06d.tar", maxcount=50_000, verbose=0) as writer:
        for sample in samples:
            writer.write(sample)
