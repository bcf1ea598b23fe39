"""Lightning on exact epochs: a checkpoint in the middle of an epoch holds the loader's place, too.

python lightning_resume.py --demo

python tinydata.py
torchrun --nproc-per-node 2 lightning_resume.py --steps 4
torchrun --nproc-per-node 2 lightning_resume.py --resume
"""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tinydata import make_loader, note, options, parsed


class Line(lightning.LightningModule):
    """Learns a linear function."""

    def __init__(self, args):
        super().__init__()
        self.args = args
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch):
        """Nothing here knows of shards."""
        numbers, vectors, values = batch
        note(self.args, self.current_epoch, numbers)
        return torch.nn.functional.mse_loss(self.layer(vectors), values)

    def configure_optimizers(self):
        """As usual."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(arguments=None):
    """Train, or go on where the latest checkpoint was made."""
    with parsed(options(__doc__), arguments) as args:
        train(args)


def train(args):
    """Two epochs, unless it is interrupted."""
    # the ranks have to be known before the loader is made: so the trainer comes first
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_epochs=args.epochs,
        max_steps=args.steps,
        callbacks=[ModelCheckpoint(args.folder, save_last=True, every_n_train_steps=args.every)],
        default_root_dir=args.folder,
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    last = os.path.join(args.folder, "last.ckpt")
    trainer.fit(Line(args), make_loader(args), ckpt_path=last if args.resume else None)
    print(f"{trainer.global_step} steps, {trainer.num_training_batches} in an epoch")


if __name__ == "__main__":
    main()
