"""Accelerate on exact epochs: save_state() in the middle of an epoch holds the loader's place, too.

python accelerate_resume.py --demo

python tinydata.py
torchrun --nproc-per-node 2 accelerate_resume.py --steps 4
torchrun --nproc-per-node 2 accelerate_resume.py --resume
"""

import torch
from accelerate import Accelerator
from tinydata import make_loader, note, options, parsed


class Progress:
    """Counts steps; Accelerate saves whatever has these two methods."""

    step = 0

    def state_dict(self):
        """What is saved."""
        return {"step": self.step}

    def load_state_dict(self, state):
        """What was saved."""
        self.step = state["step"]


def main(arguments=None):
    """Train, or go on where the latest checkpoint was made."""
    with parsed(options(__doc__), arguments) as args:
        train(args)


def train(args):
    """Two epochs, unless it is interrupted."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, make_loader(args))
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if args.resume:
        accelerator.load_state(args.folder)
    for epoch in range(loader.state_dict()["epoch"], args.epochs):
        for numbers, vectors, values in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(vectors), values)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            progress.step += 1
            note(args, epoch, numbers)
            if progress.step % args.every == 0:
                accelerator.save_state(args.folder)
            if progress.step == args.steps:
                break
        if progress.step == args.steps:
            break
    accelerator.print(f"{progress.step} steps, {len(loader)} in an epoch")
    accelerator.end_training()


if __name__ == "__main__":
    main()
