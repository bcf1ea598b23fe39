"""Look at a dataset in the browser: a wall of samples, every field, histograms, shards, problems, plans, live loaders.

The page is served to this machine only, under an address with a secret token, until Ctrl-C. Nothing is changed. Samples
are shown at once, while an index of the shards is made in the background and kept in the cache folder. To look at a
dataset on another machine, forward the port: ssh -L 8080:127.0.0.1:8080 HOST wl view --port 8080 --nobrowser ...

Without URLs, the page shows the loaders of this user that run with WDS_MONITOR=1 or were given monitor().
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from webdataset.base.stops import Thread
from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.view.answers import View

EXAMPLES = (
    ("wl view train-{000000..000009}.tar", "open the dataset in the browser"),
    ("wl view --port 8080 --nobrowser s3://bucket/train.tar", "print the address only, with a port of your choice"),
)
LISTENING = 0.5
"""Seconds after which Ctrl-C ends the view at the latest."""
MOST_DECODED = 768 << 20
"""Bytes that a field may expand to, with the copies made of images, unless WDS_MAX_DECODED_BYTES says otherwise."""


def configure(parser: grammar.Parser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="URL", help="shards to look at: files, URLs, braces, globs")
    grammar.add_concatenated(parser)
    parser.number("--port", default=0, help="the port to listen on (any that is free)")
    parser.switch("--nobrowser", help="print the address, and open no browser")


def run(options: Namespace) -> int:
    from webdataset.base.settings import settings
    from webdataset.cli.flow import urls_of

    settings.usual_decoded_bytes = MOST_DECODED
    if options.port > 65535:
        raise grammar.UsageError(f"a port is a number up to 65535, not {options.port}")
    with (
        opened_view(urls_of(options.inputs) if options.inputs else [], options) as view,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            terminal.err("wl view: open this address in a browser; Ctrl-C ends the view\n")
            terminal.out(f"{view.server.url}\n")
            sys.stdout.flush()
            if not options.nobrowser:
                open_browser(view.server.url, folder)
            while True:  # a signal that comes just before an endless wait would not be heard
                time.sleep(LISTENING)
        except KeyboardInterrupt:
            return 0  # the usual way to end it


def opened_view(urls: list[str], options: Namespace) -> View:
    """The view of these shards, with a port to listen on."""
    from webdataset.cli.inputs import is_special
    from webdataset.errors import MissingShardError
    from webdataset.storage.urls import local_path
    from webdataset.view.answers import View

    if special := next(filter(is_special, urls), None):
        raise grammar.UsageError(f"{special!r} is no shard: ranges of samples and channels cannot be looked at")
    paths = [local_path(url) for url in urls]
    if urls and not any(path is None or os.path.exists(path) for path in paths):
        raise MissingShardError("no such file", url=urls[0])
    try:
        return View(urls, concatenated=options.concatenated, port=options.port)
    except OSError as error:
        if not options.port:
            raise
        raise grammar.UsageError(f"port {options.port} cannot be had: {error.strerror}; --port takes another") from None


def open_browser(url: str, folder: str) -> None:
    """Open a browser, if there is one, without waiting for it.

    All users of a machine can see the arguments of a program: so it is given a file, which only its owner can read.
    """
    import html
    import webbrowser

    path = os.path.join(folder, "view.html")
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(
            f'<meta http-equiv="refresh" content="0; url={html.escape(url)}"><a href="{html.escape(url)}">wl view</a>'
        )
    Thread(target=webbrowser.open, args=(f"file://{path}",), daemon=True).start()
