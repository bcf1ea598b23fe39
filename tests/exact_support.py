"""Datasets with exact epochs, for tests."""

from __future__ import annotations

import webdataset as wds

SIZES = {"uneven": (7, 11, 2), "equal": (6, 6, 6), "one": (23,)}
"""Samples in the shards of each dataset."""


def urls(folder, name="uneven"):
    return [str(folder / f"{name}-{number:06d}.tar") for number in range(len(SIZES[name]))]


def total(name="uneven"):
    return sum(SIZES[name])


def exact(folder, name="uneven", **options):
    return wds.WebDataset(urls(folder, name), exact=True, **{"seed": 1, "lanes": 8, **options})


def keys(batches):
    return [list(batch[0]) for batch in batches]


def flat(batches):
    return [key for batch in batches for key in batch]


def batched(dataset, size, **options):
    return dataset.to_tuple("__key__").batched(size, **options)


def few(sample):
    return int(sample["cls"]) % 3 == 0


def most(sample):
    return int(sample["cls"]) % 5 != 0
