"""DALI on our shards, in two ways: its own webdataset reader with our index files, and our samples in its pipeline.

    python dali.py "/data/train-{000000..000099}.tar"
    python dali.py --demo

The reader needs an index of each shard, NAME.idx: ShardWriter(index="dali") writes it with the shard, and `wl index
--format dali` for shards that exist; this program does so if it is missing. With `external_source` the samples are ours
(any url, exact epochs, resumable) and the decoding is DALI's. Runs on a GPU if there is one, else on the CPU.

DALI: pip install nvidia-dali-cuda120
"""

import os
import sys
import time
from itertools import islice

import numpy as np
from demos import image_shards, options, parsed

import webdataset as wds

try:
    from nvidia.dali import fn, pipeline_def, types
except ImportError:
    fn = None


def main(arguments=None):
    """Read the same shards both ways; the result is the sum of the labels and the mean pixel of each way."""
    parser = options(__doc__, steps=100, batch=64, size=224)
    with parsed(parser, arguments, demo_shards, steps=6, batch=100, size=32) as args:
        if fn is None:
            sys.exit("this program needs DALI: pip install nvidia-dali-cuda120")
        found = {}
        for name, pipeline in (("reader", make_reader(args)), ("external_source", make_external(args))):
            found[name] = measure(pipeline, args, name)
        return found


def demo_shards(folder):
    """Small photographs with DALI's indices beside them."""
    return image_shards(folder, index="dali")


def make_reader(args):
    """DALI reads the shards; the index files are ours."""
    paths = wds.shardlists.expand_urls(args.shards)
    indices = [path.removesuffix(".tar") + ".idx" for path in paths]
    missing = [path for path, index in zip(paths, indices, strict=True) if not os.path.exists(index)]
    if missing:
        from webdataset.tools.make.indexing import write_indices

        write_indices(missing, ["dali"])

    @pipeline_def(**settings(args))
    def pipeline():
        images, labels = fn.readers.webdataset(
            paths=paths, index_paths=indices, ext=["jpg;jpeg;png", "cls"], name="reader"
        )
        return augmented(images, args), labels

    return pipeline()


def make_external(args):
    """WebLoader reads the shards, shuffled and without end, and DALI decodes what it gives."""
    dataset = wds.WebDataset(args.shards, exact=True, seed=args.seed).to_tuple("jpg;jpeg;png", "cls").repeat()

    def batches():
        samples = iter(dataset)
        while True:
            images, labels = zip(*islice(samples, args.batch), strict=True)
            yield [np.frombuffer(each, np.uint8) for each in images], [np.frombuffer(each, np.uint8) for each in labels]

    @pipeline_def(**settings(args))
    def pipeline():
        images, labels = fn.external_source(source=batches, num_outputs=2, dtype=[types.UINT8, types.UINT8])
        return augmented(images, args), labels

    return pipeline()


def settings(args):
    """What both pipelines have in common."""
    return {"batch_size": args.batch, "num_threads": max(1, args.workers), "device_id": 0 if has_gpu() else None}


def augmented(images, args):
    """The usual recipe, by DALI's operators."""
    images = fn.decoders.image(images, device="mixed" if has_gpu() else "cpu")
    images = fn.resize(images, resize_x=args.size, resize_y=args.size)
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, mean=[0.0], std=[255.0], output_layout="CHW")


def has_gpu():
    """Whether there is a GPU that DALI can use."""
    from nvidia.dali.backend import GetCudaVersion

    return GetCudaVersion() > 0 and os.path.exists("/dev/nvidia0")


def measure(pipeline, args, name):
    """Run some steps: labels, mean pixel, and images per second."""
    pipeline.build()
    labels, pixels, began = [], [], time.perf_counter()
    for _ in range(args.steps):
        images, numbers = pipeline.run()
        images, numbers = images.as_cpu(), numbers.as_cpu()
        pixels += [np.asarray(images[n]).mean() for n in range(len(images))]
        labels += [int(bytes(np.asarray(numbers[n]))) for n in range(len(numbers))]
    rate = len(labels) / (time.perf_counter() - began)
    print(f"{name}: {len(labels)} images, mean {np.mean(pixels):.4f}, labels {sum(labels)}, {rate:.0f} images/s")
    return sum(labels), float(np.mean(pixels))


if __name__ == "__main__":
    main()
