"""Evaluation on several ranks: every sample counts once, and no rank waits for another that has ended.

    python uneven.py --demo

    python tinydata.py
    torchrun --nproc-per-node 2 uneven.py

With remainder="uneven" all ranks get the same number of batches; what is repeated for that is marked. Here a network is
trained while it is measured, so that all ranks meet in every step.
"""

import torch
import torch.distributed as dist
from tinydata import note, numbers_vectors_values, on_ranks, options, parsed
from torch.nn.parallel import DistributedDataParallel

import webdataset as wds


def with_mask(sample):
    """Whether the sample counts on this rank, too."""
    return (*numbers_vectors_values(sample), sample["__real__"])


def main(arguments=None):
    """One pass, and the mean error over all samples."""
    with parsed(options(__doc__), arguments) as args:
        if args.demo:
            return on_ranks(__file__, args)
        dist.init_process_group("gloo")
        try:
            return evaluate(args)
        finally:
            dist.destroy_process_group()


def evaluate(args):
    """All ranks have the same number of batches."""
    dataset = wds.WebDataset(args.shards, exact=True, shuffle_bytes=0, remainder="uneven").decode().map(with_mask)
    loader = wds.WebLoader(dataset.batched(args.batch), batch_size=None, num_workers=args.workers)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = torch.zeros(2)
    for numbers, vectors, values, real in loader:
        errors = (model(vectors) - values).square().flatten() * real
        optimizer.zero_grad()
        errors.sum().backward()  # the ranks meet here
        optimizer.step()
        total += torch.stack([errors.sum().detach(), real.sum()])
        note(args, 0, numbers[real])
    dist.all_reduce(total)
    print(f"rank {dist.get_rank()}: {len(loader)} batches, {int(total[1])} samples, error {total[0] / total[1]:.3f}")


if __name__ == "__main__":
    main()
