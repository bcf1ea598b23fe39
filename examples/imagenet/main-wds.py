"""Train on ImageNet, or on any images in shards that makeshards.py made, with PyTorch and WebLoader.

    python main-wds.py -a resnet50 --shards /data/shards
    python main-wds.py -a resnet50 --multiprocessing-distributed --world-size 1 --rank 0 --shards s3://bucket/shards
    python main-wds.py -a resnet50 -e --resume model_best.pth.tar --shards /data/shards

After each epoch the training is saved in checkpoint.pth.tar, and the best one so far in model_best.pth.tar.
main-orig.py is the same program on class folders: `diff main-orig.py main-wds.py`.
"""

import argparse
import os
import random
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from resnets import resnet10
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

import webdataset as wds

try:
    from torchvision import datasets, models, transforms
except ImportError:
    from vision import datasets, models, transforms

NETWORKS = {
    name: each
    for name, each in vars(models).items()
    if name.islower() and callable(each) and not name.startswith(("_", "get_", "list_"))
} | {"resnet10": resnet10}
NORMALIZE = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def parse(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--loader", default="wds", choices=["wds", "orig"], help="read shards, or the folders of --data (wds)")
    add("--shards", metavar="URL", default="shards", help="the folder or url of the shards (shards)")
    add("--data", metavar="DIR", default="data", help="the folder of the images, for --loader orig (data)")
    add("--augmentation", default="full", choices=["full", "simple"], help="random crops and flips, or the center only")
    add(
        "-a",
        "--arch",
        metavar="ARCH",
        default="resnet18",
        choices=NETWORKS,
        help=f"one of {', '.join(sorted(NETWORKS))}",
    )
    add("-j", "--workers", type=int, default=4, metavar="N", help="processes that load images (4)")
    add("--epochs", type=int, default=90, metavar="N", help="passes over the images (90)")
    add("--start-epoch", type=int, default=0, metavar="N", help="number of the first epoch, to start again in between")
    add("-b", "--batch-size", type=int, default=256, metavar="N", help="over all GPUs of this machine (256)")
    add("--lr", "--learning-rate", type=float, default=0.1, metavar="LR", help="a tenth every 30 epochs (0.1)")
    add("--momentum", type=float, default=0.9, metavar="M")
    add("--wd", "--weight-decay", type=float, default=1e-4, metavar="W", dest="weight_decay")
    add("-p", "--print-freq", type=int, default=10, metavar="N", help="steps from line to line (10)")
    add("--resume", default="", metavar="PATH", help="go on from this checkpoint")
    add("-e", "--evaluate", action="store_true", help="only measure the accuracy on the validation images")
    add("--pretrained", action="store_true", help="begin with the weights that torchvision has")
    add("--size", type=int, default=224, metavar="N", help="width and height of the images, for small ones (224)")
    add("--world-size", type=int, default=-1, metavar="N", help="number of machines, or of all processes with env://")
    add("--rank", type=int, default=-1, metavar="N", help="number of this machine, or of this process")
    add("--dist-url", default="tcp://127.0.0.1:23456", metavar="URL", help="where they meet; env:// with torchrun")
    add("--dist-backend", default="nccl" if torch.cuda.is_available() else "gloo", metavar="NAME", help="nccl or gloo")
    add("--seed", type=int, help="make the training repeatable")
    add("--gpu", type=int, metavar="N", help="use this GPU alone")
    add("--multiprocessing-distributed", action="store_true", help="a process for each GPU of each machine")
    add("--dummy", action="store_true", help="train on noise, to measure without reading images")
    args = parser.parse_args(arguments)
    if args.multiprocessing_distributed and (args.world_size < 1 or args.rank < 0):
        parser.error("--multiprocessing-distributed needs --world-size and --rank; on one machine these are 1 and 0")
    if args.pretrained and NETWORKS[args.arch].__module__ == "resnets":
        parser.error("--pretrained needs torchvision, and a network of it")
    return args


def main(arguments=None):
    """Train or evaluate, in this process or in one for each GPU."""
    args = parse(arguments)
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ.get("WORLD_SIZE", "1"))
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    processes = max(1, torch.cuda.device_count())
    if args.multiprocessing_distributed:
        args.world_size *= processes
        mp.spawn(main_worker, nprocs=processes, args=(processes, args))
        return
    try:
        main_worker(args.gpu, processes, args)
    except FileNotFoundError as error:
        sys.exit(f"{os.path.basename(__file__)}: {error}; name the folder of the shards, --shards")


def main_worker(gpu, processes, args):
    """What one process does."""
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        torch.backends.cudnn.deterministic = True
    args.device = choose_device(gpu, args)
    if args.distributed:
        join_processes(gpu, processes, args)
    print(f"=> {'using pre-trained' if args.pretrained else 'creating'} model '{args.arch}'")
    network = NETWORKS[args.arch](**({"weights": "DEFAULT"} if args.pretrained else {})).to(args.device)
    model = parallel(network, args)
    tested = network if args.distributed else model  # processes need not have as many batches to test with
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    best_acc1 = resume(args, network, optimizer, scheduler) if args.resume else 0.0

    if args.loader == "wds" and not args.dummy:
        train_loader, val_loader = make_train_loader_wds(args), make_val_loader_wds(args)
    else:
        train_loader, val_loader = make_train_loader_orig(args), make_val_loader_orig(args)
    if args.evaluate:
        validate(val_loader, tested, args)
        return
    for epoch in range(args.start_epoch, args.epochs):
        if hasattr(train_loader, "set_epoch"):
            train_loader.set_epoch(epoch)
        elif args.distributed:
            train_loader.sampler.set_epoch(epoch)
        train(train_loader, model, optimizer, epoch, args)
        acc1 = validate(val_loader, tested, args)
        scheduler.step()
        is_best, best_acc1 = acc1 > best_acc1, max(acc1, best_acc1)
        if not args.distributed or args.rank % processes == 0:
            state = {"epoch": epoch + 1, "arch": args.arch, "state_dict": network.state_dict(), "best_acc1": best_acc1}
            state |= {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
            save_checkpoint(state, is_best)


# -- data ------------------------------------------------------------------------------------------


def train_transform(args):
    """What becomes of a training image."""
    if args.augmentation == "simple":
        return val_transform(args)
    steps = [transforms.RandomResizedCrop(args.size), transforms.RandomHorizontalFlip()]
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(**NORMALIZE)])


def val_transform(args):
    """What becomes of a validation image."""
    steps = [transforms.Resize(args.size * 256 // 224), transforms.CenterCrop(args.size)]
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(**NORMALIZE)])


def make_train_loader_wds(args):
    """Batches (images, labels) in a random order, as many for each process."""
    dataset = make_dataset_wds(args, "train", train_transform(args), seed=args.seed or 0)
    return wds.WebLoader(dataset, batch_size=None, num_workers=args.workers)


def make_val_loader_wds(args):
    """Batches (images, labels), every image once over all processes."""
    dataset = make_dataset_wds(args, "val", val_transform(args), shuffle_bytes=0, remainder="uneven")
    return wds.WebLoader(dataset, batch_size=None, num_workers=args.workers)


def make_dataset_wds(args, split, transform, **options):
    """Batches of the shards of a split; each process gets its share of them without a sampler."""
    dataset = wds.WebDataset(f"{args.shards}/imagenet-{split}.json", exact=True, **options)
    dataset = dataset.decode("pil").to_tuple("jpg;png", "cls").map_tuple(transform, None)
    return dataset.batched(args.batch_size)


def make_train_loader_orig(args):
    """Batches (images, labels) in a random order, as many for each process."""
    dataset = make_dataset(args, "train", train_transform(args), 1281167)
    sampler = DistributedSampler(dataset) if args.distributed else None
    options = {"num_workers": args.workers, "pin_memory": torch.cuda.is_available()}
    return DataLoader(dataset, args.batch_size, shuffle=sampler is None, sampler=sampler, **options)


def make_val_loader_orig(args):
    """Batches (images, labels), every image once over all processes."""
    dataset = make_dataset(args, "val", val_transform(args), 50000)
    if args.distributed:
        dataset = Subset(dataset, range(args.rank, len(dataset), args.world_size))
    options = {"num_workers": args.workers, "pin_memory": torch.cuda.is_available()}
    return DataLoader(dataset, args.batch_size, **options)


def make_dataset(args, split, transform, size):
    """The images of a split, or as many of noise."""
    if args.dummy:
        print("=> Dummy data is used!")
        return datasets.FakeData(size, (3, args.size, args.size), 1000, transforms.ToTensor())
    return datasets.ImageFolder(os.path.join(args.data, split), transform)


# -- training --------------------------------------------------------------------------------------


def train(loader, model, optimizer, epoch, args):
    """The steps of an epoch."""
    batch_time, data_time = Meter("Time", ":6.3f"), Meter("Data", ":6.3f")
    losses, top1, top5 = Meter("Loss", ":.4e"), Meter("Acc@1", ":6.2f"), Meter("Acc@5", ":6.2f")
    model.train()
    last = time.perf_counter()
    for step, (images, target) in enumerate(loader, 1):
        images, target = images.to(args.device, non_blocking=True), target.to(args.device, non_blocking=True)
        data_time.update(time.perf_counter() - last)
        output = model(images)
        loss = nn.functional.cross_entropy(output, target)
        acc1, acc5 = accuracy(output, target)
        losses.update(loss.item(), len(images))
        top1.update(acc1, len(images))
        top5.update(acc5, len(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.perf_counter() - last)
        last = time.perf_counter()
        if (step - 1) % args.print_freq == 0:
            show(f"Epoch: [{epoch}]", step, len(loader), batch_time, data_time, losses, top1, top5)


@torch.no_grad()
def validate(loader, model, args):
    """The share of images whose class is the best guess, in percent; the log has that among the best five, too."""
    batch_time, losses = Meter("Time", ":6.3f"), Meter("Loss", ":.4e")
    top1, top5 = Meter("Acc@1", ":6.2f"), Meter("Acc@5", ":6.2f")
    model.eval()
    if args.distributed:
        for buffer in model.buffers():  # each process has the statistics of its own batches
            dist.broadcast(buffer, 0)
    last = time.perf_counter()
    for step, (images, target) in enumerate(loader, 1):
        images, target = images.to(args.device, non_blocking=True), target.to(args.device, non_blocking=True)
        output = model(images)
        acc1, acc5 = accuracy(output, target)
        losses.update(nn.functional.cross_entropy(output, target).item(), len(images))
        top1.update(acc1, len(images))
        top5.update(acc5, len(images))
        batch_time.update(time.perf_counter() - last)
        last = time.perf_counter()
        if (step - 1) % args.print_freq == 0:
            show("Test: ", step, len(loader), batch_time, losses, top1, top5)
    if args.distributed:
        for meter in (losses, top1, top5):
            meter.add_up(args.device)
    print(f" * Acc@1 {top1.average:.3f} Acc@5 {top5.average:.3f}", flush=True)
    return top1.average


def accuracy(output, target):
    """The percentages of images whose class is the best guess, and among the best five."""
    hits = output.topk(5, dim=1).indices == target[:, None]
    return 100 * hits[:, 0].float().mean().item(), 100 * hits.any(dim=1).float().mean().item()


class Meter:
    """A figure of the log: its latest value and its average."""

    def __init__(self, name, form):
        self.name, self.form = name, form
        self.latest = self.total = self.count = 0

    def update(self, value, count=1):
        """A value that is the average of so many."""
        self.latest = value
        self.total += value * count
        self.count += count

    def add_up(self, device):
        """The average becomes that of all processes."""
        both = torch.tensor([self.total, self.count], dtype=torch.float64, device=device)
        dist.all_reduce(both)
        self.total, self.count = both.tolist()

    @property
    def average(self):
        """Of all values so far."""
        return self.total / max(1, self.count)

    def __str__(self):
        return f"{self.name} {{{self.form}}} ({{{self.form}}})".format(self.latest, self.average)


def show(where, step, steps, *meters):
    """A line of the log."""
    print("\t".join([f"{where}[{step:{len(str(steps))}}/{steps}]", *map(str, meters)]), flush=True)


# -- processes and checkpoints -----------------------------------------------------------------------


def choose_device(gpu, args):
    """The GPU of this process, or the CPU if there is none."""
    if not torch.cuda.is_available():
        print("using CPU, this will be slow")
        return torch.device("cpu")
    if gpu is None and args.distributed:
        gpu = int(os.environ.get("LOCAL_RANK", "0"))
    if gpu is not None:
        torch.cuda.set_device(gpu)
    return torch.device("cuda")


def join_processes(gpu, processes, args):
    """Meet the other processes; each has its part of the machine's batch and workers."""
    if args.dist_url == "env://" and args.rank == -1:
        args.rank = int(os.environ.get("RANK", "0"))
    if args.multiprocessing_distributed:
        args.rank = args.rank * processes + gpu
    dist.init_process_group(args.dist_backend, args.dist_url, world_size=args.world_size, rank=args.rank)
    args.batch_size = max(1, args.batch_size // processes)
    args.workers = -(-args.workers // processes)


def parallel(network, args):
    """The network on all processes, or on all GPUs of this one."""
    if args.distributed:
        return DistributedDataParallel(network)
    if args.device.type == "cuda" and args.gpu is None:
        return nn.DataParallel(network)
    return network


def resume(args, network, optimizer, scheduler):
    """Load a checkpoint; the result is the best accuracy so far."""
    if not os.path.isfile(args.resume):
        print(f"=> no checkpoint found at '{args.resume}'")
        return 0.0
    print(f"=> loading checkpoint '{args.resume}'")
    saved = torch.load(args.resume, map_location="cpu")
    args.start_epoch = saved["epoch"]
    network.load_state_dict({name.removeprefix("module."): value for name, value in saved["state_dict"].items()})
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    print(f"=> loaded checkpoint '{args.resume}' (epoch {saved['epoch']})")
    return float(saved["best_acc1"])


def save_checkpoint(state, is_best, path="checkpoint.pth.tar"):
    """Save under another name first: a program that is killed now still has the checkpoint before."""
    torch.save(state, f"{path}.{os.getpid()}")
    os.replace(f"{path}.{os.getpid()}", path)
    if is_best:
        shutil.copyfile(path, "model_best.pth.tar")


if __name__ == "__main__":
    main()
