"""Train on ImageNet, or on any images in shards that makeshards.py made, with PyTorch and WebLoader.

    python main-wds.py --shards /data/shards
    torchrun --nproc-per-node 8 main-wds.py --shards s3://bucket/shards
    python main-wds.py --demo

main-orig.py is the same program on class folders: `diff main-orig.py main-wds.py` shows what has changed.
"""

import os
import tempfile

import makeshards
import torch
from demo_images import make_images
from folders import EpochSampler, FolderImages
from resnets import NETWORKS
from torch.utils.data import DataLoader
from training import (
    Job,
    Log,
    Ranks,
    Stopwatch,
    augmentation,
    check_enough,
    class_list,
    evaluation,
    learning_rate,
    load,
    options,
    parsed,
    right_answers,
    save_checkpoint,
)

import webdataset as wds


def main(arguments=None):
    """Train, go on where the latest checkpoint was made, or evaluate."""
    parser = options(__doc__)
    add = parser.add_argument
    add("--loader", default="wds", choices=["wds", "orig"], help="read shards, or the folders of --data (wds)")
    add("--shards", default="shards", metavar="URL", help="the folder or url with the shards (shards)")
    add("--trainshards", metavar="URLS", help="the training shards, if others: braces, a glob or a catalogue")
    add("--valshards", metavar="URLS", help="the validation shards, if others")
    add("--trainsize", type=int, default=0, metavar="N", help="images in an epoch, over all ranks (all there are)")
    add("--shuffle", type=int, default=5000, metavar="N", help="images to shuffle among, over all ranks (5000)")
    args = parsed(parser, arguments)
    with Ranks() as ranks, tempfile.TemporaryDirectory() as folder:
        if args.demo:
            prepare_demo(args, ranks, folder)
        return run(args, ranks)


def prepare_demo(args, ranks, folder):
    """Small images, in a folder that is removed in the end."""
    args.data, args.checkpoint = ranks.wait_for_first(lambda: [f"{folder}/data", f"{folder}/checkpoint.pt"])
    args.shards = os.path.join(args.data, "shards")
    ranks.wait_for_first(lambda: make_images(args.data))
    words = ["--data", args.data, "--shards", args.shards, "--maxcount", "250", "--jobs", "1", "--quiet"]
    ranks.wait_for_first(lambda: makeshards.main(words))


def make_train_loader_wds(args, ranks):
    """Batches (images, labels) in a random order, some for each rank."""
    shards = wds.WebDataset(args.trainshards or f"{args.shards}/imagenet-train.json", exact=True).catalogue
    shuffle_bytes = args.shuffle * int(shards.planned_sizes.sum()) // shards.total
    dataset = wds.WebDataset(shards, exact=True, seed=args.seed, shuffle_bytes=shuffle_bytes, remainder="drop")
    dataset = dataset.decode(augmentation(args)).to_tuple("jpg;png", "cls").batched(args.batch_size, partial=False)
    if args.trainsize:
        dataset = dataset.with_epoch(max(1, args.trainsize // (args.batch_size * ranks.world)))
    return wds.WebLoader(dataset, batch_size=None, num_workers=args.workers, workers="thread")


def make_val_loader_wds(args, ranks):
    """Batches (images, labels, whether an image counts): every image once over all ranks."""
    shards = args.valshards or f"{args.shards}/imagenet-val.json"
    dataset = wds.WebDataset(shards, exact=True, shuffle_bytes=0, remainder="uneven").decode(evaluation(args))
    dataset = dataset.to_tuple("jpg;png", "cls", "__real__").batched(args.batch_size)
    return wds.WebLoader(dataset, batch_size=None, num_workers=args.workers, workers="thread")


def make_train_loader_orig(args, ranks):
    """Batches (images, labels) in a random order, some for each rank."""
    dataset = FolderImages(os.path.join(args.data, "train"), augmentation(args))
    sampler = EpochSampler(len(dataset), ranks, args.batch_size, args.seed)
    return DataLoader(dataset, args.batch_size, sampler=sampler, num_workers=args.workers, drop_last=True)


def make_val_loader_orig(args, ranks):
    """Batches (images, labels), every image once over all ranks."""
    dataset = FolderImages(os.path.join(args.data, "val"), evaluation(args))
    mine = range(ranks.rank, len(dataset), ranks.world)
    return DataLoader(dataset, args.batch_size, sampler=mine, num_workers=args.workers)


def number_of_classes(args):
    """As many as the training images have."""
    if args.loader == "wds":
        return len(class_list(args.shards))
    return len(FolderImages(os.path.join(args.data, "train"), None).classes)


def run(args, ranks):
    """All epochs, each followed by an evaluation; the result is the last accuracy."""
    torch.manual_seed(args.seed)
    model = ranks.parallel(NETWORKS[args.arch](number_of_classes(args)))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, args.momentum, weight_decay=args.weight_decay)
    job = Job(args, ranks, model, optimizer, Log(args, ranks))
    if args.loader == "wds":
        train_loader, val_loader = make_train_loader_wds(args, ranks), make_val_loader_wds(args, ranks)
    else:
        train_loader, val_loader = make_train_loader_orig(args, ranks), make_val_loader_orig(args, ranks)
    check_enough(args, train_loader)
    first_epoch, step, accuracy = 0, 0, 0.0
    if args.resume or args.evaluate:
        saved = load(args)
        job.network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch, step = saved["epoch"], saved["step"] * saved["world"] // ranks.world
        if args.loader == "wds" and args.resume:
            train_loader.load_state_dict(saved["loader"])
    if args.evaluate:
        return validate(job, val_loader, first_epoch, 0)
    for epoch in range(first_epoch, args.epochs):
        if args.loader == "orig":
            train_loader.sampler.set_place(epoch, step)
        done = train(job, train_loader, epoch, step)
        if done == args.steps:
            break
        accuracy = validate(job, val_loader, epoch, done)
        step = 0
        save(job, train_loader, epoch + 1, 0)
    job.log.close()
    return accuracy


def train(job, loader, epoch, first):
    """The steps of an epoch from the first on; the result is the number of steps since the training began."""
    args, ranks, model, optimizer, log = job
    model.train()
    steps, watch = len(loader), Stopwatch()
    done = epoch * steps + first
    for step, (images, labels) in enumerate(loader, first + 1):
        watch.data_is_there()
        images, labels = images.to(ranks.device), labels.to(ranks.device)
        rate = learning_rate(args, ranks, done / (args.epochs * steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done = epoch * steps + step
        watch.step_is_done(len(labels) * ranks.world)
        if step % log.every == 0 or step == steps:
            log.say(f"epoch {epoch} step {step}/{steps}: loss {loss.item():.3f}, {watch}")
            log.figures(done, loss=loss.item(), rate=rate)
            watch.start_over()
        if step % args.save_every == 0:
            save(job, loader, epoch, step)
        if done == args.steps:
            break
    return done


def save(job, loader, epoch, step):
    """Keep everything that a training needs to go on."""
    states = {"model": job.network.state_dict(), "optimizer": job.optimizer.state_dict()}
    if job.args.loader == "wds":
        states["loader"] = loader.state_dict()
    save_checkpoint(job, epoch=epoch, step=step, **states)


@torch.no_grad()
def validate(job, loader, epoch, done):
    """The share of images whose class is the best guess, and among the best five."""
    network = job.ranks.as_on_first(job.network).eval()  # ranks need not have as many batches here
    best = among = count = 0
    for images, labels, *real in loader:
        first, five = right_answers(network(images.to(job.ranks.device)), labels.to(job.ranks.device))
        if real:  # images that only fill up a batch do not count
            first, five, labels = first[real[0]], five[real[0]], labels[real[0]]
        best, among, count = best + int(first.sum()), among + int(five.sum()), count + len(labels)
    best, among, count = job.ranks.total(best, among, count)
    job.log.say(f"epoch {epoch}: top-1 {best / count:.1%}, top-5 {among / count:.1%} of {count:.0f} images")
    job.log.figures(done, top1=best / count, top5=among / count)
    return best / count


if __name__ == "__main__":
    main()
