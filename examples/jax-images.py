"""Train a small network with JAX: batches are on their way to the device while it computes.

    python jax-images.py "/data/train-{000000..000099}.tar" --classes 10
    python jax-images.py --demo

No torch is needed: the workers are threads, and batches are numpy arrays of one size, as a compiled step wants them.
"""

import collections
from itertools import islice

import jax
import jax.numpy as jnp
from demos import image_shards, options, parsed

import webdataset as wds


def main(arguments=None):
    """Train; the result is the accuracy on the latest batches."""
    parser = options(__doc__, steps=1000, batch=64, size=64)
    parser.add_argument("--classes", type=int, default=10, help="how many classes there are (10)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (0.05)")
    with parsed(parser, arguments, image_shards, steps=80, batch=32, size=32) as args:
        return train(args)


def make_loader(args):
    """Batches (images, labels) of numpy arrays; images are N x H x W x 3."""
    recipe = wds.images.pipeline(
        wds.images.random_resized_crop(args.size, (0.5, 1.0)), wds.images.flip(), wds.images.normalize(), output="numpy"
    )
    rank = {"rank": jax.process_index(), "world_size": jax.process_count()}  # of all hosts that train together
    dataset = wds.WebDataset(args.shards, exact=True, seed=args.seed, **rank).decode(recipe)
    dataset = dataset.to_tuple("jpg;png", "cls").batched(args.batch, partial=False).repeat()
    return wds.WebLoader(dataset, batch_size=None, num_workers=args.workers, workers="thread", tensors=False)


def prefetched(batches, ahead=2):
    """The batches on the device; the transfer of the next ones has begun when one is used."""
    batches, waiting = iter(batches), collections.deque()
    for batch in islice(batches, ahead):
        waiting.append(jax.device_put(batch))  # returns at once
    while waiting:
        yield waiting.popleft()
        waiting.extend(jax.device_put(batch) for batch in islice(batches, 1))


def first_weights(key, classes):
    """Three convolutions and a layer of neurons."""
    keys = jax.random.split(key, 4)
    shapes = [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 64)]
    filters = [
        jax.random.normal(one, shape) * (2 / (9 * shape[2])) ** 0.5 for one, shape in zip(keys, shapes, strict=False)
    ]
    return {"filters": filters, "last": jax.random.normal(keys[3], (64, classes)) * 0.1, "bias": jnp.zeros(classes)}


def network(weights, images):
    """Images to one number for each class."""
    for each in weights["filters"]:
        images = jax.lax.conv_general_dilated(images, each, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        images = jax.nn.relu(images)
    return images.mean((1, 2)) @ weights["last"] + weights["bias"]


@jax.jit
def step(weights, speed, images, labels, rate):
    """One step of gradient descent with momentum: weights, speed, loss, share of right answers."""

    def loss_of(weights):
        outputs = network(weights, images)
        chances = jnp.take_along_axis(jax.nn.log_softmax(outputs), labels[:, None], axis=1)
        return -chances.mean(), (outputs.argmax(1) == labels).mean()

    (loss, right), slope = jax.value_and_grad(loss_of, has_aux=True)(weights)
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slope)
    return jax.tree.map(lambda w, v: w - rate * v, weights, speed), speed, loss, right


def train(args):
    """Some steps, with a line in the log now and then."""
    weights = first_weights(jax.random.key(args.seed), args.classes)
    speed = jax.tree.map(jnp.zeros_like, weights)
    answers = collections.deque(maxlen=20)
    batches = islice(prefetched(make_loader(args)), args.steps)
    for number, (images, labels) in enumerate(batches, 1):
        weights, speed, loss, right = step(weights, speed, images, labels, args.lr)
        answers.append(right)  # not looked at yet: that would wait for the device
        if number % max(1, args.steps // 10) == 0:
            accuracy = float(sum(answers)) / len(answers)
            print(f"step {number}/{args.steps}: loss {float(loss):.3f}, accuracy {accuracy:.1%}", flush=True)
    return float(sum(answers)) / len(answers)


if __name__ == "__main__":
    main()
