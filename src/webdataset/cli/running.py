"""From arguments to an exit code: 0 done, 1 wrong data, 2 wrong use, 130 interrupted."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import threading
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import streams
from .grammar import Parser, UsageError, add_storage, command_parser
from .table import COMMANDS

FOR_PROGRAMMERS = (DeprecationWarning, ImportWarning, PendingDeprecationWarning, ResourceWarning)
DATA_ERROR, USAGE_ERROR, INTERRUPTED, TERMINATED = 1, 2, 130, 143
WITHOUT_URLS = ("cache", "completion")
PATIENCE = 5.0
"""Seconds after which a command that was told to end is told again."""


def run_command(name: str, argv: Sequence[str]) -> int:
    """Run one command of the table."""
    if name not in COMMANDS:
        return say_error("wl", UsageError(f"there is no command {name!r}{_meant(name)}; `wl --help` shows them"))
    module = command_module(name)
    return run_parser(parser_of(name, module), argv, module.run)


def command_module(name: str) -> Any:
    """The module that is a command."""
    return importlib.import_module(f"{__package__}.commands.{COMMANDS[name].module}")


def parser_of(name: str, module: Any = None) -> Parser:
    """The complete parser of a command: what help, pages and completion are made of."""
    module = module or command_module(name)
    parser = command_parser(name, about(module), module.EXAMPLES)
    module.configure(parser)
    if name not in WITHOUT_URLS:
        add_storage(parser)
    return parser


def about(module: Any) -> str:
    """What a command does: its docstring, shorn of what is for programmers."""
    return str(module.__doc__).strip()


def run_parser(
    parser: ArgumentParser,
    argv: Sequence[str],
    run: Callable[[Namespace], int | None],
    given: dict[str, Any] | None = None,
) -> int:
    """Parse and run; every way in which a command can end becomes an exit code and at most one line."""
    options = Namespace()
    _print_any_name()
    try:
        # argparse minds a namespace that is not empty
        options = Namespace(**{**(given or {}), **vars(parser.parse_intermixed_args(plain_words(argv)))})
        with _warnings_as_lines(parser.prog, options), _termination(), _storage(options):
            code = run(options)
            sys.stdout.flush()
            return code or 0
    except SystemExit as ending:  # --help, and SIGTERM
        if not vars(options) or ending.code == TERMINATED:
            say_notes(parser.prog, ending)
            return ending.code if isinstance(ending.code, int) else 0
        return say_error(parser.prog, RuntimeError(f"the code ended the program: SystemExit({ending.code})"))
    except KeyboardInterrupt as interrupt:
        return say_interrupted(parser.prog, interrupt)
    except BaseException as error:
        if stdout_is_gone(error) or stream_is_closed(error):
            return say_lost_stream(parser.prog, error)
        return say_error(parser.prog, error, verbose=getattr(options, "verbose", False))


def plain_words(argv: Sequence[str]) -> list[str]:
    """The arguments without `--`: what stands behind it is a name, even if it begins with a dash.

    >>> plain_words(["-c", "1", "--", "-odd.tar", "-", "a.tar"])
    ['-c', '1', './-odd.tar', '-', 'a.tar']
    """
    words = list(argv)
    if "--" not in words:
        return words
    end = words.index("--")
    return words[:end] + [f"./{word}" if word[:1] == "-" != word else word for word in words[end + 1 :]]


def _print_any_name() -> None:
    """Names need not be text in the terminal's encoding, nor text at all; no listing ends for that."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stdout: Any = sys.stdout
        utf8 = stdout.encoding.lower().replace("-", "") == "utf8"
        stdout.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")


def say_error(program: str, error: BaseException, *, verbose: bool = False) -> int:
    """One line on stderr, with a traceback before it if wanted; the result is the exit code."""
    from webdataset.base.printing import printable
    from webdataset.base.redact import redacted
    from webdataset.errors import ExistingShardsError, WebDatasetError

    if not isinstance(error, Exception):
        raise error
    if isinstance(error, ExistingShardsError):
        error = UsageError(f"{error.message}; --force replaces the set, -o takes another pattern")
    if verbose and not isinstance(error, UsageError):
        import traceback

        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    wrong_use = isinstance(error, UsageError) or is_about_an_argument(error)
    known = wrong_use or isinstance(error, (WebDatasetError, OSError))
    text = str(error) if known else f"{type(error).__name__}: {error}"
    lines = text if isinstance(error, UsageError) else printable(" ".join(text.split("\n")))
    sys.stderr.write(f"{program}: {redacted(lines)}\n")
    say_notes(program, error)
    return USAGE_ERROR if wrong_use else DATA_ERROR


def is_about_an_argument(error: BaseException) -> bool:
    """Whether our own code refused a value that it was given: that came from the command line."""
    from webdataset.errors import WebDatasetError

    if not isinstance(error, ValueError) or isinstance(error, (WebDatasetError, UnicodeError)):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("webdataset.")


def say_interrupted(program: str, interrupt: BaseException) -> int:
    """Ctrl-C is no error, but not the whole result either."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{program}: interrupted\n")
    say_notes(program, interrupt)
    return INTERRUPTED


def say_notes(program: str, error: BaseException) -> None:
    """What else is to be known of an ending: which complete shards it leaves."""
    with contextlib.suppress(OSError):
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"{program}: {note}\n")


def stdout_is_gone(error: BaseException) -> bool:
    """Whether the error comes from a reader of our stdout that has seen enough."""
    return _is_of_a_stream(error, errno.EPIPE)


def stream_is_closed(error: BaseException) -> bool:
    """Whether the error comes from a stream that the shell has closed."""
    return bool(streams.closed) and _is_of_a_stream(error, errno.EBADF)


def _is_of_a_stream(error: BaseException, number: int) -> bool:
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno == number):
        cause = cause.__cause__
    return cause is not None and getattr(error, "url", None) in (None, "-")


def say_lost_stream(program: str, error: BaseException) -> int:
    """A standard stream cannot be used; that nobody reads our output any more is no error."""
    with contextlib.suppress(Exception):  # what Python would still flush goes nowhere
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    if stdout_is_gone(error):
        return 0
    if stream_is_closed(error):
        which = " or ".join(streams.closed)
        error = UsageError(f"{which} is closed: redirect it, to /dev/null if it is not wanted")
    return say_error(program, error)


def _meant(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, 1)
    return f", did you mean {close[0]!r}?" if close else ""


@contextlib.contextmanager
def _warnings_as_lines(program: str, options: Namespace) -> Iterator[None]:
    quiet = getattr(options, "quiet", False)
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = str(message)
        if not quiet and not issubclass(category, FOR_PROGRAMMERS) and text not in said:
            said.add(text)
            sys.stderr.write(f"{program}: warning: {message}\n")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _storage(options: Namespace) -> Iterator[None]:
    """A command has one set of storage options, for all that it opens."""
    if not getattr(options, "storage", None):
        yield
        return
    from webdataset.storage.options import StorageOptions, as_default

    with as_default(StorageOptions.parsed(options.storage)):
        yield


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: children go, half written files too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        # an exception that a signal raises inside a callback of the interpreter is lost; so ask again if need be
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        raise SystemExit(TERMINATED)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
