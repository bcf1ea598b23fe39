"""Samples as pictures in a notebook, and statistics as a table."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

import webdataset as wds
from pictures import PHOTO, encoded, scene
from shapes import tone
from webdataset.display.previews import Preview, fields_of, picture_of

EMBEDDED = re.compile(r'src="data:image/(png|jpeg);base64,([^"]+)"')


def embedded(preview: Preview) -> list[Image.Image]:
    return [Image.open(io.BytesIO(base64.b64decode(data))) for _, data in EMBEDDED.findall(preview._repr_html_())]


@pytest.fixture
def photos(make_shard: Callable[..., str]) -> wds.WebDataset:
    files = [(f"{i}.{name}", data) for i in range(5) for name, data in (("jpg", PHOTO), ("cls", b"%d" % i))]
    return wds.WebDataset(make_shard(files=files), shardshuffle=False)


@pytest.mark.parametrize("spec", [None, "rgb8", "rgb", "torchrgb", "pil", "pixels"])
def test_pictures_are_shown_decoded_or_not(photos: wds.WebDataset, spec: str | None) -> None:
    preview = (photos if spec is None else photos.decode(spec)).preview(3)
    assert len(preview) == 3
    shown = embedded(preview)
    assert len(shown) == 3
    assert all(image.size[0] == 192 for image in shown)
    expected = np.asarray(Image.fromarray(scene()).resize((192, 144)), np.int16)
    found = np.asarray(shown[0].convert("RGB").resize((192, 144)), np.int16)
    assert np.abs(found - expected).mean() < 12


def test_tuples_and_batches_are_shown(photos: wds.WebDataset) -> None:
    assert fields_of((1, 2)) == {"0": 1, "1": 2}
    preview = photos.decode("rgb8").to_tuple("jpg", "cls").batched(2).preview(2)
    assert len(embedded(preview)) == 2
    assert "uint8 2 x 375 x 500 x 3, " in repr(preview)
    [sheet, _] = embedded(preview)
    assert sheet.size == (192, 72)  # both pictures of a batch, side by side


def test_a_preview_does_not_move_the_dataset(photos: wds.WebDataset) -> None:
    photos.preview(2)
    photos.describe(2)
    state = photos.state_dict()
    assert [sample["__key__"] for sample in photos] == ["0", "1", "2", "3", "4"]
    assert state["epoch"] == 0


def test_what_is_broken_has_its_reason(make_shard: Callable[..., str]) -> None:
    shard = make_shard(files=[("a.jpg", PHOTO[:500]), ("b.wav", tone(440)), ("c.mp4", b"no video")])
    told = wds.WebDataset(shard, shardshuffle=False).preview()._repr_html_().lower()
    assert "truncated" in told
    assert "data:image/png" in told  # the waveform


def test_markup_in_data_is_escaped(make_shard: Callable[..., str]) -> None:
    attack = "<script>alert(1)</script>"
    shard = make_shard(files=[(f"{attack}.txt", attack.encode()), (f"{attack}.<b>", b"x")])
    preview = wds.WebDataset(shard, shardshuffle=False).decode().preview()
    assert "<script" not in preview._repr_html_()
    assert "<b>x" not in preview._repr_html_()
    assert "&lt;script&gt;" in preview._repr_html_()


@pytest.mark.parametrize(("value", "size"), [
    (np.zeros((20, 30), np.float32), (180, 120)), (torch.zeros(3, 20, 30), (30, 20)),
    (np.zeros((20, 30, 3), np.uint8), (30, 20)),
    (np.zeros((4, 5, 20, 30)), (180, 120)), (np.zeros((4, 20, 30, 3), np.uint8), (60, 40)),
    (torch.zeros(20, 30, dtype=torch.bfloat16), (180, 120)),
])  # fmt: skip
def test_arrays_and_tensors_are_pictures(value: object, size: tuple[int, int]) -> None:
    found = picture_of("x", value)
    assert found is not None
    assert Image.open(io.BytesIO(found.data)).size == size


def test_texts_and_numbers_are_no_pictures() -> None:
    assert picture_of("txt", "text") is None
    assert picture_of("cls", 3) is None
    assert picture_of("vector", np.zeros(5)) is None


def test_nothing_is_shown_of_nothing() -> None:
    assert repr(Preview([])) == "no samples"
    assert "no samples" in Preview([])._repr_html_()


def test_a_description_is_a_table(photos: wds.WebDataset) -> None:
    described = photos.describe()
    assert repr(described).splitlines()[0].startswith("5 samples, ")
    assert repr(described).splitlines()[1].split() == ["field", "samples", "type", "shape", "values", "size"]
    assert repr(described).splitlines()[2].split()[:5] == ["cls", "5", "int", "0", ".."]
    assert "JPEG RGB" in described._repr_html_()
    assert described.as_dict()["samples"] == 5


def test_a_decoded_dataset_is_described_as_training_sees_it(photos: wds.WebDataset) -> None:
    described = photos.decode("torchrgb").to_tuple("jpg", "cls").describe(2)
    assert described.samples == 2
    assert dict(described.fields["0"].shapes) == {(3, 375, 500): 2}


def test_deep_images_and_masks_have_colours() -> None:
    depth = encoded((np.arange(400, dtype=np.uint16) * 100).reshape(20, 20), "PNG")
    for name in ("depth.png", "mask.png", "png"):
        found = picture_of(name, depth)
        assert found is not None
        assert found.type == "image/png"
