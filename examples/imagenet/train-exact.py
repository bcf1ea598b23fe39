"""Train on ImageNet with warm-up and a cosine schedule; a training that is interrupted goes on in mid-epoch.

    python train-exact.py --shards /data/shards
    torchrun --nproc-per-node 8 train-exact.py --shards s3://bucket/shards
    python train-exact.py --demo

makeshards.py makes the shards. An interrupted training may go on with other ranks, workers or batches: every image
still comes once in its epoch. main-wds.py is the plain program.
"""

import os
import tempfile

import makeshards
import torch
from demo_images import make_images
from resnets import NETWORKS
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


def make_train_loader(args, ranks):
    """Batches (images, labels) in a random order, some for each rank; and the number of images in an epoch."""
    shards = wds.WebDataset(args.trainshards or f"{args.shards}/imagenet-train.json", exact=True).catalogue
    shuffle_bytes = args.shuffle * int(shards.planned_sizes.sum()) // shards.total
    dataset = wds.WebDataset(shards, exact=True, seed=args.seed, shuffle_bytes=shuffle_bytes, remainder="drop")
    dataset = dataset.decode(augmentation(args)).to_tuple("jpg;png", "cls").batched(args.batch_size, partial=False)
    images, whole = shards.total, args.batch_size * ranks.world
    if args.trainsize:
        steps = max(1, args.trainsize // whole)
        dataset, images = dataset.with_epoch(steps), steps * whole
    return wds.WebLoader(dataset, batch_size=None, num_workers=args.workers, workers="thread"), images


def make_val_loader(args, ranks):
    """Batches (images, labels, whether an image counts): every image once over all ranks."""
    shards = args.valshards or f"{args.shards}/imagenet-val.json"
    dataset = wds.WebDataset(shards, exact=True, shuffle_bytes=0, remainder="uneven").decode(evaluation(args))
    dataset = dataset.to_tuple("jpg;png", "cls", "__real__").batched(args.batch_size)
    return wds.WebLoader(dataset, batch_size=None, num_workers=args.workers, workers="thread")


def run(args, ranks):
    """All epochs, each followed by an evaluation; the result is the last accuracy."""
    torch.manual_seed(args.seed)
    model = ranks.parallel(NETWORKS[args.arch](len(class_list(args.shards))))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, args.momentum, weight_decay=args.weight_decay)
    train_loader, images = make_train_loader(args, ranks)
    val_loader = make_val_loader(args, ranks)
    job = Job(args, ranks, model, optimizer, Log(args, ranks))
    check_enough(args, train_loader)
    first_epoch, step, left, accuracy = 0, 0, images, 0.0
    if args.resume or args.evaluate:
        saved = load(args)
        job.network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch = saved["epoch"]
    if args.resume:
        step, left = resume(job, train_loader, saved, images)
    if args.evaluate:
        return validate(job, val_loader, first_epoch, 0)
    for epoch in range(first_epoch, args.epochs):
        done = train(job, train_loader, epoch, step, left)
        if done == args.steps:
            break
        accuracy = validate(job, val_loader, epoch, done)
        step, left = 0, images
        save(job, train_loader, epoch + 1, step, left)
    job.log.close()
    return accuracy


def resume(job, loader, saved, images):
    """The loader goes on where it was saved; the result is how many steps of the epoch are done, and images are left.

    Steps may have another size now, so they are counted from the end of the epoch.
    """
    try:
        loader.load_state_dict(saved["loader"])
    except wds.StateError as error:
        raise SystemExit(f"{job.args.checkpoint}: {error}") from None
    if saved["step"] == 0:
        return 0, images
    return len(loader) - saved["left"] // job.images_in_step, saved["left"]


def train(job, loader, epoch, first, left):
    """The steps of an epoch after the first ones, with the images that are left; the result counts all steps so far."""
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
            save(job, loader, epoch, step, left - (step - first) * job.images_in_step)
        if done == args.steps:
            break
    return done


def save(job, loader, epoch, step, left):
    """Keep everything that a training needs to go on."""
    states = {"model": job.network.state_dict(), "optimizer": job.optimizer.state_dict(), "loader": loader.state_dict()}
    save_checkpoint(job, epoch=epoch, step=step, left=left, **states)


@torch.no_grad()
def validate(job, loader, epoch, done):
    """The share of images whose class is the best guess, and among the best five."""
    network = job.ranks.as_on_first(job.network).eval()  # ranks need not have as many batches here
    best = among = count = 0
    for images, labels, real in loader:
        first, five = right_answers(network(images.to(job.ranks.device)), labels.to(job.ranks.device))
        first, five, labels = first[real], five[real], labels[real]  # images that only fill up a batch do not count
        best, among, count = best + int(first.sum()), among + int(five.sum()), count + len(labels)
    best, among, count = job.ranks.total(best, among, count)
    job.log.say(f"epoch {epoch}: top-1 {best / count:.1%}, top-5 {among / count:.1%} of {count:.0f} images")
    job.log.figures(done, top1=best / count, top5=among / count)
    return best / count


if __name__ == "__main__":
    main()
