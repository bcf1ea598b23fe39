"""Train on many nodes without epochs: every rank reads an endless stream of randomly drawn shards.

    torchrun --nnodes 4 --nproc-per-node 8 ... ddp-stream.py "s3://bucket/train-{000000..001281}.tar" --classes 1000
    python ddp-stream.py --demo

No rank waits for another's data, none runs out of it, and shards need be neither equal nor as many as there are
workers: each worker of each rank draws shards with replacement, and training counts steps. Rank 0 measures the
accuracy on --val now and then. Restarted after a failure it goes on from the checkpoint, with new draws.
"""

import os
import time
from itertools import islice

import torch
import torch.distributed as dist
from demos import image_shards, options, parsed
from imagenet.resnets import NETWORKS
from tinydata import start_ranks
from torch.nn.parallel import DistributedDataParallel

import webdataset as wds


def main(arguments=None):
    """Train until the last step; the result is the last accuracy, on rank 0."""
    parser = options(__doc__, steps=100_000, batch=128, size=224)
    add = parser.add_argument
    add("--val", metavar="SHARDS", help="shards to measure the accuracy on, by rank 0")
    add("--val-every", type=int, default=2000, metavar="STEPS", help="how often (2000)")
    add("--arch", default="resnet50", choices=NETWORKS, help="the network (resnet50)")
    add("--classes", type=int, default=1000, help="how many classes there are (1000)")
    add("--lr", type=float, default=0.1, help="the learning rate at the beginning (0.1)")
    add("--shuffle", type=int, default=1000, help="samples to shuffle among, behind all workers of a rank (1000)")
    add("--checkpoint", default="stream.pt", help="saved when the accuracy is measured (stream.pt)")
    small = {"steps": 60, "batch": 16, "size": 32, "arch": "resnet10", "classes": 10, "val_every": 30, "lr": 0.05}
    with parsed(parser, arguments, image_shards, **small) as args:
        if args.demo:
            names = ("steps", "batch", "size", "arch", "classes", "val_every", "lr", "workers", "shuffle", "seed")
            words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
            where = ["--val", args.shards, "--checkpoint", os.path.join(os.path.dirname(args.shards), "stream.pt")]
            return start_ranks(__file__, [args.shards, *words, *where])
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        try:
            return train(args)
        finally:
            dist.destroy_process_group()


def make_loader(args):
    """Batches (images, labels), without end; each rank and worker draws shards of its own."""
    dataset = wds.WebDataset(args.shards, resampled=True, seed=args.seed).shuffle(100)
    dataset = dataset.decode(wds.images.train(args.size, scale=(0.4, 1.0), seed=args.seed)).to_tuple("jpg;png", "cls")
    loader = wds.WebLoader(dataset.batched(16), batch_size=None, num_workers=args.workers)
    return loader.unbatched().shuffle(args.shuffle).batched(args.batch, partial=False)  # mixes what the workers read


@torch.no_grad()
def accuracy_of(model, args):
    """The share of right answers; nothing here is distributed, the other ranks go on or wait."""
    dataset = wds.WebDataset(args.val, shardshuffle=False, nodesplitter=None).decode(wds.images.evaluate(args.size))
    batches = dataset.to_tuple("jpg;png", "cls").batched(args.batch)
    loader = wds.WebLoader(batches, batch_size=None, num_workers=args.workers, workers="thread")
    model.eval()
    right = [(model(images).argmax(1) == labels).float() for images, labels in loader]
    model.train()
    return torch.cat(right).mean().item()


def train(args):
    """Steps are all there is to count."""
    torch.manual_seed(args.seed)
    rank, world = dist.get_rank(), dist.get_world_size()
    network = NETWORKS[args.arch](args.classes)
    first, accuracy = 0, 0.0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location="cpu")
        network.load_state_dict(saved["model"])
        first = saved["step"]
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    began = time.perf_counter()
    for step, (images, labels) in enumerate(islice(make_loader(args), args.steps - first), first + 1):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * (1 - step / (args.steps + 1))
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % args.val_every == 0 or step == args.steps):
            rate = (step - first) * args.batch * world / (time.perf_counter() - began)
            accuracy = accuracy_of(network, args) if args.val else float("nan")
            line = f"loss {loss.item():.3f}, accuracy {accuracy:.1%}, {rate:.0f} images/s"
            print(f"step {step}/{args.steps}: {line}", flush=True)
            torch.save({"model": network.state_dict(), "step": step}, args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)
    return accuracy


if __name__ == "__main__":
    main()
