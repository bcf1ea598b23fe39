"""Image pipelines in datasets: random numbers per sample, masks, views, broken files."""

from __future__ import annotations

import io
import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import webdataset as wds
from pictures import PHOTO, encoded, scene
from tests_support import tar_bytes
from webdataset.errors import DecodingError
from webdataset.images import operations as ops
from webdataset.images import pipeline


@pytest.mark.parametrize("kind", ["cut", "garbled", "empty"])
def test_a_broken_image_is_one_error_whatever_the_crop(kind, make_shard):
    data = {"cut": PHOTO[: len(PHOTO) // 2], "garbled": PHOTO[:200] + bytes(5000) + PHOTO[5200:], "empty": b""}[kind]
    shard = make_shard(files=[("a.jpg", PHOTO), ("b.jpg", data), ("c.jpg", PHOTO)])
    for seed in range(4):
        data = wds.WebDataset(shard, shardshuffle=False).decode(
            wds.images.train(32, seed=seed), handler=wds.ignore_and_continue
        )
        assert [sample["__key__"] for sample in data] == ["a", "c"]
        with pytest.raises(DecodingError) as raised:
            list(wds.WebDataset(shard, shardshuffle=False).decode(wds.images.train(32, seed=seed)))
        assert (raised.value.url, raised.value.key, raised.value.field) == (shard, "b", "jpg")


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
    import torch

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
    with pytest.raises(DecodingError, match="40 x 60"):
        list(wds.WebDataset(shard, shardshuffle=False).decode(wds.images.train(16, masks=["mask.png"])))


def test_views_are_made_of_the_same_picture_with_numbers_of_their_own():
    two = wds.images.train(24, output="numpy")
    views = pipeline(ops.views(two, two, wds.images.evaluate(16, output="numpy")))(".jpg", PHOTO)
    assert [view.shape for view in views] == [(3, 24, 24), (3, 24, 24), (3, 16, 16)]
    assert not np.array_equal(views[0], views[1])


def test_a_class_in_place_of_an_operation_is_an_error():
    with pytest.raises(TypeError, match="resize"):
        pipeline(ops.flip)


def test_who_wants_arrays_does_not_get_torch_imported() -> None:
    program = f"""if True:
        import sys
        import webdataset as wds
        recipe = wds.images.train(8, output="numpy")
        print(recipe(".png", {encoded(scene(40, 30, 1), "PNG")!r}).shape, "torch" in sys.modules)
    """
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "(3, 8, 8) False\n"
