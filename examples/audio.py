"""Learn from sounds: each sample is a recording (wav, flac, mp3, ...) and its class; the network sees its spectrogram.

    python audio.py "/data/sounds-{000000..000099}.tar" --classes 35
    python audio.py --demo

Decoding takes soundfile: pip install "webdataset[audio]".
"""

from itertools import islice

import torch
from demos import audio_shards, options, parsed
from torch import nn

import webdataset as wds


def main(arguments=None):
    """Train; the result is the accuracy on the latest batches."""
    parser = options(__doc__, steps=1000, batch=32)
    parser.add_argument("--seconds", type=float, default=1.0, help="longer sounds are cut, shorter ones padded (1.0)")
    parser.add_argument("--rate", type=int, default=16000, help="samples per second, of all recordings (16000)")
    parser.add_argument("--classes", type=int, default=4, help="how many classes there are (4)")
    with parsed(parser, arguments, audio_shards, steps=60, seconds=0.5, rate=8000) as args:
        return train(args)


class Spectrogram:
    """A recording as a picture: time across, pitch up, on a logarithmic scale."""

    def __init__(self, rate, seconds):
        self.rate, self.length = rate, int(rate * seconds)

    def __call__(self, decoded):
        """What `wds.torch_audio` makes of a field: sound (channels x samples) and its rate."""
        sound, rate = decoded
        if rate != self.rate:
            raise ValueError(f"a recording has {rate} samples per second, not {self.rate}: see --rate")
        sound = sound.mean(0)[: self.length]
        sound = nn.functional.pad(sound, (0, self.length - len(sound)))
        spectrum = torch.stft(sound, 256, 128, window=torch.hann_window(256), return_complex=True)
        return (spectrum.abs() + 1e-4).log()[None]


def make_loader(args):
    """Batches (spectrograms, labels), without end."""
    dataset = wds.WebDataset(args.shards, shardshuffle=100, seed=args.seed).shuffle(1000).decode(wds.torch_audio)
    dataset = dataset.to_tuple("wav;flac;mp3;ogg", "cls").map_tuple(Spectrogram(args.rate, args.seconds), int)
    batches = dataset.repeat().batched(args.batch, partial=False)
    return wds.WebLoader(batches, batch_size=None, num_workers=args.workers, workers="thread")


def network(classes):
    """Convolutions over time and pitch."""
    layers = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((4, 1)), nn.Flatten(), nn.Linear(256, classes))


def train(args):
    """Some steps, with a line in the log now and then."""
    torch.manual_seed(args.seed)
    model = network(args.classes)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    right = []
    for step, (sounds, labels) in enumerate(islice(make_loader(args), args.steps), 1):
        outputs = model(sounds)
        loss = nn.functional.cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right = [*right[-9:], (outputs.argmax(1) == labels).float().mean().item()]
        if step % max(1, args.steps // 10) == 0:
            accuracy = sum(right) / len(right)
            print(f"step {step}/{args.steps}: loss {loss.item():.3f}, accuracy {accuracy:.1%}", flush=True)
    return sum(right) / len(right)


if __name__ == "__main__":
    main()
