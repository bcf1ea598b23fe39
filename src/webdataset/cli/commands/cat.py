"""Print one field of one sample, as it is stored.

The sample is the first one, or chosen by its number, starting from 0 (SKIP), its key (-k) or a condition (-S).
"""

from __future__ import annotations

import codecs
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl cat 'train-{000000..000009}.tar' jpg 17 > image.jpg", "the image of the 18th sample"),
    ("wl cat -S 'cls == 7' http://server/train.tar 'jpg;png' | display", "an image of class 7"),
)


def configure(parser: grammar.Parser) -> None:
    parser.add_argument("url", metavar="URL", help="shards to read; - for stdin")
    parser.add_argument("field", metavar="FIELD", help='the field, or alternatives: "jpg;png"')
    parser.number("number", metavar="SKIP", nargs="?", default=0, help="number of samples to skip (0)")
    grammar.add_concatenated(parser)
    parser.add_argument("-S", "--select", metavar="EXPR", help="the first sample for which this expression is true")
    parser.add_argument("-k", "--key", metavar="KEY", help="the sample with this key")
    grammar.add_output(parser, help="where to write (default: stdout)")
    grammar.add_errors(parser)
    grammar.add_progress(parser)


def run(options: Namespace) -> int:
    from webdataset.cli.flow import reading
    from webdataset.cli.outputs import writing
    from webdataset.handlers import close
    from webdataset.tar.large import LargeMember
    from webdataset.tools.transform.choosing import field_named, in_pieces

    options.inputs, options.skip, options.count = [options.url], options.number, 1
    large = in_pieces(None if options.select else options.field, options.key)
    samples = iter(reading(options, large=large, **_by_key(options)))
    try:
        sample = next(samples, None)
    finally:
        close(samples)
    if sample is None:
        raise _not_found(options)
    name = field_named(sample, options.field.split(";"))
    if options.verbose:
        terminal.err(f"{sample['__key__']}.{name}\n")
    pieces = sample[name].pieces() if isinstance(sample[name], LargeMember) else iter([sample[name]])
    pieces = _checked(pieces, options.output)
    first = next(pieces, b"")
    with writing(options.output) as stream:
        stream.write(first)
        for piece in pieces:
            stream.write(piece)
    return 0


def _by_key(options: Namespace) -> dict[str, Any]:
    """Skip the members of other samples before they become samples."""
    if options.key is None:
        return {}
    from webdataset.tariterators import base_plus_ext

    return {"select_files": lambda name: base_plus_ext(name)[0] == options.key}


def _not_found(options: Namespace) -> Exception:
    from webdataset.errors import SampleError

    if options.key is not None:
        return SampleError(
            "no sample has this key", url=options.url, key=options.key, hint="`wl ls --samples` lists the keys"
        )
    if not options.select:
        return SampleError(f"there is no sample number {options.number}; they count from 0", url=options.url)
    many = f"more than {options.number} samples" if options.number else "any sample"
    return SampleError(f"the condition is not true for {many}", url=options.url)


def _checked(pieces: Iterator[bytes], output: str) -> Iterator[bytes]:
    """Yield the pieces; on a terminal those before anything that is not text."""
    from webdataset.base.printing import harmless
    from webdataset.cli.flow import refuse_terminal

    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for piece in pieces:
        if output == "-" and sys.stdout.isatty():
            text = decoder.decode(piece).replace("\r\n", "\n")
            if harmless(text) != text:
                refuse_terminal(output)
        yield piece
