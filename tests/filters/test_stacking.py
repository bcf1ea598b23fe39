"""Images that are finished when they are written into a batch: nobody can tell the difference."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

import webdataset as wds
from webdataset.filters.batches import BatchError, left_for_batch
from webdataset.filters.stacking import stacked_tensors
from webdataset.images import dtype, flip, normalize, pipeline, random_resized_crop, resize, to_chw


def encoded(number, size=(60, 40), kind="JPEG"):
    pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size).save(file, kind)
    return file.getvalue()


def samples(count=12, **kw):
    return [{"__key__": f"{n}", "__url__": "a.tar", "jpg": encoded(n, **kw), "cls": b"%d" % n} for n in range(count)]


DECODERS = {
    "train": wds.images.train(24),
    "evaluate": wds.images.evaluate(24),
    "numpy": wds.images.train(24, output="numpy"),
    "uint8": pipeline(random_resized_crop(24), flip()),
    "uint8 numpy": pipeline(random_resized_crop(24), to_chw(), output="numpy"),
    "half": pipeline(resize((24, 20)), to_chw(), normalize(), dtype("float16")),
    "from 0 to 1": pipeline(resize((24, 20)), dtype("float32")),
    "gray": pipeline(resize((24, 20)), normalize((0.5,), (0.5,)), mode="l"),
}


def batches(data, decoder, *stages):
    return list(wds.DataPipeline(lambda: iter(data), wds.decode(decoder), *stages))


@pytest.mark.parametrize("name", DECODERS)
def test_a_batch_is_that_of_finished_images(name):
    decoder, cut = DECODERS[name], wds.to_tuple("jpg", "cls")
    whole = batches(samples(), decoder, cut, wds.batched(5))
    # a function of the user's own sees the images, so they are finished one by one
    apart = batches(samples(), decoder, cut, wds.map(lambda sample: sample), wds.batched(5))
    assert [len(batch[1]) for batch in whole] == [5, 5, 2]
    for one, other in zip(whole, apart, strict=True):
        assert type(one[0]) is type(other[0])
        assert one[0].dtype == other[0].dtype
        assert np.array_equal(np.asarray(one[0]), np.asarray(other[0]))


def test_images_stay_unfinished_through_stages_that_only_move_them_and_nowhere_else():
    decode = wds.decode(wds.images.train(24))
    cut = wds.to_tuple("jpg", "cls")
    for stages, left in [
        ([wds.batched(4)], True),
        ([wds.shuffle(10), cut, wds.batched(4)], True),
        ([wds.rename(image="jpg"), wds.batched(4)], True),
        ([cut], False),
        ([wds.map(len), wds.batched(4)], False),
        ([wds.map_tuple(None), wds.batched(4)], False),
        ([wds.batched(4, collation_fn=list)], False),
        ([wds.select(bool), wds.batched(4)], False),
        ([lambda data: data, wds.batched(4)], False),
    ]:
        assert (left_for_batch(decode, [list, decode, *stages]) is not decode) == left


def test_a_dict_of_fields_and_masks_are_batched_too():
    data = [{**sample, "mask.png": encoded(n, kind="PNG")} for n, sample in enumerate(samples(4))]
    decoder = wds.images.train(24, masks="mask.png")
    (batch,) = batches(data, decoder, wds.batched(4))
    assert batch["jpg"].shape == (4, 3, 24, 24)
    assert batch["mask.png"].shape == (4, 3, 24, 24)
    assert batch["mask.png"].dtype == torch.uint8


def test_images_of_different_shapes_are_the_same_error_as_ever():
    data = [*samples(1), *samples(1, size=(40, 60))]
    with pytest.raises(BatchError, match="shapes"):
        batches(data, pipeline(resize(20)), wds.to_tuple("jpg"), wds.batched(2))


def test_images_beside_other_values_are_given_as_they_are():
    decoder = wds.images.train(24)
    rows = [{"x": b"bytes"}, {"x": decoder.unfinished()(".jpg", encoded(1))}]
    (batch,) = wds.batched(2)(rows)
    assert batch["x"][0] == b"bytes"
    assert isinstance(batch["x"][1], torch.Tensor)


def test_a_wrong_number_of_channels_is_an_error_of_the_sample():
    with pytest.raises(wds.DecodingError, match="2 channels"):
        batches(samples(1), pipeline(normalize((0.5, 0.5), (1, 1))), wds.batched(1))


def test_tensors_that_are_not_plain_are_stacked_by_torch():
    wanted = [torch.ones(3, requires_grad=True), torch.zeros(3)]
    assert stacked_tensors(wanted).requires_grad
    assert stacked_tensors([torch.ones(2, dtype=torch.bfloat16)] * 2).dtype == torch.bfloat16
    assert stacked_tensors([torch.ones(2), torch.ones(2, dtype=torch.float64)]).dtype == torch.float64
