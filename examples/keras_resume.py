"""Keras on exact epochs: a callback keeps the loader's place beside the weights, and takes it up again.

python keras_resume.py --demo

python tinydata.py
KERAS_BACKEND=torch python keras_resume.py --steps 4
KERAS_BACKEND=torch python keras_resume.py --resume
"""

import json
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from tinydata import make_loader, note, options, parsed


class KeepPlace(keras.callbacks.Callback):
    """Saves weights and place every few steps; begins every epoch where it is to begin.

    fit() takes a first batch only to look at it. So the place is set when the epoch begins, and not before fit().
    """

    def __init__(self, loader, folder, every, resume=False):
        super().__init__()
        self.loader, self.folder, self.every = loader, folder, every
        self.place, self.step = None, 0
        if resume:
            with open(os.path.join(folder, "place.json")) as stream:
                self.place, self.step = json.load(stream)

    @property
    def initial_epoch(self):
        """The epoch that fit() is to begin with."""
        return self.place["epoch"] if self.place else 0

    def on_epoch_begin(self, epoch, logs=None):
        """Before the loader is read."""
        self.loader.set_epoch(epoch)
        if self.place is not None:
            self.model.load_weights(os.path.join(self.folder, "model.weights.h5"))
            self.loader.load_state_dict(self.place)
            self.place = None

    def on_train_batch_end(self, batch, logs=None):
        """After every step."""
        self.step += 1
        if self.step % self.every == 0:
            os.makedirs(self.folder, exist_ok=True)
            self.model.save_weights(os.path.join(self.folder, "model.weights.h5"))
            with open(os.path.join(self.folder, "place.json"), "w") as stream:
                json.dump([self.loader.state_dict(), self.step], stream)


class Stop(keras.callbacks.Callback):
    """Stops the training after some steps, as if it were interrupted."""

    def __init__(self, keep, steps):
        super().__init__()
        self.keep, self.steps = keep, steps

    def on_train_batch_end(self, batch, logs=None):
        """After every step."""
        self.model.stop_training = self.keep.step == self.steps


class Line(keras.Model):
    """Learns a linear function."""

    def __init__(self, args, keep):
        super().__init__()
        self.args, self.keep = args, keep
        self.layer = keras.layers.Dense(1)

    def call(self, vectors):
        """What fit() learns."""
        return self.layer(vectors)

    def train_step(self, data):
        """As usual, and an account of it."""
        vectors, values, numbers = data
        note(self.args, self.keep.step // len(self.keep.loader), numbers)
        return super().train_step((vectors, values))


def reordered(batch):
    """As Keras wants it: input, target, weights. Here the numbers are in the weights' place, for the account."""
    numbers, vectors, values = batch
    return vectors, values, numbers


def main(arguments=None):
    """Train, or go on where the latest checkpoint was made."""
    with parsed(options(__doc__), arguments) as args:
        train(args)


def train(args):
    """Two epochs, unless it is interrupted."""
    loader = make_loader(args).map(reordered)
    keep = KeepPlace(loader, args.folder, args.every, resume=args.resume)
    model = Line(args, keep)
    model.compile(loss="mse", optimizer="sgd")
    history = model.fit(
        loader,
        epochs=args.epochs,
        initial_epoch=keep.initial_epoch,
        callbacks=[keep, Stop(keep, args.steps)],
        verbose=0,
    )
    print(f"{keep.step} steps, {history.params['steps']} in an epoch")


if __name__ == "__main__":
    main()
