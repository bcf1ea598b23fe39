"""What the programs beside this file share: a command line, and small shards of each kind for --demo, made offline."""

import argparse
import io
import os
import sys
import tempfile
import textwrap
from contextlib import contextmanager

import numpy as np

import webdataset as wds

SHARD = 100  # samples in a shard of a demo


def options(description, *, steps, batch, size=None):
    """The command line that the programs have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("shards", nargs="?", help="the shards: a path, http://, s3:// or gs:// url, with braces or a glob (a demo)")
    add("--steps", type=int, default=steps, help=f"batches to train on ({steps})")
    add("--batch", type=int, default=batch, help=f"samples in a batch ({batch})")
    if size is not None:
        add("--size", type=int, default=size, help=f"width and height of an image ({size})")
    add("--workers", type=int, default=2, help="workers that load (2)")
    add("--seed", type=int, default=0, help="of the order of the samples and of the weights (0)")
    add("--demo", action="store_true", help="make small shards in a temporary folder and train on them")
    return parser


@contextmanager
def parsed(parser, arguments, make_demo, **defaults):
    """The options; without shards, or with --demo, `make_demo(folder)` makes some, and other defaults hold."""
    args = parser.parse_args(arguments)
    if args.steps < 1 or args.batch < 1 or args.workers < 0:
        parser.error("--steps and --batch must be at least 1, --workers at least 0")
    if args.shards is not None and not args.demo:
        yield args
        return
    if not args.demo:
        print(f"{parser.description.splitlines()[0]}\nNo shards are named, so this is its demo (--demo).", end=" ")
        print(f'With shards of your own: {parser.prog} "train-{{000000..001281}}.tar"', flush=True)
    parser.set_defaults(**defaults)
    args = parser.parse_args(arguments)
    args.demo = True
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # the networks are too small to share among cores that also load
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        args.shards = make_demo(folder)
        print(f"shards   {args.shards}", flush=True)
        yield args


# -- shards ----------------------------------------------------------------------------------------


def write_shards(folder, samples, **options):
    """Write samples as shards, and return their url."""
    with wds.ShardWriter(os.path.join(folder, "demo-%03d.tar"), maxcount=SHARD, verbose=0, **options) as writer:
        for number, sample in enumerate(samples):
            writer.write({"__key__": f"{number:05d}", **sample})
    return os.path.join(folder, f"demo-{{000..{writer.shard - 1:03d}}}.tar")


def image_shards(folder, count=600, **options):
    """Small photographs of ten classes: jpg, cls."""
    from imagenet.demo_images import CLOTHES, small_set
    from PIL import Image

    def samples():
        _, splits = small_set(count, 10)
        _, images, labels = next(iter(splits))
        for image, label in zip(images, labels, strict=True):
            file = io.BytesIO()
            Image.fromarray(image).convert("RGB").resize((32, 32)).save(file, "JPEG", quality=90)
            yield {"jpg": file.getvalue(), "cls": CLOTHES.index(label) if label in CLOTHES else int(label)}

    return write_shards(folder, samples(), **options)


def mask_shards(folder, count=300):
    """Things before a noisy background, with the picture of where they are: jpg, mask.png."""
    from imagenet.demo_images import small_set
    from PIL import Image

    def samples():
        rng = np.random.default_rng(0)
        _, splits = small_set(count, 10)
        _, things, _ = next(iter(splits))
        for thing in things:
            thing = np.asarray(Image.fromarray(thing).resize((28, 28)))
            picture = rng.integers(0, 90, (48, 48, 3), dtype=np.uint8)
            mask = np.zeros((48, 48), np.uint8)
            top, left = rng.integers(0, 20, 2)
            mask[top : top + 28, left : left + 28] = thing > 60
            picture[top : top + 28, left : left + 28][thing > 60] = (thing[thing > 60] // 2 + 128)[:, None]
            file = io.BytesIO()
            Image.fromarray(picture).save(file, "JPEG", quality=90)
            yield {"jpg": file.getvalue(), "mask.png": mask}

    return write_shards(folder, samples())


def video_shards(folder, count=80):
    """A square that moves to one of four sides, for a second: mp4, cls."""
    import av

    def clip(rng, label):
        file = io.BytesIO()
        with av.open(file, "w", format="mp4") as container:
            stream = container.add_stream("mpeg4", rate=12)
            stream.width = stream.height = 48
            stream.pix_fmt = "yuv420p"
            place, speed = rng.integers(16, 24, 2), 2 * np.array([(0, 1), (0, -1), (1, 0), (-1, 0)][label])
            for moment in range(12):
                frame = rng.integers(0, 40, (48, 48, 3), dtype=np.uint8)
                top, left = np.clip(place + speed * (moment - 6), 0, 36)
                frame[top : top + 12, left : left + 12] = 220
                for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
        return file.getvalue()

    rng = np.random.default_rng(0)
    return write_shards(folder, ({"mp4": clip(rng, n % 4), "cls": n % 4} for n in range(count)))


def audio_shards(folder, count=200):
    """Half a second of a sine, square, saw or noise of any pitch: wav, cls."""
    import soundfile

    def sound(rng, label):
        phase = np.arange(4000) / 8000 * rng.uniform(150, 600)
        sine = np.sin(2 * np.pi * phase)
        waves = (sine, np.sign(sine), 2 * (phase % 1) - 1, rng.normal(size=4000))
        file = io.BytesIO()
        wave = waves[label] * rng.uniform(0.2, 0.8) + rng.normal(size=4000) * 0.02
        soundfile.write(file, np.clip(wave, -1, 1), 8000, format="WAV")
        return file.getvalue()

    rng = np.random.default_rng(0)
    return write_shards(folder, ({"wav": sound(rng, n % 4), "cls": n % 4} for n in range(count)))


def text_shards(folder, count=800):
    """Paragraphs of Python's own manual: txt."""
    from pydoc_data.topics import topics

    paragraphs = [part for name in sorted(topics) for part in topics[name].split("\n\n") if len(part) > 20]
    chosen = [textwrap.dedent(part).strip() for part in paragraphs[:: max(1, len(paragraphs) // count)]]
    return write_shards(folder, ({"txt": text[:400]} for text in chosen[:count]))
