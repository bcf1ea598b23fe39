"""What main-orig.py and main-wds.py take from torchvision, for machines without it: `datasets`, `models`, `transforms`.

Names and behaviour are those of torchvision, as far as the two programs need them.
"""

import math
import os
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from resnets import NETWORKS
from torch.utils.data import Dataset

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


# -- datasets --------------------------------------------------------------------------------------


class ImageFolder(Dataset):
    """Images of `folder/CLASS/*` with the number of their class."""

    def __init__(self, root, transform):
        if not os.path.isdir(root):
            raise FileNotFoundError(f"there is no folder {root}")
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = [
            (os.path.join(root, name, file), number)
            for number, name in enumerate(self.classes)
            for file in sorted(os.listdir(os.path.join(root, name)))
            if file.lower().endswith(ENDINGS)
        ]
        if not self.samples:
            raise FileNotFoundError(f"there are no images in {root}/CLASS/")
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        path, label = self.samples[number]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


class FakeData(Dataset):
    """Noise, to measure everything but the reading of images."""

    def __init__(self, size, image_size, num_classes, transform):
        self.size, self.image_size, self.num_classes, self.transform = size, image_size, num_classes, transform

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        rng = torch.Generator().manual_seed(number)
        pixels = torch.randint(256, (*self.image_size[1:], 3), generator=rng, dtype=torch.uint8)
        label = torch.randint(self.num_classes, (), generator=rng)
        return self.transform(Image.fromarray(pixels.numpy())), int(label)


# -- transforms ------------------------------------------------------------------------------------


class Compose:
    """One transform after the other."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Resize:
    """The shorter side gets this many pixels."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        scale = self.size / min(image.size)
        width, height = (max(self.size, int(side * scale)) for side in image.size)
        return image.resize((width, height), Image.Resampling.BILINEAR)


class CenterCrop:
    """The square in the middle."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        left, top = (round((side - self.size) / 2) for side in image.size)
        return image.crop((left, top, left + self.size, top + self.size))


class RandomResizedCrop:
    """A random part of the image, of 8 to 100 % of its area and almost square, as a square."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        return image.resize((self.size, self.size), Image.Resampling.BILINEAR, self.box(*image.size))

    def box(self, width, height):
        """Left, top, right and bottom; all of the image if ten tries do not fit into it."""
        for _ in range(10):
            area = width * height * uniform(0.08, 1)
            aspect = math.exp(uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(uniform(0, width - w + 1)), int(uniform(0, height - h + 1))
                return left, top, left + w, top + h
        return 0, 0, width, height


class RandomHorizontalFlip:
    """Every other image is mirrored."""

    def __call__(self, image):
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if uniform(0, 1) < 0.5 else image


class ToTensor:
    """An image as 3 x H x W numbers from 0 to 1."""

    def __call__(self, image):
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float() / 255


class Normalize:
    """Numbers whose mean is 0 and whose standard deviation is 1, on average."""

    def __init__(self, mean, std):
        self.mean, self.std = (torch.tensor(values)[:, None, None] for values in (mean, std))

    def __call__(self, pixels):
        return (pixels - self.mean) / self.std


def uniform(low, high):
    """A random number, of torch: it gives every worker a seed of its own."""
    return float(torch.empty(()).uniform_(low, high))


# -- as torchvision groups them ----------------------------------------------------------------------

datasets = SimpleNamespace(ImageFolder=ImageFolder, FakeData=FakeData)
models = SimpleNamespace(**NETWORKS)
transforms = SimpleNamespace(
    Compose=Compose,
    Resize=Resize,
    CenterCrop=CenterCrop,
    RandomResizedCrop=RandomResizedCrop,
    RandomHorizontalFlip=RandomHorizontalFlip,
    ToTensor=ToTensor,
    Normalize=Normalize,
)
