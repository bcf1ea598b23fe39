"""Exact epochs without torch: threads, numpy batches, a state beside the weights. JAX takes such batches as well.

python numpy_loop.py --demo

python tinydata.py
python numpy_loop.py --steps 4
python numpy_loop.py --resume
"""

import json
import os

import numpy as np
from tinydata import make_loader, note, options, parsed


def main(arguments=None):
    """Train, or go on where the latest checkpoint was made."""
    with parsed(options(__doc__), arguments) as args:
        train(args)


def train(args):
    """Two epochs, unless it is interrupted."""
    args.threads = True
    # with JAX: rank=jax.process_index(), world_size=jax.process_count()
    loader = make_loader(args, tensors=False, rank=0, world_size=1)
    weights, step = np.zeros((4, 1), "float32"), 0
    checkpoint = os.path.join(args.folder, "latest.json")
    if args.resume:
        with open(checkpoint) as stream:
            saved = json.load(stream)
        weights, step = np.array(saved["weights"], "float32"), saved["step"]
        loader.load_state_dict(saved["loader"])
    for epoch in range(loader.state_dict()["epoch"], args.epochs):
        for numbers, vectors, values in loader:
            weights = weights - 0.1 * vectors.T @ (vectors @ weights - values) / len(vectors)
            step += 1
            note(args, epoch, numbers)
            if step % args.every == 0:
                save(checkpoint, {"weights": weights.tolist(), "step": step, "loader": loader.state_dict()})
            if step == args.steps:
                return
    print(f"{step} steps, {len(loader)} in an epoch")


def save(path, content):
    """All of it or nothing, whenever the program is killed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w") as stream:
        json.dump(content, stream)
    os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
