"""Old programs that show samples: wl-cat, wl-extract, wl-dump, wl-info, wl-show, wl-test, tarfirst, tarshow, tar2*."""

from __future__ import annotations

from argparse import Namespace

from webdataset.cli import grammar
from webdataset.cli.commands import cat, dump, extract, info, show, test
from webdataset.cli.grammar import Parser

from . import program as old
from .program import NO_SIZE, OldProgram


def configure_tarfirst(parser: Parser) -> None:
    parser.add_argument("url", metavar="input", nargs="?", default="-", help="the archive; - for stdin")
    old.same(parser, "cat", concatenated="--concatenated", select="-S --select", verbose="-v --verbose")
    images = "img;image;ppm;pgm;pbm;jpeg;jpg;png"
    parser.add_argument("-f", "--field", metavar="FIELDS", default=images, help=f"field, or alternatives ({images})")


def run_tarfirst(options: Namespace) -> int:
    """Run tarfirst, which always prints the name of the member on stderr."""
    options.verbose = True
    return cat.run(options)


def configure_wl_cat(parser: Parser) -> None:
    cat.configure(parser)
    old.without_effect(parser, "--size", why=NO_SIZE, metavar="N")
    old.shuffle_first(parser)


def configure_tar2tsv(parser: Parser) -> None:
    grammar.add_inputs(parser)
    old.same(parser, "extract", fields="-f --fields", count="-c --count", nokey="--nokey", noheader="--noheader")
    parser.set_defaults(decode="raw", format="tsv")


def configure_tar2json(parser: Parser) -> None:
    grammar.add_inputs(parser)
    old.same(parser, "extract", fields="-k --keys", all="-a --all", nokey="--nokey", verbose="-v --verbose")
    text = "JSON Lines, a list, or YAML documents (jsonlines)"
    parser.add_argument("-f", "--format", dest="kind", choices=tuple(FORMATS), default="jsonlines", help=text)


FORMATS = {"jsonlines": "json", "json": "jsonlist", "yaml": "yaml"}


def run_tar2json(options: Namespace) -> int:
    options.format = FORMATS[options.kind]
    return extract.run(options)


def configure_wl_extract(parser: Parser) -> None:
    extract.configure(parser)
    parser.add_argument("-P", "--code", metavar="CODE", help="Python code to run on each sample first, as in `wl map`")
    parser.set_defaults(nokey=True, noheader=True)


def configure_wl_dump(parser: Parser) -> None:
    dump.configure(parser)
    old.without_effect(parser, "-d", "--decode", why="fields are written as they are stored", metavar="SPEC")
    old.without_effect(parser, "--batch-size", why="there are no batches", metavar="N")
    old.shuffle_first(parser)
    parser.set_defaults(count=1, fields="png;jpg;ppm;jpeg")


def configure_wl_info(parser: Parser) -> None:
    info.configure(parser)
    old.without_effect(parser, "--size", why=NO_SIZE, metavar="N")


def configure_wl_test(parser: Parser) -> None:
    grammar.add_inputs(parser)
    parser.number("-c", "--count", default=10, help="batches to read (10)")
    old.without_effect(parser, "--skip", why="the first item of each stage is not measured anyway", metavar="N")
    parser.number("--batchsize", default=64, help="samples in a batch (64)")
    parser.number("--nbatches", dest="count", help="batches to read")
    old.same(parser, "test", decode="--decode", fields="--fields", processes="--processes -P -p", shuffle="--shuffle")
    old.without_effect(parser, "--qsize", why="the loader chooses the length of its queues", metavar="N")
    old.without_effect(parser, "--size", why=NO_SIZE, metavar="N")


def run_wl_test(options: Namespace) -> int:
    """Run wl-test, which counts batches."""
    options.count *= max(options.batchsize, 1)
    return test.run(options)


def configure_tarshow(parser: Parser) -> None:
    grammar.add_inputs(parser)
    add = parser.add_argument
    parser.number("-c", "--count", help="stop after N samples")
    add("-f", "--field", dest="image", metavar="FIELD", help="show this field as an image")
    parser.switch("-N", "--normalize", help="stretch images to the full range from black to white")
    add("-C", "--cmap", choices=("gray",), help="show single-channel images in grey")
    add("-d", "--delay", metavar="S", type=float, default=0.0, help="wait S seconds after each sample")
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
    grammar.add_inputs(parser)
    grammar.add_selection(parser)
    old.same(parser, "show", fields="-f --fields")
    parser.number("-e", "--each", default=1, help="show every Nth sample only")
    old.shuffle_first(parser)
    parser.set_defaults(count=10)


PROGRAMS = {
    "wl-cat": OldProgram("cat", configure_wl_cat),
    "wl-extract": OldProgram("extract", configure_wl_extract),
    "wl-dump": OldProgram("dump", configure_wl_dump),
    "wl-info": OldProgram("info", configure_wl_info),
    "wl-test": OldProgram("test", configure_wl_test, run_wl_test),
    "wl-show": OldProgram("show", configure_wl_show),
    "tar2tsv": OldProgram("extract", configure_tar2tsv),
    "tar2json": OldProgram("extract", configure_tar2json, run_tar2json),
    "tarfirst": OldProgram("cat", configure_tarfirst, run_tarfirst),
    "tarshow": OldProgram("show", configure_tarshow, run_tarshow),
}
