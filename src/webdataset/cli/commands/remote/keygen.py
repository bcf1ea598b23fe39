"""Make keys with which producers and trainers know each other, and encrypt what is between them.

The first file is for `wl serve --keys`, the others are for trainers, `RemoteLoader(..., keys=)`. If the first is
there already, the new trainers are added to those that it lets in; start its producers again then. Keep the files
secret.
"""

from __future__ import annotations

from argparse import Namespace

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl keygen serve.key train.key", "keys for producers, and for a trainer"),
    ("wl keygen serve.key alice.key bob.key", "two trainers more, each with a key of its own"),
)


def configure(parser: grammar.Parser) -> None:
    parser.add_argument("producer", metavar="PRODUCER", help="file for the keys of all producers")
    parser.add_argument("trainers", nargs="+", metavar="TRAINER", help="new file for the keys of a trainer")
    parser.switch("-q", "--quiet", help="do not say what was written")


def run(options: Namespace) -> None:
    from webdataset.remote.keys import make_keys

    written = make_keys(options.producer, options.trainers)
    if not options.quiet:
        terminal.err(f"wl keygen: wrote {', '.join(written)}\n")
