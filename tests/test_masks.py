"""Photos with masks and depth maps: a spec for each field, in datasets, loaders and commands."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import webdataset as wds
from webdataset.cli import main

CLASSES = np.array([[0, 1, 2], [2, 1, 255]], np.uint8)
DEPTH = np.array([[0, 256, 1000], [40000, 65535, 7]], np.uint16)
PHOTO = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)


def palette_mask() -> Image.Image:
    """As PASCAL VOC stores its masks."""
    image = Image.fromarray(CLASSES)
    image.putpalette([channel for n in range(256) for channel in (n * 37 % 256, n * 91 % 256, n * 53 % 256)])
    return image


@pytest.fixture
def shard(tmp_path: Path) -> str:
    with wds.TarWriter(str(tmp_path / "scenes.tar")) as writer:
        for n in range(8):
            sample = {"__key__": f"{n}", "png": PHOTO, "mask.png": palette_mask(), "depth.png": DEPTH + np.uint16(n)}
            sample |= {"mask.json": {"classes": 3}, "cls": n}
            if n == 5:
                del sample["mask.png"]
            writer.write(sample)
    return str(tmp_path / "scenes.tar")


def check(sample: dict) -> None:
    n = int(sample["__key__"])
    assert np.array_equal(sample["png"], PHOTO)
    assert np.array_equal(sample["depth.png"], DEPTH + np.uint16(n))
    assert (sample["mask.json"], sample["cls"]) == ({"classes": 3}, n)
    if n != 5:  # a field that is not there is no error
        assert (sample["mask.png"].dtype, sample["mask.png"].tolist()) == (np.uint8, CLASSES.tolist())


@pytest.mark.parametrize(
    "options",
    [
        {"mask": "pixels", "depth": "pixels"},
        {"fields": {"mask.png": "pixels", "depth.png": "pixels"}},
        {"fields": {"mask.png": "pixels"}, "depth": "pixels"},
    ],
)
def test_each_field_has_its_spec(shard, options):
    samples = list(wds.WebDataset(shard, shardshuffle=False).decode("rgb8", **options))
    assert len(samples) == 8
    for sample in samples:
        check(sample)
    for sample in wds.WebDataset(shard, shardshuffle=False).compose(wds.decode("rgb8", **options)):
        check(sample)


def test_a_field_wins_over_the_options_before_it(shard):
    sample = next(iter(wds.WebDataset(shard, shardshuffle=False).decode("rgb8", mask="torchpixels", depth="l")))
    assert torch.equal(sample["mask.png"], torch.from_numpy(CLASSES))
    assert np.array_equal(sample["depth.png"], DEPTH.astype("f4") / np.float32(65535))


def test_exact_epochs_have_a_spec_for_each_field(shard):
    for sample in wds.WebDataset(shard, exact=True, seed=1).decode("rgb8", mask="pixels", depth="pixels"):
        check(sample)


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_workers_have_a_spec_for_each_field(shard, workers):
    depth = "pixels" if hasattr(torch, "uint16") else "torchpixels"  # torch before 2.3 makes no tensors of such arrays
    dataset = wds.WebDataset(shard, shardshuffle=False).decode("rgb8", mask="pixels", depth=depth)
    options = {"num_workers": 1, "batch_size": None}
    loader = wds.WebLoader(dataset, **options, **({"workers": "thread"} if workers == "thread" else {}))
    samples = list(loader)
    assert len(samples) == 8
    for sample in samples:
        check({name: np.asarray(value) if "png" in name else value for name, value in sample.items()})


def test_batches_of_16_bit_tensors(shard):
    dataset = wds.WebDataset(shard, shardshuffle=False).decode(depth="torchpixels").to_tuple("depth.png").batched(4)
    ((batch,), _) = dataset
    assert (batch.dtype, tuple(batch.shape)) == (getattr(torch, "uint16", torch.int32), (4, 2, 3))
    assert batch.int()[0].tolist() == DEPTH.tolist()


def test_an_unknown_spec_is_refused_where_it_is_written(shard):
    dataset = wds.WebDataset(shard)
    for refused in (
        lambda: dataset.decode("rgbx"),
        lambda: dataset.decode("rgb8", mask="rgbx"),
        lambda: wds.decode(fields={"mask.png": "rgbx"}),
    ):
        with pytest.raises(ValueError, match="torchpixels"):
            refused()
    with pytest.raises(TypeError, match="'partial'"):
        dataset.decode("rgb8", partail=True)
    with pytest.raises(ValueError, match="handler"):
        dataset.decode(5)


def test_decode_with_fields_pickles(shard):
    script = (
        "import pickle, sys; dataset = pickle.loads(sys.stdin.buffer.read()); "
        "print([sample['mask.png'].max() for sample in dataset if 'mask.png' in sample])"
    )
    data = pickle.dumps(wds.WebDataset(shard, shardshuffle=False).decode("rgb8", mask="pixels"))
    told = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True)
    assert told.stdout.decode().count("255") == 7


def test_commands_know_the_spec(shard, tmp_path, capsysbinary):
    assert main(["info", "-d", "pixels", "--json", shard]) == 0
    fields = json.loads(capsysbinary.readouterr().out)["fields"]
    assert fields["depth.png"]["dtypes"] == {"uint16": 8}
    assert fields["mask.png"]["range"] == [0, 255]
    out = str(tmp_path / "out.tar")
    code = "_['depth.png'] = _['depth.png'] + 1 if _['cls'] == 0 else _['depth.png']"
    assert main(["map", "-d", "pixels", "-c", code, "-q", shard, "-o", out]) == 0
    samples = list(wds.WebDataset(out, shardshuffle=False).decode("pixels"))
    assert samples[0]["depth.png"].tolist() == [[1, 257, 1001], [40001, 0, 8]]
    assert samples[1]["depth.png"].tolist() == (DEPTH + np.uint16(1)).tolist()
    assert samples[1]["mask.png"].tolist() == CLASSES.tolist()


@pytest.mark.parametrize("command", [["info", "-d"], ["extract", "-f", "png", "-d"], ["test", "--decode"]])
def test_commands_refuse_an_unknown_spec_with_the_list(shard, command, capsysbinary):
    assert main([*command, "pixel", shard]) == 2
    assert "'pixels'" in capsysbinary.readouterr().err.decode()


def test_lint_finds_nothing_wrong_with_depth_maps(tmp_path, capsysbinary):
    path = str(tmp_path / "depth.tar")
    with wds.TarWriter(path) as writer:
        for n in range(2):
            metres = np.full((4, 4), 80.5 + n, np.float32)
            writer.write({"__key__": f"{n}", "a.tif": metres, "b.png": DEPTH, "c.png": palette_mask()})
    assert main(["lint", path]) == 0
    assert b"wrong-image" not in capsysbinary.readouterr().out


def test_old_files_give_the_same_pixels_as_before(tmp_path):
    """8 bits per channel in gray, colour, and with alpha: what Pillow's conversion gives."""
    rng = np.random.default_rng(0)
    for shape in ((9, 7), (9, 7, 3), (9, 7, 4)):
        image = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
        for kind in ("PNG", "TIFF", "WEBP", "BMP"):
            stream = io.BytesIO()
            image.save(stream, kind, **({"lossless": True} if kind == "WEBP" else {}))
            with Image.open(io.BytesIO(stream.getvalue())) as opened:
                expected = {mode: np.asarray(opened.convert(mode)) for mode in ("L", "RGB", "RGBA")}
            for mode, array in expected.items():
                eight = wds.imagehandler(f"{mode.lower()}8")(".png", stream.getvalue())
                assert eight.tobytes() == array.tobytes()
                unit = wds.imagehandler(mode.lower())(".png", stream.getvalue())
                assert unit.tobytes() == (array.astype("f4") / np.float32(255)).tobytes()
