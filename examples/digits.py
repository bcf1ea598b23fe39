"""Train a network on scanned digits that arrive as tar shards over HTTP: `./run demo`.

The 1,797 digits come with scikit-learn. They are written as shards (png + cls + json per sample), served by a
web server on this machine, and read back through `WebDataset` while a small network learns from them: with PyTorch
if it is installed, else with numpy.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import importlib.util
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import webdataset as wds

TEST_DIGITS = 300
SHARD_DIGITS = 250
BATCH = 64

THREE_LINES = """
    dataset = wds.WebDataset(urls, shardshuffle=100).shuffle(1000).decode("l").to_tuple("png", "cls").batched(64)
    for images, labels in {loader}:
        network.learn(images, labels)
"""


def main() -> int:
    options = parse()
    print("WebLoader demo: 1,797 scanned digits of 8 x 8 pixels, from scikit-learn\n")
    with tempfile.TemporaryDirectory(prefix="digits-") as folder, served(folder) as address:
        train_names, test_names = write_digits(folder)
        bytes_written = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
        shards = len(train_names) + len(test_names)
        print(f"wrote    {shards} tar shards, {bytes_written / 1e6:.1f} MB, in {folder}")
        print(f"serving  {address}/{train_names[0]} ...")
        network = make_network(options.numpy)
        print(f"training {network.name}, {options.epochs} epochs")
        train_urls = [f"{address}/{name}" for name in train_names]
        train(network, train_urls, options)
        accuracy = evaluate(network, [f"{address}/{name}" for name in test_names])
        rate = input_rate(train_urls)
    print(f"\naccuracy   {accuracy:.1%} on {TEST_DIGITS} digits the network never saw")
    print(f"input rate {rate:,.0f} samples/s: fetched over HTTP, shuffled, decoded, batched")
    loader = f"wds.WebLoader(dataset, batch_size=None, num_workers={options.workers})"
    print("\nThe three lines that did it:")
    print(THREE_LINES.format(loader=loader if network.has_torch else "dataset"), end="")
    return 0 if accuracy > 0.9 else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run demo", description="Train a small network on digits served over HTTP.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training digits (20)")
    parser.add_argument("--workers", type=int, default=2, help="processes that load while PyTorch trains (2)")
    parser.add_argument("--numpy", action="store_true", help="use the numpy network even if PyTorch is installed")
    parser.add_argument("--demo", action="store_true", help="nothing else: this program is a demo")
    options = parser.parse_args()
    if options.epochs < 1 or options.workers < 0:
        parser.error("--epochs must be at least 1, --workers at least 0")
    return options


# -- the data --------------------------------------------------------------------------------------


def write_digits(folder: str) -> tuple[list[str], list[str]]:
    """Write the digits as shards, in an order of no meaning, and return the names of the training and test shards."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = list(range(len(digits.images)))
    random.Random(0).shuffle(order)
    for split, chosen in (("test", order[:TEST_DIGITS]), ("train", order[TEST_DIGITS:])):
        pattern = os.path.join(folder, f"digits-{split}-%03d.tar")
        with wds.ShardWriter(pattern, maxcount=SHARD_DIGITS, verbose=0) as writer:
            for index in chosen:
                image = (digits.images[index] * (255 / 16)).astype(np.uint8)
                label = int(digits.target[index])
                origin = {"source": "scikit-learn", "index": index}
                writer.write({"__key__": f"{index:04d}", "png": image, "cls": label, "json": origin})
    names = sorted(os.listdir(folder))
    return [name for name in names if "train" in name], [name for name in names if "test" in name]


@contextmanager
def served(folder: str) -> Iterator[str]:
    """A web server for the folder, on a free port of the loopback interface."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# -- the training ----------------------------------------------------------------------------------


def train(network: Any, urls: list[str], options: argparse.Namespace) -> None:
    """Learn from all digits, several times over, each time in another order."""
    dataset = training_data(urls)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=options.workers) if network.has_torch else dataset
    progress = Progress(options.epochs)
    for epoch in range(options.epochs):
        losses = [network.learn(images, labels) for images, labels in loader]
        progress.show(epoch + 1, sum(losses) / len(losses))


def training_data(urls: list[str]) -> Any:
    return wds.WebDataset(urls, shardshuffle=100).shuffle(1000).decode("l").to_tuple("png", "cls").batched(BATCH)


def input_rate(urls: list[str]) -> float:
    """Samples per second that one process gets when nobody trains meanwhile."""
    dataset = training_data(urls)
    start = time.perf_counter()
    samples = sum(len(labels) for _ in range(5) for _, labels in dataset)
    return samples / (time.perf_counter() - start)


def evaluate(network: Any, urls: list[str]) -> float:
    """The share of test digits that the network names rightly."""
    dataset = wds.WebDataset(urls, shardshuffle=False).decode("l").to_tuple("png", "cls").batched(BATCH)
    right = [network.digits(images) == labels for images, labels in dataset]
    return float(np.concatenate(right).mean())


class Progress:
    """A bar that redraws itself in a terminal, and a line now and then in a log."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.terminal = sys.stderr.isatty()

    def show(self, done: int, loss: float) -> None:
        bar = ("#" * round(30 * done / self.total)).ljust(30, ".")
        line = f"         [{bar}] epoch {done}/{self.total}, loss {loss:.3f}"
        if self.terminal:
            print(f"\r{line}", end="\n" if done == self.total else "", file=sys.stderr, flush=True)
        elif done % max(1, self.total // 5) == 0 or done == self.total:
            print(line, file=sys.stderr, flush=True)


# -- the networks ----------------------------------------------------------------------------------


def make_network(only_numpy: bool) -> Any:
    if only_numpy or importlib.util.find_spec("torch") is None:
        return NumpyNetwork()
    return TorchNetwork()


class TorchNetwork:
    """A convolution and two layers of neurons."""

    name = "a small convolutional network (PyTorch)"
    has_torch = True

    def __init__(self) -> None:
        import torch

        torch.manual_seed(0)
        torch.set_num_threads(1)  # the network is too small to share among cores that also load
        self.torch = torch
        nn = torch.nn
        layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(64, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.002)

    def learn(self, images: Any, labels: Any) -> float:
        outputs = self.model(self.torch.as_tensor(images)[:, None])
        loss = self.torch.nn.functional.cross_entropy(outputs, self.torch.as_tensor(labels))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def digits(self, images: Any) -> Any:
        with self.torch.no_grad():
            return self.model(self.torch.as_tensor(images)[:, None]).argmax(1).numpy()


class NumpyNetwork:
    """Two layers of neurons, for machines without PyTorch."""

    name = "a small two-layer network (numpy)"
    has_torch = False

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.weights = [rng.normal(0, 0.15, (65, 96)), rng.normal(0, 0.15, (97, 10))]
        self.speeds = [np.zeros_like(weight) for weight in self.weights]

    def learn(self, images: np.ndarray, labels: np.ndarray) -> float:
        inputs, hidden, chances = self._forward(images)
        rows = np.arange(len(labels))
        loss = -np.log(chances[rows, labels] + 1e-9).mean()
        error = chances.copy()
        error[rows, labels] -= 1
        error /= len(labels)
        hidden_error = (error @ self.weights[1].T)[:, :-1] * (hidden[:, :-1] > 0)
        for i, slope in enumerate((inputs.T @ hidden_error, hidden.T @ error)):
            self.speeds[i] = 0.9 * self.speeds[i] - 0.1 * slope
            self.weights[i] += self.speeds[i]
        return float(loss)

    def digits(self, images: np.ndarray) -> Any:
        return self._forward(images)[2].argmax(1)

    def _forward(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        one = np.ones((len(images), 1))
        inputs = np.hstack([images.reshape(len(images), 64), one])
        hidden = np.hstack([np.maximum(inputs @ self.weights[0], 0), one])
        outputs = hidden @ self.weights[1]
        chances = np.exp(outputs - outputs.max(1, keepdims=True))
        return inputs, hidden, chances / chances.sum(1, keepdims=True)


if __name__ == "__main__":
    sys.exit(main())
