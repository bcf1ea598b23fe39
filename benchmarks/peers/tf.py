"""tf.data: TFRecord files, decoding and cropping in one operation, parallel map, prefetch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .case import MEAN, STD, Case

PACKAGES = ["tensorflow-cpu"]
NEEDS = ""
DISTRIBUTION = "tensorflow-cpu"
RUNS = dict.fromkeys(("raw", "shuffled", "rgb"), "all cores") | {"train": "2 threads"}

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def prepare(case: Case) -> None:
    import tensorflow as tf

    os.makedirs(case.folder, exist_ok=True)
    parts = len(case.shards)
    writers = [tf.io.TFRecordWriter(case.own(f"{case.name}-{n}.tfrecord")) for n in range(parts)]
    for n, (_, data, label) in enumerate(case.samples()):
        features = {
            "data": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        writers[n % parts].write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    for writer in writers:
        writer.close()


def _parsed(case: Case, *, shuffle: int = 0) -> Any:
    import tensorflow as tf

    features = {"data": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    paths = sorted(case.own(name) for name in os.listdir(case.folder) if name.startswith(f"{case.name}-"))
    records = tf.data.TFRecordDataset(paths, num_parallel_reads=tf.data.AUTOTUNE)
    records = records.shuffle(shuffle) if shuffle else records
    return records.batch(256).map(lambda batch: tf.io.parse_example(batch, features)).prefetch(tf.data.AUTOTUNE)


def raw(case: Case) -> Iterator[bytes]:
    return (data for batch in _parsed(case).as_numpy_iterator() for data in batch["data"])


def shuffled(case: Case) -> Iterator[bytes]:
    return (data for batch in _parsed(case, shuffle=10_000).as_numpy_iterator() for data in batch["data"])


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import tensorflow as tf

    images = _parsed(case).unbatch().map(lambda one: (tf.io.decode_jpeg(one["data"], channels=3), one["label"]))
    return images.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def train(case: Case) -> Any:
    import tensorflow as tf

    mean, std = (tf.constant(values) * 255 for values in (MEAN, STD))

    def crop(one: Any) -> Any:
        data = one["data"]
        shape = tf.io.extract_jpeg_shape(data)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            tf.zeros([1, 0, 4]),
            min_object_covered=0.0,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.io.decode_and_crop_jpeg(data, window, channels=3)
        image = tf.image.resize(image, (224, 224))  # as its guides have it; with antialias it takes twice as long
        image = tf.image.random_flip_left_right(image)
        return tf.transpose((image - mean) / std, (2, 0, 1)), one["label"]

    options = tf.data.Options()
    options.threading.private_threadpool_size = case.workers
    images = _parsed(case).unbatch().shuffle(1000).map(crop, num_parallel_calls=case.workers)
    return images.batch(case.batch).prefetch(tf.data.AUTOTUNE).with_options(options).as_numpy_iterator()
