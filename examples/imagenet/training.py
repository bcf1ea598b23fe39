"""What train-exact.py needs that is not about data: options, ranks, logs, checkpoints."""

import argparse
import contextlib
import math
import os
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
from resnets import NETWORKS

import webdataset as wds
from webdataset import images

DEMO = {"arch": "resnet10", "size": 32, "epochs": 5, "batch_size": 32, "lr": 0.4, "workers": 1, "print_every": 30}


def options(description):
    """The command line, but for the shards."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--arch", default="resnet50", choices=NETWORKS, help="the network (resnet50)")
    add("--size", type=int, default=224, help="width and height of the images that the network gets (224)")
    add("--augmentation", default="full", choices=["full", "simple"], help="random crops and flips, or the center only")
    add("--epochs", type=int, default=90, help="passes over the training images (90)")
    add("--batch-size", type=int, default=256, help="images in a step of each rank (256)")
    add("--lr", type=float, default=0.1, help="the largest learning rate, for 256 images in a step (0.1)")
    add("--momentum", type=float, default=0.9)
    add("--weight-decay", type=float, default=1e-4)
    most = min(4, os.cpu_count() or 1)
    add("--workers", type=int, default=most, help=f"workers that load images, on each rank ({most})")
    add("--seed", type=int, default=0, help="of the network's weights and of the order of the images (0)")
    add("--checkpoint", default="checkpoint.pt", metavar="FILE", help="where the training is saved (checkpoint.pt)")
    add("--save-every", type=int, default=1000, metavar="STEPS", help="save in the middle of an epoch, too (1000)")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--evaluate", action="store_true", help="only measure the accuracy of the checkpoint")
    add("--steps", type=int, default=-1, help="stop after this many steps, as if interrupted")
    add("--print-every", type=int, default=100, metavar="STEPS", help="a line in the log (100)")
    add("--tensorboard", metavar="FOLDER", help="write the figures for TensorBoard, too, if it is installed")
    add("--demo", action="store_true", help="train a small network on a small set of images, in a temporary folder")
    return parser


def parsed(parser, arguments):
    """The options; those of --demo unless others are given."""
    args = parser.parse_args(arguments)
    if args.demo:
        parser.set_defaults(**DEMO)
        args = parser.parse_args(arguments)
    for name in ("epochs", "batch_size", "size", "save_every", "print_every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.workers < 0:
        parser.error("--workers must be 0 or more")
    if args.demo:
        torch.set_num_threads(1)  # the network is too small to share among cores that also load
    return args


def augmentation(args):
    """What becomes of a training image: bytes to a tensor."""
    if args.augmentation == "full":
        return images.train(args.size, scale=(0.5, 1.0) if args.demo else (0.08, 1.0))
    return evaluation(args)


def evaluation(args):
    """What becomes of an image that is to be recognized."""
    return images.evaluate(args.size)


class Ranks:
    """The processes that torchrun started, or this one alone."""

    def __init__(self):
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)

    def __enter__(self):
        if self.world > 1:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        return self

    def __exit__(self, *exception):
        if self.world > 1:
            dist.destroy_process_group()

    def parallel(self, model):
        """The model, its gradients averaged over all ranks."""
        model = model.to(self.device)
        return torch.nn.parallel.DistributedDataParallel(model) if self.world > 1 else model

    def as_on_first(self, network):
        """The network as rank 0 has it, and saves it: batch statistics are those of each rank's own batches."""
        if self.world > 1:
            for buffer in network.buffers():
                dist.broadcast(buffer, 0)
        return network

    def total(self, *values):
        """The sum of each value over all ranks."""
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.world > 1:
            dist.all_reduce(sums)
        return sums.tolist()

    def wait_for_first(self, work):
        """Rank 0 does some work, the others wait for its result."""
        result = [work() if self.rank == 0 else None]
        if self.world > 1:
            dist.broadcast_object_list(result)
        return result[0]


class Job(NamedTuple):
    """What the steps of a training need."""

    args: argparse.Namespace
    ranks: Ranks
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    log: "Log"

    @property
    def images_in_step(self):
        """Over all ranks."""
        return self.args.batch_size * self.ranks.world

    @property
    def network(self):
        """The model itself, without what makes it parallel."""
        return getattr(self.model, "module", self.model)


class Log:
    """Lines on the first rank, and figures for TensorBoard if asked for."""

    def __init__(self, args, ranks):
        self.every, self.ranks, self.board = args.print_every, ranks, None
        if args.tensorboard and ranks.rank == 0:
            with contextlib.suppress(ImportError):
                from torch.utils.tensorboard import SummaryWriter

                self.board = SummaryWriter(args.tensorboard)
            if self.board is None:
                self.say("TensorBoard is not installed, its figures are left out: pip install tensorboard")

    def say(self, line):
        """Print on one rank."""
        if self.ranks.rank == 0:
            print(line, flush=True)

    def figures(self, step, **values):
        """For TensorBoard."""
        for name, value in values.items():
            if self.board is not None:
                self.board.add_scalar(name, value, step)

    def close(self):
        """Write what is left."""
        if self.board is not None:
            self.board.close()


def check_enough(args, loader):
    """A training without a single step is a mistake."""
    if len(loader) == 0:
        raise SystemExit(f"there are too few images for a batch of {args.batch_size} on every rank: see --batch-size")


class Stopwatch:
    """Times a loop: how long a step waits for its data, and how many images are done in a second."""

    def __init__(self):
        self.start_over()
        self.last = time.perf_counter()

    def start_over(self):
        """Forget what was measured."""
        self.waited = self.total = 0.0
        self.steps = self.images = 0

    def data_is_there(self):
        """The step's data has come."""
        self.waited += time.perf_counter() - self.last

    def step_is_done(self, images):
        """The step is over; the next one begins to wait for its data."""
        now = time.perf_counter()
        self.total += now - self.last
        self.last = now
        self.steps += 1
        self.images += images

    def __str__(self):
        rate = self.images / max(self.total, 1e-9)
        return f"{rate:.0f} images/s, waited {1000 * self.waited / max(self.steps, 1):.1f} ms for data per step"


def learning_rate(args, ranks, done):
    """A rate that grows in the first twentieth of the training and then falls to zero; `done` is from 0 to 1."""
    highest = args.lr * args.batch_size * ranks.world / 256
    return highest * min(done / 0.05, 0.5 * (1 + math.cos(math.pi * done)))


def class_list(shards):
    """The names of the classes, as makeshards.py wrote them beside the shards."""
    try:
        with wds.gopen(f"{shards}/classes.txt") as stream:
            return stream.read().decode().splitlines()
    except wds.MissingShardError:
        raise SystemExit(
            f"{shards} has no classes.txt: ./run makeshards makes shards, --shards says where they are"
        ) from None


def right_answers(outputs, labels):
    """For each image: whether the class is the best guess, and whether it is among the best five."""
    best = outputs.topk(min(5, outputs.shape[1]), dim=1).indices
    hits = best == labels[:, None]
    return hits[:, 0], hits.any(dim=1)


def save_checkpoint(job, **state):
    """Save on one rank, under another name first: a program that is killed now still has the checkpoint before."""
    if job.ranks.rank == 0:
        torch.save(state, job.args.checkpoint + ".new")
        os.replace(job.args.checkpoint + ".new", job.args.checkpoint)


def load(args):
    """The checkpoint."""
    if not os.path.exists(args.checkpoint):
        raise SystemExit(f"there is no checkpoint {args.checkpoint}: train without --resume and --evaluate first")
    return torch.load(args.checkpoint, map_location="cpu")
