"""Simulate a distributed training: who gets what, and whether all ranks get as many batches.

It shows both ways to read: streamed, where whole shards are dealt to ranks and worker processes
(`nodesplitter=wds.split_by_node`), and exact (`exact=True`), where samples are dealt. Ranks that get fewer batches than
others leave them waiting. Nothing is read but indices; with --samples the shards need not even exist.
"""

from __future__ import annotations

import json
from argparse import Namespace

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl simdist --ranks 8 --workers 4 --batch 32 train-{000000..000009}.tar", "eight GPUs, four workers each"),
    (
        "wl simdist --ranks 3 --workers 3 --samples 1000 --plot ranks.png 'imagenet-{0000..1281}.tar'",
        "shards that are still to be made, and a picture",
    ),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_inputs(parser)
    number = parser.number
    number("--ranks", type=grammar.positive, default=2, help="number of training processes, the world size (2)")
    number("--workers", type=grammar.positive, default=1, help="loader workers per rank (1)")
    number("--batch", type=grammar.positive, default=1, help="batch size per rank (1)")
    parser.switch("--whole", help="full batches only: batched(n, partial=False)")
    add = parser.add_argument
    add("--remainder", choices=("pad", "drop", "uneven"), help="exact: the last samples (pad; drop with --whole)")
    add("--samples", metavar="N,...", help="imagine shards with N samples each; several numbers are used in turn")
    add("--plot", metavar="FILE", help="write a picture (needs matplotlib)")
    parser.switch("--json", help="print JSON")


def run(options: Namespace) -> None:
    from webdataset.cli.flow import urls_of
    from webdataset.cli.outputs import image_format, writing
    from webdataset.indices.making import catalogue_of
    from webdataset.tools.inspect.dealing import exact_deal, imagined_shards, lines, plot, streamed_deal
    from webdataset.tools.inspect.histograms import drawing_package

    if options.plot:  # fail before anything is indexed
        image_format(options.plot)
        drawing_package()
    urls = urls_of(options.inputs)
    if options.samples is None:
        shards = catalogue_of(urls, concatenated=options.concatenated)
    else:
        shards = imagined_shards(_expanded(urls), _counts(options.samples))
    how = {"ranks": options.ranks, "workers": options.workers, "batch": options.batch, "partial": not options.whole}
    deals = {"streamed": streamed_deal(shards, **how), "exact": exact_deal(shards, remainder=options.remainder, **how)}
    if options.plot:
        with writing(options.plot) as out:
            plot(deals, out, format=image_format(options.plot))
    if options.json:
        facts = {"shards": len(shards), "samples": shards.total, "batch": options.batch}
        terminal.out(json.dumps(facts | {name: deal.as_dict() for name, deal in deals.items()}) + "\n")
        return
    job = f"{options.ranks} ranks x {options.workers} workers, batches of {options.batch}"
    text = [f"{shards.total} samples in {len(shards)} shards; {job}"]
    for name, deal in deals.items():
        text += ["", f"{name}: {_CALLS[name]}", *lines(deal)]
    if not deals["streamed"].is_equal:
        together = options.ranks * options.workers
        several = -(-len(shards) // together) * together
        cures = f"exact=True; or resampled=True with .with_epoch(N); or {several} shards of one size"
        text += ["", f"To make ranks equal: {cures}"]
    terminal.out("\n".join(text) + "\n")


_CALLS = {
    "streamed": "WebDataset(urls, nodesplitter=wds.split_by_node)",
    "exact": "WebDataset(urls, exact=True)",
}


def _counts(text: str) -> list[int]:
    """Parse the numbers of --samples."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or not any(numbers):
        raise grammar.UsageError(f"--samples {text!r} is no list of numbers such as 1000 or 1000,990")
    return numbers


def _expanded(urls: list[str]) -> list[str]:
    from webdataset.shardlists import SimpleShardList

    return SimpleShardList(urls).urls
