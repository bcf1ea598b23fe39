"""How the samples of an exact epoch are read: in the order of the plan, large ones when they are due."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path

import pytest

import webdataset as wds
from tests_support import tar_bytes

pytestmark = pytest.mark.usefixtures("own_cache")


def test_many_samples_keep_their_order_through_everything(tmp_path):
    rng = random.Random(3)
    paths = []
    for shard in range(6):
        paths.append(str(tmp_path / f"{shard}.tar"))
        sizes = [rng.randrange(3000) for _ in range(rng.randrange(50, 300))]
        with open(paths[-1], "wb") as file:
            file.write(tar_bytes([(f"{shard}-{i:05d}.bin", bytes(size)) for i, size in enumerate(sizes)]))
    options = {"exact": True, "shuffle_bytes": "200k", "block_bytes": "16k", "seed": 9}
    whole = [sample["__key__"] for sample in wds.WebDataset(paths, **options)]
    assert len(set(whole)) == len(whole) == sum(wds.index(paths).counts)
    ranks = [[sample["__key__"] for sample in wds.WebDataset(paths, rank=r, world_size=4, **options)] for r in range(4)]
    together = [set(step) for step in zip(*ranks, strict=True)]
    assert together[: len(whole) // 4] == [set(whole[i : i + 4]) for i in range(0, len(whole) // 4 * 4, 4)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Shards whose samples are large, so that each can be read when it is due."""
    folder, noise = tmp_path_factory.mktemp("photos"), random.Random(1)
    paths = [folder / f"{number}.tar" for number in range(3)]
    for number, path in enumerate(paths):
        files = []
        for i in range(50 + number):
            photo = noise.randbytes(noise.randrange(30_000, 90_000))
            files += [(f"{number}-{i}.cls", b"%d" % i), (f"{number}-{i}.jpg", photo)]
        path.write_bytes(tar_bytes(files))
    return [str(path) for path in paths]


def test_large_samples_of_files_come_as_they_are_in_the_order_of_the_plan(photos):
    known = {sample["__key__"]: sample for sample in wds.WebDataset(photos, shardshuffle=False)}
    dataset = wds.WebDataset(photos, exact=True, lanes=4)
    one_by_one = wds.WebDataset(photos, exact=True, lanes=4, select_files=bool)
    for _ in range(2):
        found = list(dataset)
        assert sorted(sample["__key__"] for sample in found) == sorted(known)
        assert all(sample == known[sample["__key__"]] for sample in found)
        assert found == list(one_by_one)
        assert dataset.stats()["bytes_read"] <= sum(map(os.path.getsize, photos))


def test_large_samples_with_long_names_are_not_read_twice(tmp_path):
    path = tmp_path / "a.tar"
    names = [f"{'k' * 120 if i % 9 == 0 else ''}{i}.jpg" for i in range(200)]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 40_000
            archive.addfile(member, io.BytesIO(name.encode()[:1] * 40_000))
    dataset = wds.WebDataset([str(path)], exact=True)
    samples = list(dataset)
    assert sorted(sample["__key__"] + ".jpg" for sample in samples) == sorted(names)
    assert all(sample["jpg"] == sample["__key__"].encode()[:1] * 40_000 for sample in samples)
    assert dataset.stats()["bytes_read"] <= path.stat().st_size


def test_large_samples_of_files_are_not_held(photos):
    dataset = wds.WebDataset(photos, exact=True, lanes=4)
    next(iter(dataset))
    assert 0 < dataset.stats()["bytes_read"] < 0.6 * sum(map(os.path.getsize, photos))


def test_a_damaged_header_among_large_samples_is_found(photos, tmp_path):
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(Path(photos[0]).read_bytes())
    wds.index([str(damaged)])
    status = damaged.stat()
    with open(damaged, "r+b") as file:
        file.seek(0)
        file.write(b"x")
    os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(wds.WebDatasetError, match=r"damaged\.tar"):
        list(wds.WebDataset([str(damaged)], exact=True))
