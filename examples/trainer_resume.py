"""The Trainer of transformers on exact epochs: its checkpoints hold the loader's place, too.

python trainer_resume.py --demo

python tinydata.py
torchrun --nproc-per-node 2 trainer_resume.py --steps 4
torchrun --nproc-per-node 2 trainer_resume.py --resume
"""

import torch
from tinydata import make_loader, note, options, parsed
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState


class KeepPlace(TrainerCallback, ExportableState):
    """Keeps the loader's place in trainer_state.json, and takes it up when training goes on."""

    def __init__(self, place=None):
        self.place = place

    def state(self):
        """What the Trainer saves, and makes the callback of again."""
        return {"args": {"place": self.place}, "attributes": {}}

    def on_step_end(self, args, state, control, train_dataloader, **more):
        """A checkpoint may follow."""
        self.place = train_dataloader.state_dict()

    def on_train_begin(self, args, state, control, train_dataloader, **more):
        """Training begins, or goes on."""
        if self.place is not None:
            train_dataloader.load_state_dict(self.place)


def named(batch):
    """The batch as the arguments of the network."""
    return dict(zip(("numbers", "vectors", "labels"), batch, strict=True))


class Line(torch.nn.Module):
    """Learns a linear function."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, vectors, labels):
        """The Trainer wants the loss first."""
        return (torch.nn.functional.mse_loss(self.layer(vectors), labels),)


class ShardTrainer(Trainer):
    """A Trainer that gets its batches from a loader."""

    def __init__(self, options, **more):
        super().__init__(**more)
        self.options = options

    def get_train_dataloader(self):
        """The loader deals the samples to the ranks itself: nothing is to be prepared."""
        return make_loader(self.options).map(named)

    def training_step(self, model, inputs, *more):
        """As usual, and an account of it."""
        epoch = self.state.global_step // len(self.callback_handler.train_dataloader)
        note(self.options, epoch, inputs.pop("numbers"))
        return super().training_step(model, inputs, *more)


def main(arguments=None):
    """Train, or go on where the latest checkpoint was made."""
    with parsed(options(__doc__), arguments) as chosen:
        train(chosen)


def train(chosen):
    """Two epochs, unless it is interrupted."""
    args = TrainingArguments(
        chosen.folder,
        num_train_epochs=chosen.epochs,
        max_steps=chosen.steps,
        save_steps=chosen.every,
        ignore_data_skip=True,  # the loader goes on where it was: nothing is to be skipped
        restore_callback_states_from_checkpoint=True,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = ShardTrainer(chosen, model=Line(), args=args, callbacks=[KeepPlace()])
    trainer.train(resume_from_checkpoint=chosen.resume)
    print(f"{trainer.state.global_step} steps of {trainer.state.max_steps}")


if __name__ == "__main__":
    main()
