"""Learn where things are in a picture: image and mask go through the same random crop and flip.

    python segmentation.py "/data/scenes-{000000..000099}.tar" --classes 21
    python segmentation.py --demo

Samples have an image (jpg or png) and its mask (mask.png), whose pixels are the numbers of classes; 255 is not counted.
"""

from itertools import islice

import torch
from demos import mask_shards, options, parsed
from torch import nn

import webdataset as wds

NOT_COUNTED = 255


def main(arguments=None):
    """Train; the result is the overlap of what is found with what is there, on the latest batches."""
    parser = options(__doc__, steps=1000, batch=16, size=256)
    parser.add_argument("--classes", type=int, default=2, help="how many classes there are, with the background (2)")
    with parsed(parser, arguments, mask_shards, steps=40, size=32) as args:
        return train(args)


def make_loader(args):
    """Batches (images, masks), without end."""
    recipe = wds.images.train(args.size, scale=(0.4, 1.0), masks="mask.png", seed=args.seed)
    dataset = wds.WebDataset(args.shards, shardshuffle=100, seed=args.seed).shuffle(1000)
    batches = dataset.decode(recipe).to_tuple("jpg;png", "mask.png").repeat().batched(args.batch, partial=False)
    return wds.WebLoader(batches, batch_size=None, num_workers=args.workers, workers="thread")


class Segmenter(nn.Module):
    """Down to a quarter of the size and up again, with the details from the way down."""

    def __init__(self, classes):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.coarse = nn.Sequential(
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Conv2d(48, classes, 1)

    def forward(self, images):
        """N x 3 x H x W to N x classes x H x W."""
        fine = self.fine(images)
        coarse = nn.functional.interpolate(self.coarse(fine), fine.shape[2:], mode="bilinear", align_corners=False)
        return self.last(torch.cat([fine, coarse], 1))


def overlap(found, masks):
    """Pixels that are in both, as a share of those in either, over all classes but the background."""
    counted = masks != NOT_COUNTED
    both = ((found == masks) & (masks > 0) & counted).sum().item()
    either = (((found > 0) | (masks > 0)) & counted).sum().item()
    return both / max(either, 1)


def train(args):
    """Some steps, with a line in the log now and then."""
    torch.manual_seed(args.seed)
    model = Segmenter(args.classes)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    overlaps = []
    for step, (images, masks) in enumerate(islice(make_loader(args), args.steps), 1):
        masks = masks.long()
        outputs = model(images)
        loss = nn.functional.cross_entropy(outputs, masks, ignore_index=NOT_COUNTED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        overlaps = [*overlaps[-9:], overlap(outputs.argmax(1), masks)]
        if step % max(1, args.steps // 10) == 0:
            mean = sum(overlaps) / len(overlaps)
            print(f"step {step}/{args.steps}: loss {loss.item():.3f}, overlap {mean:.1%}", flush=True)
    return sum(overlaps) / len(overlaps)


if __name__ == "__main__":
    main()
