"""Learn from video clips: each sample is a clip (mp4) and its class; a few consecutive frames of it are used at a time.

    python video-clips.py "/data/clips-{000000..000099}.tar" --classes 400
    python video-clips.py --demo

Decoding takes PyAV (pip install "webdataset[video]"), or torchcodec where it is installed.
"""

import random
from itertools import islice

import torch
from demos import options, parsed, video_shards
from torch import nn

import webdataset as wds


def main(arguments=None):
    """Train; the result is the accuracy on the latest batches."""
    parser = options(__doc__, steps=1000, batch=16, size=112)
    parser.add_argument("--frames", type=int, default=16, help="consecutive frames of a clip to look at (16)")
    parser.add_argument("--classes", type=int, default=4, help="how many classes there are (4)")
    with parsed(parser, arguments, video_shards, steps=50, size=32, frames=8) as args:
        return train(args)


class RandomFrames:
    """Some consecutive frames of a video, from anywhere in it, as 3 x T x H x W."""

    def __init__(self, frames, size):
        self.frames, self.size = frames, size

    def __call__(self, decoded):
        """What `wds.torch_video` makes of a field: frames (T x H x W x 3), sound, and the rates of both."""
        video, _, _ = decoded
        if len(video) < self.frames:  # a short clip is still at its end
            video = torch.cat([video, video[-1:].expand(self.frames - len(video), *video.shape[1:])])
        first = random.randrange(len(video) - self.frames + 1)
        frames = video[first : first + self.frames].permute(0, 3, 1, 2).float() / 255
        frames = nn.functional.interpolate(frames, (self.size, self.size), mode="bilinear", antialias=True)
        return frames.transpose(0, 1)


def make_loader(args):
    """Batches (clips, labels), without end."""
    dataset = wds.WebDataset(args.shards, shardshuffle=100, seed=args.seed).shuffle(200).decode(wds.torch_video)
    dataset = dataset.to_tuple("mp4", "cls").map_tuple(RandomFrames(args.frames, args.size), int)
    batches = dataset.repeat().batched(args.batch, partial=False)
    return wds.WebLoader(batches, batch_size=None, num_workers=args.workers, workers="thread")


def network(classes):
    """Convolutions over space and time."""
    layers = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv3d(inputs, outputs, 3, stride=(1, 2, 2), padding=1), nn.BatchNorm3d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d((2, 2, 2)), nn.Flatten(), nn.Linear(512, classes))


def train(args):
    """Some steps, with a line in the log now and then."""
    torch.manual_seed(args.seed)
    model = network(args.classes)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    right = []
    for step, (clips, labels) in enumerate(islice(make_loader(args), args.steps), 1):
        outputs = model(clips)
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
