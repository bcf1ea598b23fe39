"""Train a ResNet-50 with PyTorch on shards of images, wherever they are.

    python3 pytorch-resnet50.py "/data/imagenet-train-{000000..001281}.tar"
    python3 pytorch-resnet50.py "http://server/imagenet-train-{000000..001281}.tar" --http-proxy http://cache:3128
    python3 pytorch-resnet50.py "s3://bucket/imagenet-train-{000000..001281}.tar"
    python3 pytorch-resnet50.py "gs://bucket/imagenet-train-{000000..001281}.tar"
    python3 pytorch-resnet50.py --demo

Samples have an image (jpg, jpeg or png) and the number of its class (cls). imagenet/main-wds.py is the program for the
real thing: with evaluation, checkpoints and several GPUs.
"""

import time
from itertools import islice

import environment

environment.needs("torch", "webdataset")

import torch
from demos import image_shards, options, parsed
from imagenet.resnets import resnet50

import webdataset as wds


def main(arguments=None):
    """Train; the result is the last loss."""
    parser = options(__doc__, steps=5000, batch=64, size=224)
    parser.add_argument("--classes", type=int, default=1000, help="how many classes there are (1000)")
    parser.add_argument("--http-proxy", metavar="URL", help="the web proxy, or cache, to read through")
    parser.add_argument("--lr", type=float, default=0.001, help="the largest learning rate (0.001)")
    parser.add_argument("--warmup", type=int, default=500, help="steps in which the learning rate grows to --lr (500)")
    parser.add_argument(
        "--augmentation", default="full", choices=["full", "simple"], help="random crops and flips, or none"
    )
    small = {"steps": 50, "batch": 16, "size": 32, "classes": 10, "warmup": 10, "augmentation": "simple"}
    with parsed(parser, arguments, image_shards, **small) as args:
        return train(args)


def make_loader(args):
    """Batches (images, labels), without end."""
    dataset = wds.WebDataset(args.shards, shardshuffle=1000, seed=args.seed, proxy=args.http_proxy).shuffle(5000)
    decoder = wds.images.train(args.size) if args.augmentation == "full" else wds.images.evaluate(args.size)
    dataset = dataset.decode(decoder).to_tuple("jpg;jpeg;png", "cls")
    batches = dataset.repeat().batched(args.batch, partial=False)
    return wds.WebLoader(batches, batch_size=None, num_workers=args.workers, workers="thread")


def train(args):
    """Some steps, with a line in the log now and then."""
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = resnet50(args.classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    began = time.perf_counter()
    for step, (images, labels) in enumerate(islice(make_loader(args), args.steps), 1):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, step / max(1, args.warmup))
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 20) == 0:
            rate = step * args.batch / (time.perf_counter() - began)
            print(f"step {step}/{args.steps}: loss {loss.item():.3f}, {rate:.0f} images/s", flush=True)
    return loss.item()


if __name__ == "__main__":
    main()
