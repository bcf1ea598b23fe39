"""Where the images of a dataset are: in class folders, or in the original archives, which are read without unpacking.

`find_images(data, split)` lists the images of a split, each with a place from which `read` gets its bytes. It knows

- class folders: `data/train/CLASS/*.jpg`, `data/val/CLASS/*.jpg`, also those that torchvision's ImageNet made;
- ImageNet's archives as they were published: `data/ILSVRC2012_img_train.tar`, which has an archive for each class in
  it, `data/ILSVRC2012_img_val.tar`, and `data/ILSVRC2012_devkit_t12.tar.gz`, which has the classes of the latter;
- zip files with `.../train/CLASS/*` and `.../val/*`, as Kaggle has it, with LOC_val_solution.csv for the classes;
- `data/train.tar` and `data/val.tar` with `CLASS/*`.
"""

import csv
import glob
import io
import os
import re
import struct
import tarfile
import zipfile
import zlib
from typing import NamedTuple

IMAGE = re.compile(r"\.(jpe?g|png)$", re.IGNORECASE)
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
KAGGLE_LABELS, KAGGLE_NAMES = "LOC_val_solution.csv", "LOC_synset_mapping.txt"


class Place(NamedTuple):
    """Bytes in a file: all of it, a part, or a compressed part with the checksum of what is in it."""

    path: str
    offset: int = 0
    size: int = -1
    deflated: bool = False
    checksum: int | None = None


class FoundImage(NamedTuple):
    """An image of the dataset: its name, its class, and where it is."""

    name: str
    label: str
    place: Place


def find_images(data, split):
    """All images of a split, sorted by name."""
    flat = None
    images = []
    for name, place in entries(data, split):
        folder, _, file = name.rpartition("/")
        if not folder:
            flat = validation_classes(data) if flat is None else flat
            if file not in flat:
                raise SystemExit(f"{data}: the class of {split}/{file} is not known; its labels do not name it")
            folder = flat[file]
        images.append(FoundImage(f"{folder}/{file}", folder, place))
    if not images:
        raise SystemExit(
            f"{data}: no images of {split} there; it needs {split}/CLASS/*.jpg, ILSVRC2012_img_{split}.tar, "
            f"{split}.tar or a zip file that has {split}/ in it"
        )
    return sorted(images)  # so numbers do not depend on how the images came


def read(place):
    """The bytes at a place."""
    with open(place.path, "rb") as stream:
        if place.checksum is None:
            stream.seek(place.offset)
            data = stream.read(place.size)
            complete = place.size < 0 or len(data) == place.size
        else:
            # a zip file has a header before each file, whose length only the header itself tells
            stream.seek(place.offset)
            name, extra = struct.unpack("<26x2H", stream.read(30))
            stream.seek(name + extra, os.SEEK_CUR)
            data = stream.read(place.size)
            data = zlib.decompress(data, -zlib.MAX_WBITS) if place.deflated else data
            complete = zlib.crc32(data) == place.checksum
    if not complete:
        raise OSError(f"{place.path}: the image at byte {place.offset} is damaged")
    return data


def class_names(data):
    """The names of the classes for people, by the names of their folders, as far as the metadata has them."""
    meta = torchvision_meta(data)
    if meta is not None:
        return {wnid: ", ".join(names) for wnid, names in meta[0].items()}
    mapping = side_file(data, KAGGLE_NAMES)
    if mapping is not None:
        return dict(line.split(" ", 1) for line in mapping.decode().splitlines() if " " in line)
    if os.path.exists(os.path.join(data, DEVKIT)):
        return dict(devkit_synsets(data).values())
    return {}


# -- the list of files -----------------------------------------------------------------------------


def entries(data, split):
    """Pairs of CLASS/FILE, or FILE alone, and its place."""
    folder = os.path.join(data, split)
    if os.path.isdir(folder):
        return folder_entries(folder)
    for name in (f"ILSVRC2012_img_{split}.tar", f"{split}.tar"):
        path = os.path.join(data, name)
        if os.path.exists(path):
            return tar_entries(path)
    archives = [data] if data.endswith(".zip") else sorted(glob.glob(os.path.join(glob.escape(data), "*.zip")))
    return [entry for path in archives for entry in zip_entries(path, split)]


def folder_entries(folder):
    """The images in the subfolders of a folder, or in itself."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            for file in os.scandir(entry.path):
                if IMAGE.search(file.name):
                    yield f"{entry.name}/{file.name}", Place(file.path)
        elif IMAGE.search(entry.name):
            yield entry.name, Place(entry.path)


def tar_entries(path):
    """The images in an archive, and in the archives of classes within it."""
    with open(path, "rb") as stream:
        for member in tarfile.open(fileobj=stream, mode="r:"):  # noqa: SIM115 - the stream is closed
            name = member.name.removeprefix("./")
            if IMAGE.search(name):
                yield "/".join(name.split("/")[-2:]), Place(path, member.offset_data, member.size)
            elif name.endswith(".tar"):
                label = os.path.basename(name).removesuffix(".tar")
                back = stream.tell()
                stream.seek(member.offset_data)
                for inner in tarfile.TarFile(fileobj=stream):  # its offsets are those of the whole file
                    if IMAGE.search(inner.name):
                        file = os.path.basename(inner.name)
                        yield f"{label}/{file}", Place(path, inner.offset_data, inner.size)
                stream.seek(back)


def zip_entries(path, split):
    """The images of a split in a zip file."""
    wanted = re.compile(rf"(?:^|/){re.escape(split)}/((?:[^/]+/)?[^/]+)$")
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            found = wanted.search(member.filename)
            if found and IMAGE.search(member.filename):
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
                    raise SystemExit(f"{path}: {member.filename} is encrypted or compressed unusually: unpack it")
                is_deflated = member.compress_type == zipfile.ZIP_DEFLATED
                yield found[1], Place(path, member.header_offset, member.compress_size, is_deflated, member.CRC)


# -- the classes of validation images, which are in no folders --------------------------------------


def validation_classes(data):
    """The class of each validation image, by its name."""
    meta = torchvision_meta(data)
    if meta is not None:
        return {f"ILSVRC2012_val_{n:08d}.JPEG": wnid for n, wnid in enumerate(meta[1], 1)}
    solution = side_file(data, KAGGLE_LABELS)
    if solution is not None:
        rows = csv.DictReader(io.StringIO(solution.decode()))
        return {f"{row['ImageId']}.JPEG": row["PredictionString"].split()[0] for row in rows}
    if os.path.exists(os.path.join(data, DEVKIT)):
        synsets = devkit_synsets(data)
        numbers = devkit_file(data, "ILSVRC2012_validation_ground_truth.txt").split()
        return {f"ILSVRC2012_val_{n:08d}.JPEG": synsets[int(number)][0] for n, number in enumerate(numbers, 1)}
    raise SystemExit(
        f"{data}: the validation images are in no class folders, so their classes are needed: {DEVKIT}, meta.bin, or "
        f"{KAGGLE_LABELS}"
    )


def torchvision_meta(data):
    """What torchvision's ImageNet keeps: names by class, and the classes of the validation images."""
    path = os.path.join(data, "meta.bin")
    if not os.path.exists(path):
        return None
    import torch

    return torch.load(path, weights_only=True)


def devkit_synsets(data):
    """The classes of ImageNet's development kit: number -> (folder, names)."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise SystemExit(f"to read {DEVKIT}, scipy is needed: pip install scipy") from None
    synsets = loadmat(io.BytesIO(devkit_file(data, "meta.mat")), squeeze_me=True)["synsets"]
    return {int(each[0]): (str(each[1]), str(each[2])) for each in synsets if int(each[4]) == 0}


def devkit_file(data, name):
    """A file of the development kit."""
    with tarfile.open(os.path.join(data, DEVKIT), "r:gz") as archive:
        for member in archive:
            if os.path.basename(member.name) == name:
                return archive.extractfile(member).read()
    raise SystemExit(f"{data}/{DEVKIT} has no {name}")


def side_file(data, name):
    """A file beside the images, or in the zip file with them; None if there is none."""
    path = os.path.join(data, name)
    if os.path.exists(path):
        with open(path, "rb") as stream:
            return stream.read()
    archives = [data] if data.endswith(".zip") else sorted(glob.glob(os.path.join(glob.escape(data), "*.zip")))
    for each in archives:
        with zipfile.ZipFile(each) as archive:
            for member in archive.namelist():
                if os.path.basename(member) == name:
                    return archive.read(member)
    return None
