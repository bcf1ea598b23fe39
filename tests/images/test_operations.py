"""Images for training: what comes out is what torchvision's recipe gives, whatever is decoded on the way."""

from __future__ import annotations

import importlib
import io
import itertools
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import webdataset as wds
from tests_support import tar_bytes
from webdataset.codecs import jpeg
from webdataset.errors import DecodingError
from webdataset.images import Canvas, pipeline
from webdataset.images import operations as ops
from with_torchvision import torchvision


def scene(width=500, height=375, seed=0):
    """Something with gradients, edges and texture, as a photograph has them."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    soft = np.stack([128 + 100 * np.sin(x / 37 + c + y / 53) for c in range(3)], axis=2)
    soft[height // 4 : height // 2, width // 3 : width // 2] = (200, 40, 90)
    return np.clip(soft + rng.normal(0, 6, soft.shape), 0, 255).astype(np.uint8)


def encoded(pixels, kind="JPEG", **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **({"quality": 91} if kind == "JPEG" else {}), **options)
    return stream.getvalue()


PHOTO = encoded(scene())
PICTURE = encoded(scene(80, 60), "PNG")


def reference(data, box, size, mirrored):
    """Pillow's crop, antialiased resize and flip, and the arithmetic of torchvision's ToTensor and Normalize."""
    left, top, width, height = box
    image = Image.open(io.BytesIO(data)).convert("RGB").crop((left, top, left + width, top + height))
    image = image.resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.float32)[:, :: -1 if mirrored else 1] / 255
    mean, std = np.array(ops.IMAGENET_MEAN, np.float32), np.array(ops.IMAGENET_STD, np.float32)
    return ((pixels - mean) / std).transpose(2, 0, 1)


def units(left, right, std=ops.IMAGENET_STD):
    """The differences of two normalized images, in steps of a byte."""
    return np.abs(np.asarray(left) - np.asarray(right)) * np.array(std).reshape(3, 1, 1) * 255


# -- the recipe ------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("data", [PHOTO, PICTURE, encoded(scene(300, 500), subsampling=0)])
def test_training_is_the_usual_recipe_on_the_same_random_numbers(data, output):
    train = wds.images.train(64, output=output)
    size = Image.open(io.BytesIO(data)).size
    for seed in range(20):
        result, _ = train.decoded(data, seed, is_mask=False)
        rng = random.Random(seed)
        box = train.steps[0].box(*size, rng)
        expected = reference(data, box, (64, 64), rng.random() < 0.5)
        assert result.shape == (3, 64, 64)
        assert np.mean(units(result, expected)) < 1
        if min(box[2:]) < 4 * 64:  # larger ones are scaled by the JPEG decoder first, which has a filter of its own
            assert units(result, expected).max() <= 2.01


def test_torchvision_agrees():
    functional = importlib.import_module(f"{torchvision().__name__}.transforms.functional")
    train = wds.images.train(200)
    for seed in range(10):
        rng = random.Random(seed)
        left, top, width, height = train.steps[0].box(500, 375, rng)
        image = Image.open(io.BytesIO(PHOTO)).convert("RGB")
        image = functional.resized_crop(image, top, left, height, width, [200, 200])
        image = functional.hflip(image) if rng.random() < 0.5 else image
        expected = functional.normalize(functional.to_tensor(image), ops.IMAGENET_MEAN, ops.IMAGENET_STD)
        assert units(train.decoded(PHOTO, seed, is_mask=False)[0], expected).max() <= 2.01


def test_boxes_are_spread_as_they_should_be():
    crop = ops.random_resized_crop(224)
    boxes = [crop.box(500, 375, random.Random(seed)) for seed in range(3000)]
    areas = np.array([width * height / (500 * 375) for _, _, width, height in boxes])
    shapes = np.array([width / height for _, _, width, height in boxes])
    assert all(x >= 0 and y >= 0 and x + w <= 500 and y + h <= 375 for x, y, w, h in boxes)
    assert areas.min() > 0.079
    assert 0.4 < areas.mean() < 0.46  # large parts often do not fit
    assert 0.73 < shapes.min() < shapes.max() < 1.37
    assert ops.random_resized_crop(10).box(1000, 3, random.Random(0))[3] == 3  # no part has the ratio: the center


def test_evaluation_is_resize_and_center():
    result = wds.images.evaluate(224, output="numpy")(".jpg", PHOTO)
    image = Image.open(io.BytesIO(PHOTO)).resize((341, 256), Image.Resampling.BILINEAR)
    left = round((341 - 224) / 2)
    image = image.crop((left, 16, left + 224, 240))
    expected = (np.asarray(image, np.float32) / 255 - ops.IMAGENET_MEAN) / ops.IMAGENET_STD
    assert units(result, expected.transpose(2, 0, 1)).max() <= 2.01


@given(st.integers(1, 90), st.integers(1, 70), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_any_size_is_cropped_and_flipped_as_an_array_would_be(width, height, seed):
    pixels = scene(width, height, seed % 7)
    canvas, expected = Canvas(encoded(pixels, "PNG")), pixels
    rng = random.Random(seed)
    for _ in range(rng.randrange(5)):
        if rng.random() < 0.5:
            canvas.mirror()
            expected = expected[:, ::-1]
        else:
            wide, tall = rng.randint(1, canvas.size[0]), rng.randint(1, canvas.size[1])
            left, top = rng.randint(0, canvas.size[0] - wide), rng.randint(0, canvas.size[1] - tall)
            canvas.crop(left, top, wide, tall)
            expected = expected[top : top + tall, left : left + wide]
    assert np.array_equal(canvas.pixels(), expected)
    assert canvas.size == (expected.shape[1], expected.shape[0])


# -- decoding less ---------------------------------------------------------------------------------


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_a_region_of_a_jpeg_is_the_region_of_the_whole(subsampling):
    data = encoded(scene(333, 217), subsampling=subsampling)
    whole = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.int16)
    file = jpeg.JpegFile.of(data)
    for x, y, width, height in [(0, 0, 333, 217), (17, 33, 100, 90), (300, 200, 33, 17), (1, 1, 1, 1)]:
        found = file.region(x, y, width, height).astype(np.int16)
        expected = whole[y : y + height, x : x + width]
        assert found.shape == expected.shape
        inner = np.abs(found - expected)[2:-2, 2:-2]
        assert not inner.size or inner.max() == 0  # at the border, colors may be spread otherwise
        assert np.abs(found - expected).max() <= 24


def test_a_large_picture_is_decoded_at_a_smaller_size():
    data = encoded(scene(1600, 1200))
    file = jpeg.JpegFile.of(data)
    assert file.reduced(224 / 1200).shape == (600, 800, 3)
    assert file.reduced(0.1).shape == (300, 400, 3)
    assert file.reduced(0.26) is None
    result = wds.images.evaluate(224, output="numpy")(".jpg", data)
    image = Image.open(io.BytesIO(data)).resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 282, 240))
    expected = (np.asarray(image, np.float32) / 255 - ops.IMAGENET_MEAN) / ops.IMAGENET_STD
    assert np.mean(units(result, expected.transpose(2, 0, 1))) < 0.5


@pytest.mark.parametrize("kind", ["cut", "garbled", "empty"])
def test_a_broken_image_is_one_error_whatever_the_crop(kind, make_shard):
    data = {"cut": PHOTO[: len(PHOTO) // 2], "garbled": PHOTO[:200] + bytes(5000) + PHOTO[5200:], "empty": b""}[kind]
    shard = make_shard(files=[("a.jpg", PHOTO), ("b.jpg", data), ("c.jpg", PHOTO)])
    for seed in range(4):
        data = wds.WebDataset(shard, shardshuffle=False).decode(
            wds.images.train(32, seed=seed), handler=wds.ignore_and_continue
        )
        assert [sample["__key__"] for sample in data] == ["a", "c"]
        with pytest.raises(DecodingError, match=r"field jpg.*key b|key b.*field jpg"):
            list(wds.WebDataset(shard, shardshuffle=False).decode(wds.images.train(32, seed=seed)))


# -- in a pipeline ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    paths = []
    for number in range(4):
        files = []
        for i in range(6):
            files += [(f"{number}-{i}.jpg", encoded(scene(90, 70, i))), (f"{number}-{i}.cls", str(i).encode())]
        path = folder / f"{number}.tar"
        path.write_bytes(tar_bytes(files))
        paths.append(str(path))
    return paths


def images_of(dataset):
    return {sample["__key__"]: np.asarray(sample["jpg"]).tobytes() for sample in dataset}


@pytest.mark.parametrize("exact", [False, True])
def test_crops_do_not_depend_on_workers_and_change_with_the_epoch(shards, exact, own_cache):
    def dataset():
        how = {"exact": True} if exact else {"shardshuffle": 100, "seed": 1}
        return wds.WebDataset(shards, **how).decode(wds.images.train(32, seed=5))

    first = dataset()
    passes = [images_of(first), images_of(first)]
    assert len(passes[0]) == 24
    assert all(passes[0][key] != passes[1][key] for key in passes[0])
    for options in ({"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "workers": "thread"}):
        loader = wds.WebLoader(dataset(), batch_size=None, **options)
        assert [images_of(loader), images_of(loader)] == passes
    assert images_of(wds.WebDataset(shards, shardshuffle=False).decode(wds.images.train(32, seed=6))) != passes[0]


def test_after_a_resume_the_crops_go_on(shards, own_cache):
    def dataset():
        return wds.WebDataset(shards, exact=True).decode(wds.images.train(32)).to_tuple("__key__", "jpg").batched(4)

    whole = [(keys, np.asarray(pixels).tobytes()) for keys, pixels in dataset()]
    started = dataset()
    for _ in itertools.islice(started, 2):
        pass
    state = started.state_dict()
    resumed = dataset()
    resumed.load_state_dict(state)
    assert [(keys, np.asarray(pixels).tobytes()) for keys, pixels in resumed] == whole[2:]


def test_the_program_of_the_docs_gives_batches(shards):
    torch = pytest.importorskip("torch")
    dataset = (
        wds.WebDataset(shards, shardshuffle=10)
        .shuffle(10)
        .decode(wds.images.train(48))
        .to_tuple("jpg", "cls")
        .batched(8)
    )
    for pixels, classes in wds.WebLoader(dataset, batch_size=None, num_workers=2):
        assert pixels.dtype == torch.float32
        assert tuple(pixels.shape[1:]) == (3, 48, 48)
        assert len(classes) == len(pixels)


def test_a_field_can_have_a_pipeline_of_its_own(shards):
    (sample, *_) = wds.WebDataset(shards, shardshuffle=False).decode("pil", jpg=wds.images.evaluate(16, output="numpy"))
    assert sample["jpg"].shape == (3, 16, 16)


def test_other_fields_are_decoded_as_usual(shards):
    (sample, *_) = wds.WebDataset(shards, shardshuffle=False).decode(wds.images.train(16))
    assert sample["cls"] == 0


def test_it_pickles():
    decoder = pickle.loads(pickle.dumps(wds.images.train(20, masks="mask.png")))
    assert repr(decoder) == repr(wds.images.train(20))
    assert decoder(".jpg", PHOTO).shape == (3, 20, 20)


# -- masks and views -------------------------------------------------------------------------------


def test_a_mask_goes_through_the_same_geometry_with_its_values(make_shard):
    ids = np.zeros((60, 80), np.uint8)
    ids[:, 40:] = 7
    ids[30:, :] += 100
    pixels = np.repeat(ids[:, :, None], 3, axis=2)
    palette = Image.fromarray(ids, "P")
    palette.putpalette([value for i in range(256) for value in (255 - i, i, 0)])
    stream = io.BytesIO()
    palette.save(stream, "PNG")
    shard = make_shard(files=[("a.png", encoded(pixels, "PNG")), ("a.mask.png", stream.getvalue())])
    steps = (ops.random_resized_crop(40), ops.flip(), ops.color_jitter(brightness=(1.0, 1.0)))
    for seed in range(10):
        decoder = pipeline(*steps, masks="mask.png", seed=seed, output="numpy")
        (sample,) = wds.WebDataset(shard, shardshuffle=False).decode(decoder)
        image, mask = sample["png"][:, :, 0].astype(int), sample["mask.png"]
        assert mask.dtype == np.uint8
        assert set(np.unique(mask)) <= {0, 7, 100, 107}
        assert np.mean(np.abs(image - mask) > 4) < 0.1  # but at the borders, where the image's values are mixed


def test_a_mask_of_another_size_is_an_error(make_shard):
    shard = make_shard(files=[("a.png", encoded(scene(80, 60), "PNG")), ("a.mask.png", encoded(scene(40, 60), "PNG"))])
    with pytest.raises(DecodingError, match="40 x 60 pixels and another image of the sample 80 x 60"):
        list(wds.WebDataset(shard, shardshuffle=False).decode(wds.images.train(16, masks=["mask.png"])))


def test_views_are_made_of_the_same_picture_with_numbers_of_their_own():
    two = wds.images.train(24, output="numpy")
    views = pipeline(ops.views(two, two, wds.images.evaluate(16, output="numpy")))(".jpg", PHOTO)
    assert [view.shape for view in views] == [(3, 24, 24), (3, 24, 24), (3, 16, 16)]
    assert not np.array_equal(views[0], views[1])


# -- other operations ------------------------------------------------------------------------------


def run(*steps, data=PICTURE, seed=0, **options):
    return pipeline(*steps, output="numpy", **options).decoded(data, seed, is_mask=False)[0]


def test_values_types_and_layouts():
    assert run().dtype == np.uint8
    assert run(ops.to_chw()).shape == (3, 60, 80)
    assert run(ops.dtype("float32")).max() <= 1
    assert run(ops.normalize(), ops.dtype("float16")).dtype == np.float16
    assert run(ops.resize((30, 50))).shape == (30, 50, 3)
    assert run(mode="l").shape == (60, 80)
    assert run(ops.normalize([0.5], [0.5]), ops.to_chw(), mode="l").shape == (60, 80)
    torch = pytest.importorskip("torch")
    assert pipeline(ops.to_chw())(".png", PICTURE).dtype == torch.uint8


def test_borders():
    padded = run(ops.pad((1, 2, 3, 4), fill=9))
    assert padded.shape == (66, 84, 3)
    assert (padded[:2] == 9).all()
    assert np.array_equal(padded[2:62, 1:81], scene(80, 60))
    assert run(ops.center_crop(100)).shape == (100, 100, 3)
    assert run(ops.random_crop(64, padding=4)).shape == (64, 64, 3)
    assert np.array_equal(run(ops.crop(5, 6, 7, 8)), scene(80, 60)[6:14, 5:12])
    assert np.array_equal(run(ops.vertical_flip(1.0)), scene(80, 60)[::-1])


def test_jitter_changes_what_it_says():
    plain = scene(80, 60).astype(float)
    assert np.abs(run(ops.color_jitter(brightness=(0.5, 0.5))) - plain / 2).max() <= 1
    gray = plain @ np.array([0.299, 0.587, 0.114])
    assert np.abs(run(ops.grayscale())[:, :, 0] - gray).max() <= 1
    assert np.abs(run(ops.color_jitter(contrast=(0.0, 0.0))) - gray.mean()).max() <= 1
    assert not np.array_equal(run(ops.color_jitter(hue=0.5)), scene(80, 60))
    assert np.array_equal(run(ops.color_jitter()), scene(80, 60))
    enhanced = Image.fromarray(scene(80, 60)).convert("HSV")
    assert run(ops.color_jitter(hue=(0.0, 0.0))).shape == np.asarray(enhanced).shape


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ops.resize(0), "a size is a positive number"),
        (lambda: ops.dtype("int7"), "uint8, float32, float16"),
        (lambda: ops.normalize([0.5], [0.5, 0.5]), "as many deviations"),
        (lambda: ops.color_jitter(hue=0.7), "between 0 and 0.5"),
        (lambda: ops.random_resized_crop(3, scale=(2, 1)), "scale and ratio"),
        (lambda: ops.pad((1, 2)), "one width, or four"),
        (lambda: pipeline(mode="cmyk"), "rgb, rgba or l"),
        (lambda: pipeline(output="jax"), "auto, torch, numpy"),
        (lambda: ops.views(), "at least one"),
        (lambda: run(ops.normalize([1, 1], [1, 1])), "normalize has 2 channels and the image 3"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_told(make, told):
    with pytest.raises(ValueError, match=told):
        make()


def test_a_class_in_place_of_an_operation_is_an_error():
    with pytest.raises(TypeError, match=r"such as resize\(256\)"):
        pipeline(ops.flip)
