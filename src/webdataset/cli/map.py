"""Apply Python to every sample.

The code is an expression, statements, a function in a file, or module:function. It sees the sample as `_` and its
fields by name, decoded when it looks at them; fields that it does not change keep their bytes.

An expression's value is the result: a sample (a dict), a list of samples, or None, which drops the sample.
Statements, such as `_["cls"] -= 1` or `cls -= 1`, change the sample itself. `numpy` (as `np`), `re`, `json`, `math`,
`os`, `io` and `random` need no import.
"""

from __future__ import annotations

import argparse
from functools import partial

from . import grammar

EXAMPLES = (
    (
        "wl map -c '_[\"cls\"] -= 1' in.tar -o out.tar",
        "subtract 1 from each class; pictures stay as they are, byte for byte",
    ),
    (
        "wl map -P 4 -e '_ if len(txt) > 10 else None' train-{000..099}.tar -o long-%06d.tar",
        "keep long texts, with four cores",
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    grammar.add_common(parser, short_count=False)
    parser.add_argument(
        "-c", dest="count_or_code", metavar="N|CODE", help="a number is --count, anything else is --code"
    )
    parser.add_argument("-e", "--code", metavar="CODE", help="an expression, or statements")
    parser.add_argument("-C", "--precode", metavar="CODE", action="append", help="code to begin with, such as imports")
    parser.add_argument(
        "-l", "--load", metavar="FILE.py", help="the function transform(sample) of a file; FILE.py:NAME"
    )
    parser.add_argument("-m", "--function", metavar="MODULE:NAME", help="a function of a module")
    grammar.add_decode(parser)
    grammar.add_processes(parser)
    grammar.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Map."""
    from webdataset.tools.mapping import map_samples

    from .expressions import transformation
    from .flow import drain, handler_of, reading

    split_count_and_code(options, "code")
    if not (options.code or options.load or options.function):
        raise grammar.UsageError("there is no code: give it with -c, -e, -l or -m")
    make = partial(
        transformation,
        options.code,
        load=options.load,
        function=options.function,
        decode=options.decode,
        precode="\n".join(options.precode or ()),
    )
    make()
    stage = map_samples(
        make,
        decode=options.decode,
        processes=options.processes,
        ordered=not options.unordered,
        handler=handler_of(options),
    )
    return drain(options, reading(options).compose(stage))


def split_count_and_code(options: argparse.Namespace, code: str) -> None:
    """-c is the count everywhere, and was the code in wl-map and wl-xargs: a mere number is no code."""
    text = getattr(options, "count_or_code", None)
    if text is None:
        return
    try:
        options.count = grammar.count(text)
    except argparse.ArgumentTypeError:
        if getattr(options, code):
            raise grammar.UsageError(f"there are two pieces of code; give one, with -c or --{code}") from None
        setattr(options, code, text)


# -- old names ---------------------------------------------------------------------------------------


def configure_wl_map(parser: argparse.ArgumentParser) -> None:
    """wl-map."""
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--code", metavar="CODE")
    parser.add_argument("-C", "--precode", metavar="CODE", action="append")
    parser.add_argument("-F", "--format", dest="decode", default="rgb", metavar="SPEC")
    parser.add_argument("-l", "--load", metavar="FILE.py")
    parser.add_argument(
        "-P", "-p", "--parallel", "--processes", dest="processes", type=grammar.count, default=0, metavar="N"
    )
    parser.add_argument("-O", "--ordered", action="store_true", help="the order always stays")
    parser.add_argument("-e", "--every", metavar="N", help="taken and not needed")
    parser.add_argument("-o", "--output", default="-", metavar="URL")
    parser.add_argument("--only", "--count", dest="count", type=grammar.count, metavar="N")
    parser.add_argument("--nokeycheck", action="store_true", help="taken and not needed")
    parser.add_argument("--on-error", choices=("skip", "stop", "raise"), default="raise")
    parser.add_argument("-v", "--verbose", action="store_true")


OLD = {"wl-map": configure_wl_map}
