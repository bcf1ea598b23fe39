"""ImageNet: folders and archives become shards, and the training on shards is the training on folders."""

from __future__ import annotations

import ast
import difflib
import gzip
import io
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import webdataset as wds
from examples.loaded import IMAGENET, ROOT, loaded, run
from frameworks.accounts import run_ranks
from tests_support import python
from waiting import soon

CLASSES = ("n01440764", "n01443537", "n02102040")
TRAIN, VAL = 90, 31

pytestmark = pytest.mark.xdist_group("imagenet")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real images in class folders, of which those of ImageNet have the names."""
    folder = tmp_path_factory.mktemp("imagenet") / "data"
    with loaded(IMAGENET / "demo_images.py") as demo_images:
        demo_images.make_images(str(folder), train=TRAIN, val=VAL)
    for split in ("train", "val"):
        files = sorted((folder / split).rglob("*.jpg"))
        for number, file in enumerate(files):
            name = f"ILSVRC2012_val_{number + 1:08d}.JPEG" if split == "val" else None
            target = folder / split / CLASSES[number % 3]
            target.mkdir(exist_ok=True)
            file.rename(target / (name or f"{target.name}_{number}.JPEG"))
        for rest in (folder / split).iterdir():
            if rest.name not in CLASSES:
                rest.rmdir()
    return folder


@pytest.fixture(scope="module")
def shards(data: Path) -> Path:
    """Their shards, of ten samples each."""
    folder = data.parent / "shards"
    make(data, folder)
    return folder


def make(data: Path, shards: Path, *options: str) -> None:
    with loaded(IMAGENET / "makeshards.py") as program:
        program.main(["--data", str(data), "--shards", str(shards), "--maxcount", "10", "--jobs", "1", *options])


def files_in(folder: Path, split: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"imagenet-{split}-*.tar"))}


# -- shards ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "count"), [("train", TRAIN), ("val", VAL)])
def test_shards_have_every_image_once_as_it_was(data: Path, shards: Path, split: str, count: int) -> None:
    samples = list(wds.WebDataset(str(shards / f"imagenet-{split}.json"), exact=True, shuffle_bytes=0))
    found = sorted((CLASSES[int(sample["cls"])], sample["jpg"]) for sample in samples)
    assert found == sorted((path.parent.name, path.read_bytes()) for path in (data / split).glob("*/*"))
    assert len({sample["__key__"] for sample in samples}) == count
    labels = [int(sample["cls"]) for sample in samples]
    assert labels != sorted(labels)
    assert (shards / "classes.txt").read_text().splitlines() == list(CLASSES)


def test_a_shard_has_as_many_images_as_was_asked_for(shards: Path) -> None:
    catalogue = wds.Catalogue.load(shards / "imagenet-train.json")
    assert catalogue.counts.tolist() == [10] * 9
    assert len(list(shards.glob("imagenet-train-*.tar.wdx"))) == 9


def test_a_shard_is_no_larger_than_was_asked_for(data: Path, tmp_path: Path) -> None:
    make(data, tmp_path, "--maxcount", "1000", "--maxsize", "5000", "--splits", "val")
    sizes = [sum(len(sample["jpg"]) for sample in wds.WebDataset(str(path))) for path in tmp_path.glob("*.tar")]
    assert max(sizes) <= 5000
    assert len(sizes) > 3


def test_several_processes_make_the_same_shards(data: Path, shards: Path, tmp_path: Path) -> None:
    done = run(IMAGENET / "makeshards.py", *f"--data {data} --shards {tmp_path} --maxcount 10 --jobs 2".split())
    assert done.returncode == 0, done.stderr
    assert files_in(tmp_path, "train") == files_in(shards, "train")
    assert "train: 90 images in 9 shards" in done.stderr


def test_keys_can_be_the_names_of_files(data: Path, tmp_path: Path) -> None:
    make(data, tmp_path, "--filekey", "--splits", "val")
    keys = sorted(sample["__key__"] for path in tmp_path.glob("*.tar") for sample in wds.WebDataset(str(path)))
    assert keys == sorted(f"{path.parent.name}/{path.stem}" for path in (data / "val").glob("*/*"))


def test_what_was_killed_goes_on_where_it_was(data: Path, shards: Path, tmp_path: Path) -> None:
    words = f"{IMAGENET}/makeshards.py --data {data} --shards {tmp_path} --maxcount 10 --jobs 1".split()
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL) as process:
        second = tmp_path / "imagenet-train-000001.tar"  # so the first has its index, too
        soon(lambda: second.exists() or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
    kept = {path: path.stat().st_ino for path in tmp_path.glob("imagenet-train-*.tar.wdx")}
    make(data, tmp_path)
    assert files_in(tmp_path, "train") == files_in(shards, "train")
    assert kept
    assert {path: path.stat().st_ino for path in kept} == kept


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--seed", "1"], "seed 0"), (["--maxcount", "11"], "maxcount 10")],
)
def test_other_settings_do_not_mix_with_the_shards_there(
    data: Path, shards: Path, options: list[str], message: str
) -> None:
    before = files_in(shards, "train")
    with pytest.raises(SystemExit, match=message):
        make(data, shards, *options)
    assert files_in(shards, "train") == before


def test_a_folder_without_images_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="train/CLASS"):
        make(tmp_path, tmp_path / "shards")


# -- the original archives -------------------------------------------------------------------------


def archives(data: Path, folder: Path) -> None:
    """The files as ImageNet was published: an archive of archives, one of validation images, and their classes."""
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as train:
        for name in CLASSES:
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for path in sorted((data / "train" / name).iterdir()):
                    archive.add(path, path.name)
            info = tarfile.TarInfo(f"{name}.tar")
            info.size = inner.tell()
            inner.seek(0)
            train.addfile(info, inner)
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as val:
        for path in sorted((data / "val").glob("*/*"), key=lambda path: path.name):
            val.add(path, path.name)


def classes_of_val(data: Path) -> list[str]:
    return [path.parent.name for path in sorted((data / "val").glob("*/*"), key=lambda path: path.name)]


def devkit(data: Path, folder: Path) -> None:
    from scipy.io import savemat

    kinds: Any = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    rows = [(n + 1, name, f"word {n}", "", 0) for n, name in enumerate(CLASSES[::-1])] + [(4, "n99", "group", "", 3)]
    meta = io.BytesIO()
    savemat(meta, {"synsets": np.array(rows, dtype=kinds)})
    numbers = "".join(f"{CLASSES[::-1].index(name) + 1}\n" for name in classes_of_val(data))
    with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as archive:
        files = {"meta.mat": meta.getvalue(), "ILSVRC2012_validation_ground_truth.txt": numbers.encode()}
        for name, content in files.items():
            info = tarfile.TarInfo(f"ILSVRC2012_devkit_t12/data/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def original_archives(data: Path, folder: Path) -> None:
    archives(data, folder)
    devkit(data, folder)


def archives_with_metadata_of_torchvision(data: Path, folder: Path) -> None:
    archives(data, folder)
    names = {name: (f"word {n}", "other") for n, name in enumerate(CLASSES)}
    torch.save((names, classes_of_val(data)), folder / "meta.bin")


def zip_of_kaggle(data: Path, folder: Path) -> None:
    with zipfile.ZipFile(folder / "imagenet-object-localization-challenge.zip", "w") as archive:
        for number, path in enumerate(sorted((data / "train").glob("*/*"))):
            how = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            archive.write(path, f"ILSVRC/Data/CLS-LOC/train/{path.parent.name}/{path.name}", how)
        lines = ["ImageId,PredictionString"]
        for path in sorted((data / "val").glob("*/*")):
            archive.write(path, f"ILSVRC/Data/CLS-LOC/val/{path.name}")
            lines.append(f"{path.stem},{path.parent.name} 1 2 3 4 ")
        archive.writestr("LOC_val_solution.csv", "\n".join(lines))
        archive.writestr("LOC_synset_mapping.txt", "".join(f"{name} word, other\n" for name in CLASSES))


def one_archive_for_each_split(data: Path, folder: Path) -> None:
    for split in ("train", "val"):
        with tarfile.open(folder / f"{split}.tar", "w") as archive:
            archive.add(data / split, ".")


@pytest.mark.parametrize(
    "layout",
    [original_archives, archives_with_metadata_of_torchvision, zip_of_kaggle, one_archive_for_each_split],
)
def test_the_original_files_make_the_same_shards_without_being_unpacked(
    data: Path, shards: Path, tmp_path: Path, layout: Callable[[Path, Path], None]
) -> None:
    source = tmp_path / "data"
    source.mkdir()
    layout(data, source)
    before = sorted(source.rglob("*"))
    make(source, tmp_path / "shards")
    for split in ("train", "val"):
        assert files_in(tmp_path / "shards", split) == files_in(shards, split)
    assert sorted(source.rglob("*")) == before
    if layout is not one_archive_for_each_split:
        facts = json.loads((tmp_path / "shards/classes.json").read_text())
        assert [fact["folder"] for fact in facts] == list(CLASSES)
        assert all("word" in fact["name"] for fact in facts)


def test_validation_images_without_classes_are_told(data: Path, tmp_path: Path) -> None:
    archives(data, tmp_path)
    with pytest.raises(SystemExit, match="classes"):
        make(tmp_path, tmp_path / "shards")


def test_a_damaged_zip_file_is_told(data: Path, tmp_path: Path) -> None:
    zip_of_kaggle(data, tmp_path)
    path = next(tmp_path.glob("*.zip"))
    content = bytearray(path.read_bytes())
    content[400] ^= 255
    path.write_bytes(content)
    with pytest.raises(OSError, match="byte 0"):
        make(tmp_path, tmp_path / "shards")


# -- training --------------------------------------------------------------------------------------

SMALL = "--arch resnet10 --size 32 --epochs 2 --batch-size 8 --workers 0 --lr 0.1 --print-every 2"


def a_training(checkpoint: str, *options: str, world: int = 2) -> dict[str, Any]:
    return {"world": world, "arguments": [*SMALL.split(), "--checkpoint", checkpoint, *options]}


def weights(path: Path) -> dict[str, Any]:
    return dict(torch.load(path)["model"])


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_training_on_shards_that_is_interrupted_on_two_ranks_ends_as_if_it_were_not(
    shards: Path, tmp_path: Path
) -> None:
    place = ["--shards", str(shards)]
    runs = [
        a_training("whole.pt", *place),
        a_training("parts.pt", *place, "--save-every", "3", "--steps", "3"),
        a_training("parts.pt", *place, "--resume", "--save-every", "4", "--steps", "9"),
        a_training("parts.pt", *place, "--resume"),
        a_training("parts.pt", *place, "--evaluate", world=1),
    ]
    shown = run_ranks("imagenet/train-exact.py", tmp_path, runs)
    assert_same(tmp_path / "whole.pt", tmp_path / "parts.pt")
    assert f"of {VAL} images" in shown  # an odd number, on two ranks
    ends = re.findall(r"^epoch [12]: (top-1 .*)", shown, re.MULTILINE)
    assert ends == [ends[0]] * 3  # of the whole, of the parts, and of an evaluation on one rank
    assert re.search(r"epoch 0 step 5/5: loss \d\.\d+, \d+ images/s, .* \d+\.\d ms ", shown)


@pytest.mark.parametrize(
    ("batch", "shown"), [("7", range(4, 13)), ("4", range(7, 23)), ("16", range(2, 6)), ("72", [])]
)
def test_steps_of_another_size_are_counted_to_the_end_of_the_epoch(
    shards: Path, tmp_path: Path, batch: str, shown: Any
) -> None:
    more = ["--shards", str(shards), "--epochs", "1", "--print-every", "1"]
    runs = [
        a_training("a.pt", *more, "--save-every", "3", "--steps", "3", world=1),
        a_training("a.pt", *more, "--resume", "--batch-size", batch, world=1),
    ]
    found = re.findall(r"^epoch 0 step (\d+)/(\d+)", run_ranks("imagenet/train-exact.py", tmp_path, runs), re.MULTILINE)
    steps = TRAIN // int(batch)
    assert found[3:] == [(str(step), str(steps)) for step in shown]
    if shown:
        rate = torch.load(tmp_path / "a.pt")["optimizer"]["param_groups"][0]["lr"]
        last = 0.1 * int(batch) / 256 * 0.5 * (1 + math.cos(math.pi * (steps - 1) / steps))
        assert rate == pytest.approx(last)  # that of the last step of the schedule


def test_steps_are_counted_right_after_more_than_one_change(shards: Path, tmp_path: Path) -> None:
    more = ["--shards", str(shards), "--epochs", "1", "--print-every", "1"]
    runs = [
        a_training("a.pt", *more, "--save-every", "3", "--steps", "3", world=1),  # 66 images are left
        a_training("a.pt", *more, "--resume", "--batch-size", "7", "--save-every", "5", "--steps", "5", world=1),  # 52
        a_training("a.pt", *more, "--resume", "--batch-size", "5"),  # on two ranks, whose steps have 10
    ]
    found = re.findall(r"^epoch 0 step (\d+/\d+)", run_ranks("imagenet/train-exact.py", tmp_path, runs), re.MULTILINE)
    assert found[3:] == ["4/12", "5/12", "5/9", "6/9", "7/9", "8/9", "9/9"]


def test_another_seed_cannot_go_on_with_a_training(shards: Path, tmp_path: Path) -> None:
    words = [*SMALL.split(), "--shards", str(shards), "--checkpoint", str(tmp_path / "a.pt")]
    done = python(IMAGENET / "train-exact.py", *words, "--save-every", "3", "--steps", "3")
    assert done.returncode == 0, done.stderr
    done = python(IMAGENET / "train-exact.py", *words, "--resume", "--seed", "5")
    assert done.returncode == 1
    assert "seed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_epoch_can_have_another_size(shards: Path, tmp_path: Path) -> None:
    words = ["--shards", str(shards), "--trainsize", "33", "--shuffle", "20", "--trainshards"]
    shown = run_ranks(
        "imagenet/train-exact.py", tmp_path, [a_training("a.pt", *words, f"{shards}/imagenet-train-*.tar", world=1)]
    )
    assert "step 4/4" in shown


# -- the well-known program, on folders and on shards ------------------------------------------------

PLAIN = ["-a", "resnet10", "--size", "32", "-b", "16", "-j", "0", "-p", "1", "--seed", "1"]


@pytest.fixture(params=["main-orig.py", "main-wds.py"])
def program(request: pytest.FixtureRequest, data: Path, shards: Path) -> list[str]:
    """A program and what it trains on."""
    place = [str(data)] if request.param == "main-orig.py" else ["--shards", str(shards)]
    return [str(IMAGENET / request.param), *PLAIN, *place]


def trained(program: list[str], folder: Path, *options: str) -> str:
    done = python(*program, *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracies(shown: str) -> list[str]:
    return re.findall(r"^ \* (Acc@1 \S+ Acc@5 \S+)$", shown, re.MULTILINE)


def steps(shown: str) -> list[str]:
    return re.findall(r"^Epoch: (\[\d+\]\[ *\d+/\d+\])", shown, re.MULTILINE)


def test_a_training_goes_on_after_the_epoch_that_was_saved(program: list[str], tmp_path: Path) -> None:
    shown = trained(program, tmp_path, "--epochs", "2", "-j", "1")
    assert steps(shown) == [f"[{epoch}][{step}/6]" for epoch in (0, 1) for step in range(1, 7)]
    saved = torch.load(tmp_path / "checkpoint.pth.tar")
    assert (saved["epoch"], saved["arch"]) == (2, "resnet10")
    best = [float(each.split()[1]) for each in accuracies(shown)]
    assert saved["best_acc1"] == pytest.approx(max(best), abs=1e-3)
    assert torch.load(tmp_path / "model_best.pth.tar")["epoch"] == best.index(max(best)) + 1

    resumed = trained(program, tmp_path, "--epochs", "3", "--resume", "checkpoint.pth.tar")
    assert steps(resumed) == [f"[2][{step}/6]" for step in range(1, 7)]
    evaluated = trained(program, tmp_path, "-e", "--resume", "checkpoint.pth.tar", "-b", "5")
    assert accuracies(evaluated) == accuracies(resumed)
    assert steps(evaluated) == []
    assert torch.load(tmp_path / "checkpoint.pth.tar")["epoch"] == 3


def test_a_training_with_a_seed_can_be_repeated(program: list[str], tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
        trained(program, folder, "--epochs", "1")
    first, second = (torch.load(folder / "checkpoint.pth.tar")["state_dict"] for folder in folders)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_learning_rate_falls_to_a_tenth_after_thirty_epochs(program: list[str], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pth.tar"
    trained(program, tmp_path, "--epochs", "1", "--lr", "0.5", "--wd", "0", "--momentum", "0.8")
    saved = torch.load(path)
    group = saved["optimizer"]["param_groups"][0]
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.5, 0, 0.8)
    saved["epoch"] = saved["scheduler"]["last_epoch"] = 29
    torch.save(saved, path)
    trained(program, tmp_path, "--epochs", "30", "--resume", str(path))
    assert torch.load(path)["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.05)


def test_processes_that_torchrun_starts_get_as_many_batches(program: list[str], tmp_path: Path) -> None:
    path, *options = program
    run = {"world": 2, "arguments": [*options, "--epochs", "1", "--dist-url", "env://", "-b", "8"]}
    shown = run_ranks(f"imagenet/{Path(path).name}", tmp_path, [run])
    assert set(steps(shown)) == {f"[0][{step}/6]" for step in range(1, 7)}  # both ranks write into one file
    (accuracy,) = set(accuracies(shown))
    right = float(accuracy.split()[1]) / 100 * VAL
    assert right == pytest.approx(round(right), abs=0.01)  # every image counts once


def test_machines_train_together_with_processes_of_their_own(program: list[str], tmp_path: Path) -> None:
    words = [sys.executable, *program, "--epochs", "1", "-b", "8", "--multiprocessing-distributed"]
    words += ["--world-size", "2", "--dist-backend", "gloo", "--dist-url", f"file://{tmp_path}/meeting", "--rank"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    options: Any = {"env": env, "cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    machines = [subprocess.Popen([*words, rank], **options) for rank in ("0", "1")]
    shown, errors = zip(*(machine.communicate() for machine in machines), strict=True)
    assert [machine.returncode for machine in machines] == [0, 0], errors
    assert [steps(each) for each in shown] == 2 * [[f"[0][{step}/6]" for step in range(1, 7)]]
    assert accuracies(shown[0]) == accuracies(shown[1])
    assert torch.load(tmp_path / "checkpoint.pth.tar")["epoch"] == 1
    assert accuracies(trained(program, tmp_path, "-e", "--resume", "checkpoint.pth.tar")) == accuracies(shown[0])


def test_noise_needs_no_images(program: list[str], tmp_path: Path) -> None:
    words = [sys.executable, *program[: 1 + len(PLAIN)], "--dummy", "-b", "4"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [next(process.stdout) for _ in range(8)]  # an epoch would have 1.3 million images
        process.kill()
    assert any(line.startswith("Epoch: [0][     1/320292]") for line in lines)


def test_the_original_program_runs_where_there_is_no_webdataset(data: Path, tmp_path: Path) -> None:
    without = "import runpy, sys\nsys.modules['webdataset'] = None\nsys.argv = sys.argv[1:]\n"
    without += "sys.path[0] = sys.argv[0].rpartition('/')[0]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    done = python("-c", without, IMAGENET / "main-orig.py", *PLAIN, "--epochs", "1", data, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(accuracies(done.stdout)) == 1


def test_the_program_on_shards_reads_folders_too(data: Path, tmp_path: Path) -> None:
    orig, wds = tmp_path / "orig", tmp_path / "wds"
    orig.mkdir()
    wds.mkdir()
    shown = trained([str(IMAGENET / "main-orig.py"), *PLAIN, str(data)], orig, "--epochs", "1")
    words = [str(IMAGENET / "main-wds.py"), *PLAIN, "--data", str(data)]
    again = trained(words, wds, "--epochs", "1", "--loader", "orig")
    assert accuracies(again) == accuracies(shown)
    simple = trained(words, wds, "--epochs", "1", "--loader", "orig", "--augmentation", "simple")
    assert len(accuracies(simple)) == 1


def test_images_are_changed_as_torchvision_does_it() -> None:
    with loaded(IMAGENET / "vision.py") as vision:
        steps = vision.transforms
        image = Image.new("RGB", (60, 30), (255, 0, 51))
        image.putpixel((30, 15), (0, 0, 0))
        resized = steps.Resize(40)(image)
        cropped = steps.CenterCrop(20)(image)
        parts = [steps.RandomResizedCrop(16)(image) for _ in range(20)]
        tensor = steps.Compose([steps.ToTensor(), steps.Normalize([0, 0, 0.2], [1, 0.5, 0.5])])(image)
        flipped = {steps.RandomHorizontalFlip()(image).getpixel((29, 15)) for _ in range(50)}
    assert resized.size == (80, 40)
    assert cropped.size == (20, 20)
    assert cropped.getpixel((10, 10)) == (0, 0, 0)
    assert {part.size for part in parts} == {(16, 16)}
    assert tensor.shape == (3, 30, 60)
    assert tensor[:, 0, 0].tolist() == pytest.approx([1, 0, 0], abs=1e-6)
    assert flipped == {(0, 0, 0), (255, 0, 51)}


def test_folders_and_shards_are_learnt_equally_well() -> None:
    done = python(IMAGENET / "demo.py", "--train", "1200", "--val", "300", "--epochs", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(re.findall(r"^(main-\S+) +top-1 (\S+)%", done.stdout, re.MULTILINE))
    assert set(found) == {"main-orig.py", "main-wds.py"}
    assert min(map(float, found.values())) > 30  # one in ten by chance


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("main-orig.py -a resnet10 nowhere", " nowhere"),
        ("main-wds.py -a resnet10 --shards nowhere", "--shards"),
        ("main-orig.py --multiprocessing-distributed", "--world-size"),
        ("main-wds.py -a resnet10 --pretrained", "torchvision"),
        ("train-exact.py --epochs 0", "--epochs"),
        ("train-exact.py --shards {shards} --arch resnet10 --batch-size 1000", "few"),
        ("train-exact.py --shards nowhere", "classes.txt"),
        ("train-exact.py --shards {shards} --arch resnet10 --batch-size 8 --resume --checkpoint none.pt", "none.pt"),
    ],
)
def test_mistakes_are_told_in_a_line(shards: Path, words: str, message: str, capsys: Any) -> None:
    name, *options = words.format(shards=shards).split()
    with loaded(IMAGENET / name) as program, pytest.raises(SystemExit) as ended:
        program.main(options)
    assert message in f"{ended.value}{capsys.readouterr().err}"


# -- what it is an example of ----------------------------------------------------------------------


def the_diff() -> list[str]:
    """As `diff -U 0 main-orig.py main-wds.py` has it, without the names."""
    texts = [(IMAGENET / name).read_text().splitlines() for name in ("main-orig.py", "main-wds.py")]
    return list(difflib.unified_diff(*texts, lineterm="", n=0))[2:]


def functions(name: str) -> dict[str, str]:
    """The source of each function and class of a program."""
    tree = ast.parse((IMAGENET / name).read_text())
    return {each.name: ast.unparse(each) for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def test_nothing_but_loaders_and_options_has_changed() -> None:
    orig, wds = functions("main-orig.py"), functions("main-wds.py")
    assert {name for name in orig.keys() & wds.keys() if orig[name] != wds[name]} == {
        "parse",  # options
        "main",  # what its error says
        "main_worker",  # which loader, and set_epoch
        "train_transform",  # --augmentation
    }
    assert orig.keys() - wds.keys() == {"make_train_loader", "make_val_loader"}
    assert {wds[f"{name}_orig"].replace("_orig", "") for name in orig.keys() - wds.keys()} == {
        orig["make_train_loader"],
        orig["make_val_loader"],
    }


def test_the_page_shows_the_difference() -> None:
    page = (ROOT / "docs/programs.md").read_text()
    shown = re.search(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert shown[1].splitlines() == the_diff()


# -- the images of a demo --------------------------------------------------------------------------


def test_images_of_fashion_mnist_are_taken_where_they_are_installed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 20), ("t10k", 5)):
        images = struct.pack(">4i", 2051, count, 28, 28) + rng.integers(0, 255, count * 784, dtype=np.uint8).tobytes()
        (tmp_path / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        labels = struct.pack(">2i", 2049, count) + bytes(n % 10 for n in range(count))
        (tmp_path / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    with loaded(IMAGENET / "demo_images.py") as demo_images:
        name = demo_images.make_images(str(tmp_path / "data"), train=20, val=5, fashion=str(tmp_path))
    assert name == "Fashion-MNIST"
    assert len(list((tmp_path / "data/train").glob("*/*.jpg"))) == 20
    classes = sorted(path.name for path in (tmp_path / "data/val").iterdir())
    assert classes == ["coat", "dress", "pullover", "t-shirt", "trousers"]


def test_digits_are_taken_elsewhere(tmp_path: Path) -> None:
    with loaded(IMAGENET / "demo_images.py") as demo_images:
        name = demo_images.make_images(str(tmp_path), train=30, val=10, fashion=str(tmp_path / "nowhere"))
    assert name == "digits"
    assert len(list((tmp_path / "train").glob("*/*.jpg"))) == 30


# -- run -------------------------------------------------------------------------------------------


def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


def test_run_lists_its_verbs() -> None:
    shown = shell(str(IMAGENET / "run")).stdout
    assert re.findall(r"^  (\w+)  ", shown, re.MULTILINE) == [
        "venv",
        "makeshards",
        "train",
        "exact",
        "demo",
        "clean",
        "help",
    ]


def test_run_refuses_an_unknown_verb() -> None:
    refused = shell(str(IMAGENET / "run"), "dance")
    assert refused.returncode == 2
    assert "dance" in refused.stderr


def recording(folder: Path, name: str) -> Path:
    """A program that only writes down its arguments, and makes what `python -m venv` would."""
    path = folder / name
    path.write_text(
        '#!/bin/sh\necho "$(basename "$0") $*" >> "$RECORD"\n'
        'if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
    )
    path.chmod(0o755)
    return path


def test_run_calls_the_programs(tmp_path: Path) -> None:
    copy = tmp_path / "imagenet"
    shutil.copytree(IMAGENET, copy, ignore=shutil.ignore_patterns("__pycache__", "venv"))
    recording(tmp_path, "python3")
    record = tmp_path / "record"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(record), "PYTHON": ""}
    for words in (["venv"], ["makeshards", "--jobs", "3"], ["train", "-b", "9"], ["exact", "--resume"], ["demo"]):
        done = shell(str(copy / "run"), *words, **environment)
        assert done.returncode == 0, done.stderr
    for verb in ("train", "exact"):
        assert shell(str(copy / "run"), verb, RANKS="2", **environment).returncode == 0
    lines = record.read_text().splitlines()
    assert lines[0] == "python3 -m venv venv"
    assert lines[1:3] == [
        "python -m pip install --quiet torch",
        "python -m pip install --quiet -e ../..[image,torch] scikit-learn scipy tensorboard",
    ]
    assert lines[3:] == [
        "python makeshards.py --jobs 3",
        "python main-wds.py -b 9",
        "python train-exact.py --resume",
        "python demo.py",
        "python -m torch.distributed.run --nproc-per-node 2 main-wds.py --dist-url env://",
        "python -m torch.distributed.run --nproc-per-node 2 train-exact.py",
    ]
    for name in ("checkpoint.pt", "checkpoint.pth.tar", "model_best.pth.tar"):
        (copy / name).touch()
    assert shell(str(copy / "run"), "clean", **environment).returncode == 0
    assert not (copy / "venv").exists()
    assert [path.name for path in copy.glob("*.p*t*") if path.suffix in (".pt", ".tar")] == ["model_best.pth.tar"]
