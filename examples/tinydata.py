"""Shards for the examples beside this file: samples with a number, a vector, and a value that follows from the vector.

Every example writes down the numbers of the samples that it trains on, if asked to with --seen: so it can be seen that
each of them comes once in an epoch, on whichever rank, also in a training that was interrupted.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import numpy as np

import webdataset as wds

SHARDS = (7, 11, 2, 19)  # samples in each: uneven, as real data


def make_shards(folder):
    """Write the shards, and return their paths."""
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"tiny-{i}.tar") for i in range(len(SHARDS))]
    number = 0
    for path, count in zip(paths, SHARDS, strict=True):
        with wds.TarWriter(path) as writer:
            for _ in range(count):
                vector = np.random.default_rng(number).normal(size=4).astype("float32")
                writer.write({"__key__": f"{number:04d}", "cls": number, "npy": vector})
                number += 1
    return paths


def options(description):
    """The command line that the examples have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", default="tiny-{0..3}.tar", help="the shards; made by tinydata.py")
    parser.add_argument("--folder", default="training", help="where checkpoints go")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=3, help="samples in a batch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", action="store_true", help="workers are threads, not processes")
    parser.add_argument("--every", type=int, default=2, help="steps from checkpoint to checkpoint")
    parser.add_argument("--steps", type=int, default=-1, help="stop after this many steps, as if interrupted")
    parser.add_argument("--resume", action="store_true", help="go on from the latest checkpoint")
    parser.add_argument("--seen", help="append to this file: epoch and numbers of the samples of every step")
    parser.add_argument("--demo", action="store_true", help="make the shards in a temporary folder and train on them")
    return parser


@contextmanager
def parsed(parser, arguments):
    """The options; with --demo there are shards, and a folder for checkpoints, as long as the program runs."""
    args = parser.parse_args(arguments)
    if not args.demo:
        yield args
        return
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        make_shards(folder)
        args.shards, args.folder = os.path.join(folder, "tiny-{0..3}.tar"), os.path.join(folder, "training")
        yield args


def start_ranks(program, words, ranks=2):
    """Run a program on some ranks of this machine, as torchrun does."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), program, *words]
    print("torchrun", *command[2:], flush=True)
    threads = {"OMP_NUM_THREADS": "1"}  # torchrun says at length that it does this, unless somebody else has
    status = subprocess.call([sys.executable, *command], env={**os.environ, **threads})
    if status:
        sys.exit(status)


def on_ranks(program, args, *more):
    """Run a program of `options` on two ranks, with the shards of a demo."""
    words = ["--shards", args.shards, "--folder", args.folder, "--epochs", str(args.epochs), "--batch", str(args.batch)]
    words += ["--workers", str(args.workers), "--every", str(args.every), "--steps", str(args.steps)]
    start_ranks(program, [*words, *more])


def numbers_vectors_values(sample):
    """What the networks get: the number is for the account, the value is to be learnt from the vector."""
    return sample["cls"], sample["npy"], sample["npy"].sum(keepdims=True)


def make_loader(args, tensors=True, **more):
    """A loader of batches (numbers, vectors, values)."""
    dataset = wds.WebDataset(args.shards, exact=True, seed=1, **more).decode().map(numbers_vectors_values)
    workers = "thread" if args.threads else "process"
    kind = {"workers": workers, "tensors": tensors}
    return wds.WebLoader(dataset.batched(args.batch), batch_size=None, num_workers=args.workers, **kind)


def note(args, epoch, numbers):
    """Write down what a step trained on."""
    if args.seen:
        with open(args.seen, "a") as stream:
            print(epoch, *map(int, numbers), file=stream)


if __name__ == "__main__":
    print(*make_shards("."), sep="\n")
