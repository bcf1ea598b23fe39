"""Write one field of one sample to stdout, as it is stored.

The sample is the first one, or given by its number from 0 (SKIP), its key (-k) or a condition (-S).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    ("wl cat 'train-{000000..000009}.tar' jpg 17 > image.jpg", "the picture of the 18th sample"),
    ("wl cat -S 'cls == 7' http://server/train.tar 'jpg;png' | display", "a picture of class 7"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="shards to read; - is stdin")
    parser.add_argument("field", metavar="FIELD", help='the field, or alternatives: "jpg;png"')
    parser.add_argument(
        "number", metavar="SKIP", type=grammar.count, nargs="?", default=0, help="pass over so many samples (0)"
    )
    grammar.add_concatenated(parser)
    _add_choice(parser)
    parser.add_argument("-o", "--output", metavar="URL", default="-", help="where to write instead of stdout")
    grammar.add_errors(parser)
    grammar.add_progress(parser)


def run(options: argparse.Namespace) -> int:
    from webdataset.cli.flow import reading
    from webdataset.cli.outputs import writing
    from webdataset.handlers import close
    from webdataset.tar.large import LargeMember
    from webdataset.tools.alternatives import field_named
    from webdataset.tools.transform.choosing import in_pieces

    options.inputs, options.skip, options.count = [options.url], options.number, 1
    large = in_pieces(None if options.select else options.field, options.key)
    samples = iter(reading(options, large=large, **_by_key(options)))
    try:
        sample = next(samples, None)
    finally:
        close(samples)
    if sample is None:
        raise _nothing(options)
    name = field_named(sample, options.field.split(";"))
    if options.verbose:
        sys.stderr.write(f"{sample['__key__']}.{name}\n")
    pieces = sample[name].pieces() if isinstance(sample[name], LargeMember) else iter([sample[name]])
    first = next(pieces, b"")
    _check_terminal(options.output, first)
    with writing(options.output) as stream:
        stream.write(first)
        for piece in pieces:
            stream.write(piece)
    return 0


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-S", "--select", metavar="EXPR", help="the first sample for which this expression is true")
    parser.add_argument("-k", "--key", metavar="KEY", help="the sample with this key")


def _by_key(options: argparse.Namespace) -> dict[str, Any]:
    """Members of other samples are passed over before they become samples."""
    if options.key is None:
        return {}
    from webdataset.tariterators import base_plus_ext

    return {"select_files": lambda name: base_plus_ext(name)[0] == options.key}


def _nothing(options: argparse.Namespace) -> Exception:
    from webdataset.errors import SampleError

    if options.key is not None:
        return SampleError(
            "no sample has this key", url=options.url, key=options.key, hint="`wl ls` shows what there is"
        )
    if not options.select:
        return SampleError(f"there is no sample number {options.number}; they count from 0", url=options.url)
    many = f"more than {options.number} samples" if options.number else "any sample"
    return SampleError(f"the condition is not true for {many}", url=options.url)


def _check_terminal(output: str, data: bytes) -> None:
    from webdataset.cli.flow import refuse_terminal

    text = data[:10_000].decode("utf-8", "replace")
    if not all(char.isprintable() or char in "\n\t\r" for char in text) or "\ufffd" in text:
        refuse_terminal(output)


def _tarfirst(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="input", nargs="?", default="-", help="the archive; - is stdin")
    grammar.add_concatenated(parser)
    parser.add_argument("-S", "--select", metavar="EXPR", help="Python expression, with the sample as _")
    parser.add_argument(
        "-f", "--field", metavar="FIELDS", default="img;image;ppm;pgm;pbm;jpeg;jpg;png", help="field, or alternatives"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")


def _wl_cat(parser: argparse.ArgumentParser) -> None:
    configure(parser)
    grammar.add_without_effect(parser, "--size", why=grammar.NO_SIZE, metavar="N")
    grammar.add_shuffle_first(parser, "--shuffle")


OLD = {"tarfirst": _tarfirst, "wl-cat": _wl_cat}


def _run_tarfirst(options: argparse.Namespace) -> int:
    """The name of what was found goes to stderr, always."""
    options.verbose = True
    return run(options)


OLD_RUN = {"tarfirst": _run_tarfirst}
