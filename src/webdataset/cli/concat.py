"""Concatenate shards: all samples, one after the other, into one archive or new shards.

Choose samples with -S, -s, -c and --slice, fields with -f; rename fields, number samples anew, shuffle a little.
"""

from __future__ import annotations

import argparse

from . import grammar

EXAMPLES = (
    ("wl concat -c 10 train-{000000..000009}.tar -o small.tar", "the first ten samples"),
    ("cat a.tar | wl concat -f 'jpg:jpeg,jpg cls' - | tar -tf -", "two fields, one of them renamed, from stdin to stdout"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_common(parser)
    grammar.add_output(parser)


def run(options: argparse.Namespace) -> int:
    from .flow import drain, reading

    return drain(options, reading(options))
