"""Learn from texts of any length: tokens in batches of similar lengths, padded to the longest of each batch.

    python text-tokens.py "/data/texts-{000000..000099}.tar"
    python text-tokens.py --demo
    python text-tokens.py --demo --no-buckets

The network learns to continue a text, byte by byte. With a tokenizer of your own, change `tokens` and VOCABULARY. The
log says how much of the batches is padding: with buckets a small part, without them often half.
"""

from itertools import islice

import torch
from demos import options, parsed, text_shards
from torch import nn

import webdataset as wds

PADDING, START, VOCABULARY = 256, 257, 258


def main(arguments=None):
    """Train; the result is the last loss and the share of padding."""
    parser = options(__doc__, steps=1000, batch=32)
    parser.add_argument("--longest", type=int, default=1024, help="tokens; longer texts are cut (1024)")
    parser.add_argument("--no-buckets", action="store_true", help="batches as they come, to see the difference")
    with parsed(parser, arguments, text_shards, steps=40, batch=16, longest=256) as args:
        return train(args)


class Tokens:
    """A text as numbers: its bytes, after a mark for its start."""

    def __init__(self, longest):
        self.longest = longest

    def __call__(self, sample):
        """The tokens of a sample with a txt."""
        return torch.tensor([START, *sample["txt"].encode()[: self.longest]])


def length(tokens):
    """What the buckets go by."""
    return len(tokens)


def padded(texts):
    """A batch: tokens (N x the longest), and the length of each."""
    batch = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PADDING)
    return batch, torch.tensor([len(text) for text in texts])


def make_loader(args):
    """Batches (tokens, lengths), without end."""
    dataset = wds.WebDataset(args.shards, shardshuffle=100, seed=args.seed).shuffle(2000).decode()
    dataset = dataset.map(Tokens(args.longest)).repeat()
    if args.no_buckets:
        batches = dataset.batched(args.batch, collation_fn=padded)
    else:
        borders = [args.longest * part // 8 for part in range(1, 8)]
        batches = dataset.bucketed(length, borders, batchsize=args.batch, among=20 * args.batch, collation_fn=padded)
    return wds.WebLoader(batches, batch_size=None, num_workers=args.workers, workers="thread")


class Continuation(nn.Module):
    """Says for each place of a text which token may come next."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.layers = nn.GRU(64, 128, batch_first=True)
        self.last = nn.Linear(128, VOCABULARY)

    def forward(self, tokens):
        """N x T to N x T x vocabulary."""
        return self.last(self.layers(self.embedding(tokens))[0])


def train(args):
    """Some steps, with a line in the log now and then."""
    torch.manual_seed(args.seed)
    model = Continuation()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    real = total = 0
    for step, (tokens, lengths) in enumerate(islice(make_loader(args), args.steps), 1):
        outputs = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PADDING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        real, total = real + int(lengths.sum()), total + tokens.numel()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step}/{args.steps}: loss {loss.item():.3f}, padding {1 - real / total:.1%}", flush=True)
    return loss.item(), 1 - real / total


if __name__ == "__main__":
    main()
