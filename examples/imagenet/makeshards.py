"""Make shards from ImageNet, or from any images in class folders.

    ln -s /data/imagenet data
    python makeshards.py
    python makeshards.py --data imagenet-object-localization-challenge.zip --shards /fast/shards --jobs 8
    python makeshards.py --demo

--data is a folder with train/CLASS/* and val/CLASS/*, as torchvision's ImageNet makes it, or with the original files
(ILSVRC2012_img_train.tar, ..., or Kaggle's zip file), which are read without unpacking.

The images are written as they are, in a random order, 1000 in a shard: 1282 shards for training and 50 for validation,
each with its index; imagenet-train.json and imagenet-val.json list the shards, and line n of classes.txt is the name of
class n, counted from 0. If it is interrupted, the same command goes on: shards that are complete are kept.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial

from demo_images import make_images
from sources import class_names, find_images, read

import webdataset as wds


def main(arguments=None):
    """Make the shards of all splits."""
    args = parse(arguments)
    if args.demo:
        with tempfile.TemporaryDirectory() as folder:
            args.data, args.shards = f"{folder}/data", f"{folder}/shards"
            print(f"{make_images(args.data)} in {args.data}")
            make_all(args)
            print(*sorted(os.listdir(args.shards)), sep="\n")
    else:
        make_all(args)


def parse(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", default="data", metavar="PATH", help="the folder, or zip file, with the images (data)")
    add("--shards", default="shards", metavar="FOLDER", help="where the shards go (shards)")
    add("--splits", default="train,val", help="which splits to make shards of (train,val)")
    add("--maxcount", type=int, default=1000, help="images in a shard (1000)")
    add("--maxsize", type=float, default=1e9, help="bytes in a shard, at most (1e9)")
    add("--filekey", action="store_true", help="keys are CLASS/FILE instead of the image's number")
    add("--seed", type=int, default=0, help="of the random order (0)")
    add("--jobs", type=int, default=os.cpu_count(), help="processes (one for each core)")
    add("--quiet", action="store_true", help="no progress")
    add("--demo", action="store_true", help="make shards of a small set of images, in a temporary folder")
    args = parser.parse_args(arguments)
    for name in ("maxcount", "maxsize", "jobs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return args


def make_all(args):
    """All splits; they share the numbers of the classes."""
    splits = [split for split in args.splits.split(",") if split]
    found = {}
    for split in splits:
        if not args.quiet:
            print(f"{split}: looking for images in {args.data}", file=sys.stderr, flush=True)
        found[split] = find_images(args.data, split)
    os.makedirs(args.shards, exist_ok=True)
    labels = write_classes(args, {image.label for images in found.values() for image in images})
    for split, images in found.items():
        make_split(args, split, images, labels)


def write_classes(args, labels):
    """Write the list of classes, and give their numbers; classes that another run numbered keep their numbers."""
    path = os.path.join(args.shards, "classes.txt")
    names = sorted(labels)
    if os.path.exists(path):
        with open(path) as stream:
            names = stream.read().splitlines()
        if unknown := sorted(labels - set(names)):
            raise SystemExit(f"{path} has no class {unknown[0]!r}: remove {args.shards}, or name another --shards")
    write_text(path, "".join(f"{name}\n" for name in names))
    for_people = class_names(args.data)
    if for_people:
        facts = [{"class": n, "folder": name, "name": for_people.get(name, "")} for n, name in enumerate(names)]
        write_text(os.path.join(args.shards, "classes.json"), json.dumps(facts, indent=1))
    return {name: number for number, name in enumerate(names)}


def make_split(args, split, images, labels):
    """The shards of a split, those that are missing, and their list."""
    keys = [f"{number:08d}" for number in range(len(images))]
    if args.filekey:
        keys = [image.name.rpartition(".")[0].replace(".", "_") for image in images]
        if len(set(keys)) < len(keys):
            raise SystemExit(f"{args.data}: two images of {split} have one name: leave out --filekey")
    check_same_run(args, split, images)
    parts = list(divided(args, images))
    path = partial(os.path.join, args.shards)
    paths = [path(f"imagenet-{split}-{number:06d}.tar") for number in range(len(parts))]
    tasks = [
        (name, [(keys[n], labels[images[n].label], images[n]) for n in part])
        for name, part in zip(paths, parts, strict=True)
        if not (os.path.exists(name) and os.path.exists(f"{name}.wdx"))
    ]
    with workers(args, len(tasks)) as results_of:
        progress = Progress(args, split, len(parts), len(tasks))
        for images_written, bytes_written in results_of(write_shard, tasks):
            progress.add(images_written, bytes_written)
    wds.index(paths).save(path(f"imagenet-{split}.json"))
    progress.finish(len(images))


def divided(args, images):
    """A random order, cut into shards: lists of positions."""
    order = list(range(len(images)))
    random.Random(args.seed).shuffle(order)
    part, size = [], 0
    for number in order:
        place = images[number].place
        added = os.path.getsize(place.path) if place.size < 0 else place.size
        if part and (len(part) >= args.maxcount or size + added > args.maxsize):
            yield part
            part, size = [], 0
        part.append(number)
        size += added
    if part:
        yield part


def write_shard(task):
    """One shard and its index, which get their names when they are complete."""
    path, samples = task
    size = 0
    with wds.TarWriter(path, index="wdx") as writer:
        for key, label, image in samples:
            field = "png" if image.name.lower().endswith(".png") else "jpg"
            size += writer.write({"__key__": key, field: read(image.place), "cls": label})
    return len(samples), size


@contextmanager
def workers(args, tasks):
    """A function like map whose results come in any order."""
    if args.jobs == 1 or tasks < 2:
        yield map
    else:
        with multiprocessing.get_context("spawn").Pool(min(args.jobs, tasks)) as pool:
            yield pool.imap_unordered


def check_same_run(args, split, images):
    """What the shards are made of is kept beside them: a run that would mix two datasets is refused."""
    digest = hashlib.sha256("\n".join(image.name for image in images).encode("utf-8", "surrogateescape")).hexdigest()
    facts = {"images": len(images), "names": digest}
    facts |= {name: getattr(args, name) for name in ("maxcount", "maxsize", "filekey", "seed")}
    path = os.path.join(args.shards, f"makeshards-{split}.json")
    if os.path.exists(path):
        with open(path) as stream:
            earlier = json.load(stream)
        for name, value in facts.items():
            if earlier.get(name) != value:
                what = "other images" if name == "names" else f"{name} {earlier.get(name)}, not {value}"
                raise SystemExit(f"{args.shards} has shards with {what}: remove it, or name another --shards")
    write_text(path, json.dumps(facts, indent=1))


def write_text(path, text):
    """Write a file that is never seen half-written."""
    with open(path + ".new", "w", errors="surrogateescape") as stream:
        stream.write(text)
    os.replace(path + ".new", path)


class Progress:
    """One line that redraws itself in a terminal; in a log, a line for each tenth."""

    def __init__(self, args, split, shards, todo):
        self.split, self.quiet, self.shards, self.todo = split, args.quiet, shards, todo
        self.done = self.images = self.bytes = 0
        self.began = time.monotonic()
        self.terminal = sys.stderr.isatty()
        if todo < shards:
            self.say(f"{split}: {shards - todo} of {shards} shards are complete already", end="\n")

    def add(self, images, size):
        """A shard more."""
        self.done, self.images, self.bytes = self.done + 1, self.images + images, self.bytes + size
        seconds = max(time.monotonic() - self.began, 1e-9)
        left = seconds / self.done * (self.todo - self.done)
        if self.terminal or self.done % max(1, self.todo // 10) == 0:
            ready = self.shards - self.todo + self.done
            rate = f"{self.images / seconds:.0f} images/s, {self.bytes / seconds / 1e6:.0f} MB/s, {left:.0f} s left"
            self.say(f"{self.split}: {ready} of {self.shards} shards, {rate}", end="\r" if self.terminal else "\n")

    def finish(self, images):
        """Everything is there."""
        self.say(f"{self.split}: {images} images in {self.shards} shards", end="\n")

    def say(self, line, end):
        """Replace the line before."""
        if not self.quiet:
            print(line.ljust(100) if self.terminal else line, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
