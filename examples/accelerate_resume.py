"""Accelerate on exact epochs: save_state() in the middle of an epoch holds the loader's place, too.

    python tinydata.py
    torchrun --nproc-per-node 2 accelerate_resume.py --steps 4
    torchrun --nproc-per-node 2 accelerate_resume.py --resume
"""

import torch
from accelerate import Accelerator
from tinydata import make_loader, note, options


def main(arguments=None):
    """Train, or go on where the latest checkpoint was made."""
    args = options(__doc__).parse_args(arguments)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, make_loader(args))
    first = step = 0
    if args.resume:
        accelerator.load_state(args.folder)
        first, step = loader.state_dict()["epoch"], accelerator.step
    for epoch in range(first, args.epochs):
        for numbers, vectors, values in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(vectors), values)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            note(args, epoch, numbers)
            if step % args.every == 0:
                accelerator.save_state(args.folder)
            if step == args.steps:
                break
        if step == args.steps:
            break
    accelerator.print(f"{step} steps, {len(loader)} in an epoch")
    accelerator.end_training()


if __name__ == "__main__":
    main()
