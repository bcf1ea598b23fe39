"""DistributedDataParallel on exact epochs, with checkpoints in the middle of an epoch.

python ddp.py --demo

python tinydata.py
torchrun --nproc-per-node 2 ddp.py
"""

import os

import torch
import torch.distributed as dist
from tinydata import make_loader, note, on_ranks, options, parsed
from torch.nn.parallel import DistributedDataParallel


def main(arguments=None):
    """Train, go on where the latest checkpoint was made, or evaluate."""
    parser = options(__doc__)
    parser.add_argument("--remainder", default="pad", choices=["pad", "drop"], help="how ranks get equal batches")
    with parsed(parser, arguments) as args:
        if args.demo:
            return on_ranks(__file__, args, "--remainder", args.remainder)
        dist.init_process_group("gloo")
        try:
            return train(args)
        finally:
            dist.destroy_process_group()


def train(args):
    """Steps are counted over all epochs."""
    loader = make_loader(args, remainder=args.remainder)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint, first, step = os.path.join(args.folder, "latest.pt"), 0, 0
    if args.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first, step = saved["loader"]["epoch"], saved["step"]
    for epoch in range(first, args.epochs):
        for numbers, vectors, values in loader:
            loss = torch.nn.functional.mse_loss(model(vectors), values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            note(args, epoch, numbers)
            if step % args.every == 0:
                save(checkpoint, model, optimizer, loader, step)
            if step == args.steps:
                return
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {step} steps of {len(loader) * args.epochs}")


def save(checkpoint, model, optimizer, loader, step):
    """One rank's state of the loader is enough: all ranks are at the same step."""
    if dist.get_rank() != 0:
        return
    os.makedirs(os.path.dirname(checkpoint), exist_ok=True)
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
    torch.save({**states, "step": step}, checkpoint + ".new")
    os.replace(checkpoint + ".new", checkpoint)


if __name__ == "__main__":
    main()
