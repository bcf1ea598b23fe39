"""A small set of real images in class folders, without a download: what the programs train on with --demo.

Fashion-MNIST, photographs of clothes in ten classes, where Debian's package `dataset-fashion-mnist` is installed; else
the scanned digits that come with scikit-learn.

    python demo_images.py data
"""

import argparse
import gzip
import os
import sys

import numpy as np

FASHION = "/usr/share/datasets/fashion-mnist"
CLOTHES = ("t-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
SIDE = 32


def make_images(folder, train=3000, val=600, fashion=FASHION):
    """Write `folder/train/CLASS/NUMBER.jpg` and `folder/val/...`; the result is the name of the set."""
    name, splits = small_set(train, val, fashion)
    for split, images, labels in splits:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            save(image, os.path.join(folder, split, label, f"{number:05d}.jpg"))
    return name


def small_set(train, val, fashion=FASHION):
    """The name of the set, and its splits: (split, gray images, names of their classes)."""
    if os.path.exists(os.path.join(fashion, "train-images-idx3-ubyte.gz")):
        return "Fashion-MNIST", clothes(fashion, train, val)
    return "digits", digits(train, val)


def clothes(folder, train, val):
    """The first images of Fashion-MNIST, whose order is random: (split, images, names of their classes)."""
    for split, prefix, count in (("train", "train", train), ("val", "t10k", val)):
        with gzip.open(os.path.join(folder, f"{prefix}-images-idx3-ubyte.gz")) as stream:
            stream.read(16)
            pixels = np.frombuffer(stream.read(count * 28 * 28), np.uint8).reshape(-1, 28, 28)
        with gzip.open(os.path.join(folder, f"{prefix}-labels-idx1-ubyte.gz")) as stream:
            stream.read(8)
            yield split, pixels, [CLOTHES[label] for label in stream.read(count)]


def digits(train, val):
    """The digits of scikit-learn, 8 x 8 pixels: (split, images, names of their classes)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("--demo needs scikit-learn, or Debian's dataset-fashion-mnist: pip install scikit-learn")
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.images))
    val = min(val, len(order) // 4)
    for split, chosen in (("train", order[val:][:train]), ("val", order[:val])):
        images = [(found.images[n] * (255 / 16)).astype(np.uint8) for n in chosen]
        yield split, images, [str(found.target[n]) for n in chosen]


def save(image, path):
    """As a JPEG in colour, as photographs come."""
    from PIL import Image

    os.makedirs(os.path.dirname(path), exist_ok=True)
    Image.fromarray(image).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path, quality=90)


def main(arguments=None):
    """Write the images, and say what they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where the class folders go")
    parser.add_argument("--train", type=int, default=3000, help="images to train with (3000)")
    parser.add_argument("--val", type=int, default=600, help="images to test with (600)")
    args = parser.parse_args(arguments)
    name = make_images(args.folder, args.train, args.val)
    print(f"{name} in {args.folder}")


if __name__ == "__main__":
    main()
