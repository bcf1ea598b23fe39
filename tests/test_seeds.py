"""The programs of four generations of documents, run as they were written, on shards of our own."""

from __future__ import annotations

import io
import multiprocessing
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import webdataset as wds
from tests_support import tar_bytes
from webdataset import WebDataset
from webdataset.writer import TarWriter


def jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def url(tmp_path):
    """Four shards of six JPEGs with json and cls, as a brace pattern."""
    for shard in range(4):
        files = []
        for i in range(6):
            key = f"{shard:02d}{i:04d}"
            files += [
                (f"{key}.jpg", jpeg(6 * shard + i)),
                (f"{key}.json", b'{"ImageID": "%d"}' % i),
                (f"{key}.cls", b"%d" % i),
            ]
        (tmp_path / f"openimages-train-{shard:06d}.tar").write_bytes(tar_bytes(files))
    return str(tmp_path / "openimages-train-{000000..000003}.tar")


def identity(x):
    return x


def minus_one(x):
    return x - 1


def preproc(image):
    """What a user's transforms.Compose would give."""
    return torch.from_numpy(np.asarray(image.resize((16, 16)), dtype=np.float32).transpose(2, 0, 1) / 255)


def add_noise(source, noise=0.01):
    for inputs, targets in source:
        yield inputs + noise * torch.randn_like(inputs), targets


# -- 2022: pipelines -------------------------------------------------------------------------------


def test_a_pipeline_of_pipes_reads_raw_samples(url):
    url = f"pipe:cat {url} || true"
    assert [next(iter(item.values()))[:8] for item in islice(wds.SimpleShardList(url), 3)] == ["pipe:cat"] * 3
    dataset = wds.DataPipeline(wds.SimpleShardList(url), wds.tarfile_to_samples())
    for sample in islice(dataset, 0, 3):
        assert next(iter(sample)) == "__key__"
        assert sample["jpg"].startswith(b"\xff\xd8\xff")


def test_a_pipeline_decodes_and_augments(url):
    dataset = wds.DataPipeline(
        wds.SimpleShardList(url),
        wds.split_by_worker,
        wds.shuffle(50),
        wds.tarfile_to_samples(),
        wds.shuffle(100),
        wds.decode("pil"),
        wds.to_tuple("jpg;png", "json"),
        wds.map_tuple(preproc, None),
        wds.batched(20),
    )
    dataloader = DataLoader(dataset, num_workers=2, batch_size=None)
    images, targets = next(iter(dataloader))
    assert images.shape == (12, 3, 16, 16)
    assert len(targets) == 12

    rebatched = wds.DataPipeline(dataloader, wds.unbatched(), wds.shuffle(500), wds.batched(20))
    images, targets = next(iter(rebatched))
    assert images.shape == (20, 3, 16, 16)


def test_stages_are_plain_functions_with_options_by_partial(url):
    dataset = wds.DataPipeline(
        wds.SimpleShardList(url),
        wds.tarfile_to_samples(),
        wds.shuffle(100),
        wds.decode("torchrgb"),
        wds.to_tuple("jpg;png", "json"),
        partial(add_noise, noise=0.1),
    )
    image, _ = next(iter(dataset))
    assert image.shape == (3, 24, 32)


def test_resampled_shards_make_epochs_of_any_length(url):
    dataset = wds.DataPipeline(
        wds.ResampledShards(url),
        wds.tarfile_to_samples(),
        wds.shuffle(100),
        wds.decode("pil"),
        wds.to_tuple("jpg;png", "json"),
        wds.map_tuple(preproc, None),
        wds.batched(8),
    )
    dataloader = wds.WebLoader(dataset, num_workers=2, batch_size=None).with_epoch(20)
    one_epoch = list(iter(dataloader))
    assert (len(one_epoch), one_epoch[0][0].shape) == (20, (8, 3, 16, 16))


def test_the_fluid_interface(url):
    dataset = (
        wds.WebDataset(url, shardshuffle=100)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg;png", "json")
        .map_tuple(preproc, None)
        .batched(8)
    )
    assert next(iter(dataset))[0].shape == (8, 3, 16, 16)


def test_a_decoder_by_hand_and_by_extension(url):
    def my_sample_decoder(sample):
        result = {"__key__": sample["__key__"]}
        for key, value in sample.items():
            if key == "jpg" or key.endswith(".jpg"):
                result[key] = np.asarray(Image.open(io.BytesIO(value)))
        return result

    def my_decoder(value):
        return np.asarray(Image.open(io.BytesIO(value)))

    dataset = wds.Processor(wds.map, my_sample_decoder)(wds.WebDataset(url))
    assert next(iter(dataset))["jpg"].shape == (24, 32, 3)
    dataset = wds.Decoder(wds.handle_extension(".jpg", my_decoder))(wds.WebDataset(url))
    assert next(iter(dataset))["jpg"].shape == (24, 32, 3)


def test_writing_tensors_and_images(tmp_path):
    path = str(tmp_path / "dest.tar")
    sink = wds.TarWriter(path)
    for index in range(3):
        sink.write(
            {
                "__key__": f"sample{index:06d}",
                "input.pyd": np.full((2, 2), index),
                "output.pyd": {"label": index},
                "input.jpg": np.full((4, 4, 3), 0.5, np.float32),
                "output.cls": index,
            }
        )
    sink.close()
    samples = list(wds.WebDataset(path).decode("rgb8"))
    assert [s["output.cls"] for s in samples] == [0, 1, 2]
    assert samples[1]["input.pyd"].tolist() == [[1, 1], [1, 1]]
    assert samples[2]["output.pyd"] == {"label": 2}
    assert samples[0]["input.jpg"].shape == (4, 4, 3)


def test_offline_augmentation(url, tmp_path):
    def augment_wds(source, output, maxcount=999999999):
        src = wds.DataPipeline(
            wds.SimpleShardList(source),
            wds.tarfile_to_samples(),
            wds.decode("pil"),
            wds.to_tuple("__key__", "jpg;png", "json"),
            wds.map_tuple(None, preproc, None),
        )
        with wds.TarWriter(output) as dst:
            for key, image, _ in islice(src, 0, maxcount):
                pixels = image.numpy().transpose(1, 2, 0)
                pixels = pixels - np.amin(pixels)
                pixels = pixels / np.amax(pixels)
                dst.write({"__key__": key, "png": pixels, "cls": 0})

    output = str(tmp_path / "_temp.tar")
    augment_wds(f"pipe:cat {url} || true", output, maxcount=5)
    assert [sorted(s) for s in wds.WebDataset(output)] == [["__key__", "__local_path__", "__url__", "cls", "png"]] * 5


def test_dbcache_of_the_desktop_chapter(url, tmp_path):
    dataset = wds.WebDataset(url).decode("torchrgb").to_tuple("jpg", "cls").dbcache(str(tmp_path / "db"), 10)
    first = sorted(int(label) for _, label in dataset)
    assert first == sorted(int(label) for _, label in dataset)


# -- 2021: the fluid interface ---------------------------------------------------------------------


def test_the_readme_of_2021(url):
    dataset = wds.WebDataset(url).shuffle(1000).decode("torchrgb").to_tuple("jpg;png", "cls")
    dataloader = DataLoader(dataset, num_workers=2, batch_size=16)
    inputs, outputs = next(iter(dataloader))
    assert (inputs.shape, outputs.shape) == ((12, 3, 24, 32), (12,))


def test_imagenet_training_of_2020(url):
    dataset = (
        wds.Dataset(url, length=24, shard_selection=wds.worker_urls)
        .shuffle(10)
        .decode("pil")
        .to_tuple("jpg;png;jpeg cls")
        .map_tuple(preproc, identity)
        .batched(4)
    )
    loader = DataLoader(dataset, batch_size=None, shuffle=False, num_workers=2)
    assert len(loader) == 24
    assert sum(len(labels) for _, labels in loader) == 24


# -- 2019: version 1 -------------------------------------------------------------------------------


def test_the_slides_of_2019(url):
    for image, cls in WebDataset(url, extensions="jpg cls"):
        assert (image.shape, image.dtype, cls) == ((24, 32, 3), np.float32, 0)
        break
    for image, _ in WebDataset(url, extensions="jpg cls", decoder="torch"):
        assert image.permute(1, 2, 0).shape == (24, 32, 3)
        assert 0.0 <= image.min().item() <= image.max().item() <= 1.0
        break
    imagenet = WebDataset(url, shuffle=100, extensions="jpg cls", decoder="pil", transforms=[preproc, minus_one])
    images, classes = next(iter(DataLoader(imagenet, batch_size=6, num_workers=2)))
    assert (images.size(), classes.size()) == ((6, 3, 16, 16), (6,))
    assert int(classes.min()) >= -1


def process_sample(sample):
    return {"__key__": sample["__key__"], "png": sample["jpg"].resize((8, 8)), "cls": str(sample["cls"])}


def test_map_reduce_of_2019(url, tmp_path):
    shard = url.replace("{000000..000003}", "000000")
    path = str(tmp_path / "out2.tar")
    sink = TarWriter(path)
    for sample in WebDataset(shard, decoder="pil"):
        sink.write(process_sample(sample))
    sink.close()
    assert [s["cls"] for s in WebDataset(path, decoder="pil")] == [0, 1, 2, 3, 4, 5]

    with multiprocessing.get_context("fork").Pool(2) as pool:
        processed = pool.imap_unordered(process_sample, WebDataset(shard, decoder="pil"))
        with TarWriter(path) as sink:
            for sample in processed:
                sink.write(sample)
    assert sorted(s["cls"] for s in WebDataset(path, decoder="pil")) == [0, 1, 2, 3, 4, 5]


def test_a_dataset_cannot_be_indexed(url):
    with pytest.raises(TypeError):
        WebDataset(url)[0]
