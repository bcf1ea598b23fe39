"""The diagrams of the documentation, drawn from the real thing: `python website/diagrams.py` writes docs/pictures.

A shard is written and taken apart by the standard library, the shuffle is a shuffle, the epoch is a plan.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import webdataset as wds

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
INK, GREY, PALE = "#263238", "#90a4ae", "#eceff1"
COLOURS = ("#4f83cc", "#e08e45", "#5aa469", "#b565a7", "#c94c4c", "#7f8c8d")

HEADER = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"
 font-family="Helvetica, Arial, sans-serif" font-size="13">"""
ARROW = f"""<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>"""


class Drawing:
    """An SVG picture, put together from boxes, texts and arrows."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self.parts = [
            HEADER.format(width=width, height=height),
            f"<title>{escape(title)}</title>",
            ARROW,
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, fill: str = PALE, *, edge: str = "none") -> None:
        """A box with round corners."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect {place} rx="4" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        fill: str = INK,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """Words, on one line."""
        how = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"' + ' font-weight="bold"' * bold
        self.parts.append(f'<text x="{x:g}" y="{y:g}" {how}>{escape(words)}</text>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line through these points with a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        how = f'fill="none" stroke="{INK}" stroke-width="1.5" marker-end="url(#head)"'
        self.parts.append(f'<polyline points="{path}" {how}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = GREY) -> None:
        """A plain line."""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="1.5"/>'
        )

    def sample(self, x: float, y: float, words: str, colour: str, *, edge: str = "none", side: float = 26) -> None:
        """A sample: a small square in the colour of its shard."""
        self.box(x, y, side, side, colour, edge=edge)
        self.text(x + side / 2, y + side / 2 + 4, words, size=11, fill="#ffffff", anchor="middle")

    def __str__(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def shard() -> Drawing:
    """A tar file as boxes: members one after the other, samples by their names."""
    file = io.BytesIO()
    samples = [{"__key__": "dog", "jpg": bytes(1400), "cls": 0}, {"__key__": "cat", "jpg": bytes(900), "cls": 1}]
    with wds.TarWriter(file, encoder=lambda sample: {**sample, "cls": str(sample["cls"]).encode()}) as writer:
        for sample in samples:
            writer.write(sample)
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as archive:
        members = archive.getmembers()
    picture = Drawing(760, 284, "A shard as boxes: headers, data and padding of members, which make up samples")
    picture.text(20, 28, "train-000000.tar", bold=True)
    picture.text(20, 46, "one tar file, read from left to right and from top to bottom", size=11, fill=GREY)
    y = 62.0
    for number, member in enumerate(members):
        colour = COLOURS[0] if member.name.startswith("dog") else COLOURS[1]
        blocks = -(-member.size // 512)
        picture.box(150, y, 118, 30, "#ffffff", edge=colour)
        picture.text(209, y + 19, f"header: {member.name}", size=11, anchor="middle")
        width = 60 + blocks * 66
        filled = max(18.0, width * member.size / (blocks * 512))
        picture.box(272, y, width, 30, PALE)
        picture.box(272, y, filled, 30, colour)
        words = f"{member.size} bytes" if filled > 60 else ""
        picture.text(272 + filled / 2, y + 19, words, size=11, fill="#ffffff", anchor="middle")
        picture.text(
            278 + width,
            y + 19,
            f"{member.size} byte{'s' * (member.size > 1)}, padded to {blocks * 512}",
            size=11,
            fill=GREY,
        )
        if number % 2 == 0:
            key = member.name.partition(".")[0]
            picture.line(140, y, 140, y + 68, colour)
            picture.text(128, y + 32, "a sample", size=11, fill=GREY, anchor="end")
            picture.text(128, y + 48, f'__key__ "{key}"', size=12, anchor="end", bold=True)
        y += 38 if number % 2 == 0 else 50
    size = len(file.getvalue())
    picture.box(150, y, 118, 26, "#ffffff", edge=GREY)
    picture.text(209, y + 17, "1,024 zero bytes", size=11, anchor="middle")
    picture.text(
        278,
        y + 17,
        f"the end marker: without it, the file may have been cut ({size:,} bytes in all)",
        size=11,
        fill=GREY,
    )
    return picture


WAY = (
    ("urls", "train-{000..146}.tar", "shardlists"),
    ("shards, in order", "for this rank and worker", "dataset, shardlists"),
    ("opened", "disk, http, s3, gs, az, hf, ...", "gopen, cache, storage"),
    ("decompressed", "gz, bz2, xz, zst, lz4", "codecs"),
    ("members", "names and bytes, checked", "tar"),
    ("samples", "dicts of fields", "tariterators"),
    ("shuffled", "in a bounded buffer", "filters.order"),
    ("decoded", "images, arrays, text, ...", "filters.mapping, codecs"),
    ("batched", "tuples of arrays", "filters.batches"),
    ("loaded", "from processes or threads", "loader, loading"),
)


def way() -> Drawing:
    """The way of a sample, from a url to the trainer."""
    columns, width, height = 5, 142, 74
    picture = Drawing(800, 290, "The way of a sample: from urls through the pipeline to the trainer")
    places = []
    for number, (title, what, where) in enumerate(WAY):
        row, column = divmod(number, columns)
        x = 14 + (column if row == 0 else columns - 1 - column) * 158
        y = 24 + row * 120
        places.append((x, y))
        colour = COLOURS[0] if number < 4 else COLOURS[2] if number < 6 else COLOURS[1] if number < 9 else COLOURS[3]
        picture.box(x, y, width, height, "#ffffff", edge=colour)
        picture.text(x + width / 2, y + 23, title, anchor="middle", bold=True)
        picture.text(x + width / 2, y + 42, what, size=10, anchor="middle")
        picture.text(x + width / 2, y + 61, where, size=10, fill=GREY, anchor="middle")
    for (x, y), (next_x, next_y) in pairwise(places):
        if y != next_y:
            picture.arrow((x + width / 2, y + height), (x + width / 2, next_y))
        elif x < next_x:
            picture.arrow((x + width, y + height / 2), (next_x, y + height / 2))
        else:
            picture.arrow((x, y + height / 2), (next_x + width, y + height / 2))
    x, y = places[-1]
    picture.arrow((x + width / 2, y + height), (x + width / 2, y + height + 30))
    picture.text(x + width / 2, y + height + 48, "images, labels", anchor="middle", bold=True)
    legend = (("bytes", 0), ("format", 2), ("stages: yours go here", 1), ("workers", 3))
    at = 250.0
    for words, colour in legend:
        picture.box(at, 252, 14, 14, COLOURS[colour])
        picture.text(at + 20, 264, words, size=11)
        at += 60 + 7 * len(words)
    return picture


def window() -> Drawing:
    """What a shuffle buffer of 4 and of 16 does to four shards of six samples."""
    samples = [(shard, number) for shard in range(4) for number in range(6)]
    picture = Drawing(800, 330, "The shuffle window: what a buffer of 4 and one of 16 samples do to a stream")

    def row(y: float, items: list[tuple[int, int]], words: str) -> None:
        picture.text(20, y - 8, words, size=12)
        for place, (shard, number) in enumerate(items):
            picture.sample(20 + place * 31, y, str(number), COLOURS[shard])

    row(40, samples, "the stream: four shards, one after the other, in this epoch's order of shards")
    picture.box(16, 92, 31 * 4 + 3, 36, "#ffffff", edge=INK)
    for place, (shard, number) in enumerate(samples[:4]):
        picture.sample(20 + place * 31, 97, str(number), COLOURS[shard])
    picture.text(
        156, 107, "the window: shuffle(4) holds four samples; one of them, drawn at random, goes out,", size=12
    )
    picture.text(156, 123, "and the next of the stream takes its place", size=12)
    row(
        172,
        list(wds.shuffle(4, initial=4, seed=3)(samples)),
        "shuffle(4): a sample moves by a few places, shards stay apart",
    )
    row(
        236,
        list(wds.shuffle(16, initial=16, seed=3)(samples)),
        "shuffle(16): shards are mixed, at the price of 16 samples in memory",
    )
    picture.text(
        20,
        296,
        "Order the shards as well, shardshuffle=100: the window mixes neighbours only. With exact=True the window",
        size=12,
    )
    picture.text(
        20,
        313,
        "is measured in bytes (shuffle_bytes), and a batch is drawn from 64 places of the dataset at once.",
        size=12,
    )
    return picture


def epoch() -> Drawing:
    """An exact epoch of 20 samples over two ranks, and over three."""
    counts = (7, 11, 2)
    catalogue = wds.Catalogue([(f"{'abc'[n]}.tar", count, count * 1000, None) for n, count in enumerate(counts)])
    picture = Drawing(800, 430, "An exact epoch over ranks: every sample once, as many batches on every rank")
    x = 20.0
    for shard, count in enumerate(counts):
        picture.text(x, 26, f"{'abc'[shard]}.tar, {count} samples", size=12)
        for number in range(count):
            picture.sample(x + number * 31, 34, str(number), COLOURS[shard])
        x += count * 31 + 36
    y = 92.0
    for ranks in (2, 3):
        plan = wds.plan(catalogue, ranks=ranks, batch=4, seed=5)
        picture.text(
            20, y, f"on {ranks} ranks, in batches of 4: {plan.steps} steps each, repeated: {plan.repeated}", bold=True
        )
        seen: set[tuple[int, int]] = set()
        rows = [plan.sequence(rank) for rank in range(ranks)]
        again = set()
        for place in range(len(rows[0])):  # as time goes, over all ranks
            for rank in range(ranks):
                _, shard, number = rows[rank][place]
                if (shard, number) in seen:
                    again.add((rank, place))
                seen.add((shard, number))
        for rank, items in enumerate(rows):
            top = y + 14 + rank * 42
            picture.text(20, top + 18, f"rank {rank}", size=12)
            for place, (_, shard, number) in enumerate(items):
                left = 80 + place * 31 + place // 4 * 16
                repeated = (rank, place) in again
                picture.sample(left, top, str(number), COLOURS[shard], edge=INK if repeated else "none")
        y += 14 + ranks * 42 + 26
    picture.text(
        20,
        392,
        "Every sample is read once, and every rank makes the same number of steps; a sample that is repeated to get",
        size=12,
    )
    picture.text(20, 409, "there (black edge) is counted. The order depends on shards, seed and epoch alone.", size=12)
    return picture


PICTURES: dict[str, Callable[[], Drawing]] = {"shard": shard, "way": way, "window": window, "epoch": epoch}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()))
