"""Train a ResNet-50 with Keras on shards of images, wherever they are.

    python3 keras-resnet50.py "/data/imagenet-train-{000000..001281}.tar"
    python3 keras-resnet50.py "http://server/imagenet-train-{000000..001281}.tar" --http-proxy http://cache:3128
    KERAS_BACKEND=jax python3 keras-resnet50.py "gs://bucket/imagenet-train-{000000..001281}.tar"
    python3 keras-resnet50.py --demo

Keras 3 runs on torch, unless KERAS_BACKEND says tensorflow or jax. Samples have an image (jpg, jpeg or png) and the
number of its class (cls).
"""

import os

import environment

os.environ.setdefault("KERAS_BACKEND", "torch")
environment.needs("keras", "webdataset")

import keras
from demos import image_shards, options, parsed

import webdataset as wds


def main(arguments=None):
    """Train; the result is the last loss."""
    parser = options(__doc__, steps=5000, batch=64, size=224)
    parser.add_argument("--classes", type=int, default=1000, help="how many classes there are (1000)")
    parser.add_argument("--epochs", type=int, default=1, help="how often Keras reports; each is --steps long (1)")
    parser.add_argument("--http-proxy", metavar="URL", help="the web proxy, or cache, to read through")
    parser.add_argument("--lr", type=float, default=0.025, help="learning rate (0.025)")
    small = {"steps": 10, "batch": 8, "size": 32, "classes": 10, "lr": 0.01, "epochs": 2}
    with parsed(parser, arguments, image_shards, **small) as args:
        return train(args)


def batches(args):
    """Pairs (images, labels) of arrays without end; images are N x H x W x 3, as all backends want them."""
    steps = (wds.images.random_resized_crop(args.size), wds.images.flip(), wds.images.normalize())
    dataset = wds.WebDataset(args.shards, shardshuffle=1000, seed=args.seed, proxy=args.http_proxy).shuffle(5000)
    dataset = dataset.decode(wds.images.pipeline(*steps, output="numpy")).to_tuple("jpg;jpeg;png", "cls")
    dataset = dataset.repeat().batched(args.batch, partial=False)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=args.workers, workers="thread")
    yield from map(tuple, loader)  # Keras takes no lists


def train(args):
    """Keras counts steps, since the stream has no end."""
    keras.utils.set_random_seed(args.seed)
    model = keras.applications.ResNet50(weights=None, input_shape=(args.size, args.size, 3), classes=args.classes)
    optimizer = keras.optimizers.SGD(args.lr, momentum=0.9)
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(batches(args), steps_per_epoch=args.steps, epochs=args.epochs, shuffle=False, verbose=2)
    loss = history.history["loss"][-1]
    print(f"loss {loss:.3f} with the {keras.backend.backend()} backend")
    return loss


if __name__ == "__main__":
    main()
