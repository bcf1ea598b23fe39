"""Old programs that show samples: wl-cat, wl-extract, wl-dump, wl-info, wl-show, wl-test, tarfirst, tarshow, tar2*."""

from __future__ import annotations

from argparse import Namespace

from webdataset.cli import grammar
from webdataset.cli.commands import cat, dump, extract, info, show, test
from webdataset.cli.grammar import Parser

from . import program as old
from .program import NO_SIZE, Program


def configure_tarfirst(parser: Parser) -> None:
    """Add the flags of tarfirst."""
    parser.add_argument("url", metavar="input", nargs="?", default="-", help="the archive; - for stdin")
    grammar.add_concatenated(parser)
    parser.add_argument("-S", "--select", metavar="EXPR", help="Python expression, with the sample as _")
    images = "img;image;ppm;pgm;pbm;jpeg;jpg;png"
    parser.add_argument("-f", "--field", metavar="FIELDS", default=images, help=f"field, or alternatives ({images})")
    old.verbose(parser)


def run_tarfirst(options: Namespace) -> int:
    """Run tarfirst, which always prints the name of the member on stderr."""
    options.verbose = True
    return cat.run(options)


def configure_wl_cat(parser: Parser) -> None:
    """Add the flags of wl-cat."""
    cat.configure(parser)
    old.without_effect(parser, "--size", why=NO_SIZE, metavar="N")
    old.shuffle(parser, "--shuffle", dest="shuffle_first")


def configure_tar2tsv(parser: Parser) -> None:
    """Add the flags of tar2tsv."""
    grammar.add_inputs(parser)
    grammar.add_fields(parser, 'fields: "a;b c"')
    parser.number("-c", "--count", help="stop after N samples")
    parser.switch("--nokey", help="no column with the key")
    parser.switch("--noheader", help="no header line")
    parser.set_defaults(decode="raw", format="tsv")


def configure_tar2json(parser: Parser) -> None:
    """Add the flags of tar2json."""
    grammar.add_inputs(parser)
    parser.add_argument("-k", "--keys", dest="fields", metavar="FIELDS", help='fields: "a b"')
    parser.switch("-a", "--all", help="all fields")
    text = "JSON Lines, a list, or YAML documents (jsonlines)"
    parser.add_argument("-f", "--format", dest="kind", choices=tuple(FORMATS), default="jsonlines", help=text)
    old.verbose(parser)
    parser.switch("--nokey", help="no key")


FORMATS = {"jsonlines": "json", "json": "jsonlist", "yaml": "yaml"}


def run_tar2json(options: Namespace) -> int:
    """Run tar2json."""
    options.format = FORMATS[options.kind]
    return extract.run(options)


def configure_wl_extract(parser: Parser) -> None:
    """Add the flags of wl-extract."""
    extract.configure(parser)
    parser.add_argument("-P", "--code", metavar="CODE", help="Python code to run on each sample first, as in `wl map`")
    parser.set_defaults(nokey=True, noheader=True)


def configure_wl_dump(parser: Parser) -> None:
    """Add the flags of wl-dump."""
    dump.configure(parser)
    old.without_effect(parser, "-d", "--decode", why="fields are written as they are stored", metavar="SPEC")
    old.without_effect(parser, "--batch-size", why="there are no batches", metavar="N")
    old.shuffle(parser, "--shuffle", dest="shuffle_first")
    parser.set_defaults(count=1, fields="png;jpg;ppm;jpeg")


def configure_wl_info(parser: Parser) -> None:
    """Add the flags of wl-info."""
    info.configure(parser)
    old.without_effect(parser, "--size", why=NO_SIZE, metavar="N")


def configure_wl_test(parser: Parser) -> None:
    """Add the flags of wl-test."""
    grammar.add_inputs(parser)
    parser.number("-c", "--count", default=10, help="batches to read (10)")
    old.without_effect(parser, "--skip", why="the first item of each stage is not measured anyway", metavar="N")
    test.add_decode(parser)
    parser.number("--batchsize", default=64, help="samples in a batch (64)")
    parser.number("--nbatches", dest="count", help="batches to read")
    parser.add_argument("--fields", metavar="SPEC", help="make tuples of fields")
    parser.number("--processes", "-P", "-p", default=0, help="number of workers (0)")
    old.shuffle(parser, "--shuffle")
    old.without_effect(parser, "--qsize", why="the loader chooses the length of its queues", metavar="N")
    old.without_effect(parser, "--size", why=NO_SIZE, metavar="N")


def run_wl_test(options: Namespace) -> int:
    """Run wl-test, which counts batches."""
    options.count *= max(options.batchsize, 1)
    return test.run(options)


def configure_tarshow(parser: Parser) -> None:
    """Add the flags of tarshow."""
    grammar.add_inputs(parser)
    parser.number("-c", "--count", help="stop after N samples")
    parser.add_argument("-f", "--field", dest="image", metavar="FIELD", help="show this field as an image")
    parser.switch("-N", "--normalize", help="stretch images to the full range from black to white")
    parser.add_argument("-C", "--cmap", choices=("gray",), help="show single-channel images in grey")
    parser.add_argument("-d", "--delay", metavar="S", type=float, default=0.0, help="wait S seconds after each sample")
    parser.switch("--silent", help="images only, no text")
    parser.switch("--verbatim-keys", help="-f is case-sensitive")
    parser.switch("--use-keyboard", help="wait for the Enter key after each sample")


def run_tarshow(options: Namespace) -> int:
    """Run tarshow, which shows text, and images only with -f."""
    if options.image is None:
        options.protocol = "text"
    else:
        options.fields = options.image if options.verbatim_keys else options.image.lower()
    return show.run(options)


def configure_wl_show(parser: Parser) -> None:
    """Add the flags of wl-show."""
    grammar.add_inputs(parser)
    grammar.add_selection(parser)
    grammar.add_fields(parser, "fields to show")
    parser.number("-e", "--each", default=1, help="show every Nth sample only")
    old.shuffle(parser, "--shuffle", dest="shuffle_first")
    parser.set_defaults(count=10)


PROGRAMS = {
    "wl-cat": Program("cat", configure_wl_cat),
    "wl-extract": Program("extract", configure_wl_extract),
    "wl-dump": Program("dump", configure_wl_dump),
    "wl-info": Program("info", configure_wl_info),
    "wl-test": Program("test", configure_wl_test, run_wl_test),
    "wl-show": Program("show", configure_wl_show),
    "tar2tsv": Program("extract", configure_tar2tsv),
    "tar2json": Program("extract", configure_tar2json, run_tar2json),
    "tarfirst": Program("cat", configure_tarfirst, run_tarfirst),
    "tarshow": Program("show", configure_tarshow, run_tarshow),
}
