"""Images in class folders, as torchvision's ImageFolder has them, for main-orig.py."""

import os

import torch
from torch.utils.data import Dataset, Sampler

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


class FolderImages(Dataset):
    """Images of `folder/CLASS/*` with the number of their class, by position."""

    def __init__(self, folder, transform):
        if not os.path.isdir(folder):
            raise SystemExit(f"there is no folder {folder}: --data names the folder with train/ and val/")
        self.classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        self.files = [
            (os.path.join(folder, name, file), number)
            for number, name in enumerate(self.classes)
            for file in sorted(os.listdir(os.path.join(folder, name)))
            if file.lower().endswith(ENDINGS)
        ]
        if not self.files:
            raise SystemExit(f"there are no images in {folder}/CLASS/")
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, number):
        path, label = self.files[number]
        with open(path, "rb") as stream:
            return self.transform(os.path.splitext(path)[1], stream.read()), label


class EpochSampler(Sampler):
    """This rank's share of a random order that is another one in every epoch, from any step on."""

    def __init__(self, count, ranks, batch_size, seed):
        self.count, self.ranks, self.batch_size, self.seed = count, ranks, batch_size, seed
        self.epoch = self.first = 0

    def set_place(self, epoch, step):
        """The next pass is this epoch, without its first steps."""
        self.epoch, self.first = epoch, step * self.batch_size

    def __len__(self):
        return self.count // self.ranks.world

    def __iter__(self):
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.seed + self.epoch))
        mine = order[self.ranks.rank :: self.ranks.world][: len(self)]
        return iter(mine[self.first :].tolist())
