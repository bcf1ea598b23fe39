"""Run a command and return its exit code: 0 success, 1 bad data, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import threading
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import streams, terminal
from .grammar import Parser, UsageError, add_storage, command_parser, defaults
from .table import ALL, COMMANDS, SHARDWISE

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

FOR_PROGRAMMERS = (DeprecationWarning, ImportWarning, PendingDeprecationWarning, ResourceWarning)
DATA_ERROR, USAGE_ERROR, INTERRUPTED, TERMINATED = 1, 2, 130, 143
WITHOUT_URLS = ("cache", "completion", "keygen", "mon", "stat", "task")
PATIENCE = 5.0
"""Seconds after which a command that was asked to end by SIGTERM is asked again."""
AGAIN = 0.05
"""Seconds after which an interrupt that the interpreter dropped is raised again."""


def run_command(name: str, argv: Sequence[str]) -> int:
    """Run one command of the table."""
    if name not in ALL:
        return say_error(
            "wl", UsageError(f"there is no command {name!r}{_suggestion(name)}; `wl --help` lists the commands")
        )
    module = command_module(name)
    argv, given = module.split_words(argv) if hasattr(module, "split_words") else (argv, None)
    given = {"summarized": ALL[name].group in ("make", "transform", "export"), **(given or {})}
    return run_parser(parser_of(name, module), argv, runner_of(name, module), given)


def runner_of(name: str, module: ModuleType) -> Callable[[Namespace], int | None]:
    """Return what runs a command: the command itself, or with --on an engine."""
    run: Callable[[Namespace], int | None] = module.run
    if name not in SHARDWISE:
        return run

    def run_here_or_there(options: Namespace) -> int | None:
        if getattr(options, "on", None) is None:
            from .engines import check_without_engine

            check_without_engine(options)
            return run(options)
        from .engines import run_on_engine

        return run_on_engine(name, options, defaults(parser_of(name, module)))

    return run_here_or_there


def command_module(name: str) -> ModuleType:
    """Import the module of a command."""
    return importlib.import_module(f"{__package__}.{ALL[name].folder}.{name}")


def parser_of(name: str, module: ModuleType | None = None) -> Parser:
    """Return the complete parser of a command, from which help, docs/commands.md and completion are made."""
    module = module or command_module(name)
    parser = command_parser(name, description(module), module.EXAMPLES)
    module.configure(parser)
    if name in SHARDWISE:
        from .engines import add_engines

        add_engines(parser)
    if name not in WITHOUT_URLS:
        add_storage(parser)
    return parser


def description(module: object) -> str:
    """Return the description of a command: its docstring."""
    return str(module.__doc__).strip()


def run_parser(
    parser: Parser, argv: Sequence[str], run: Callable[[Namespace], int | None], defaults: dict[str, Any] | None = None
) -> int:
    """Parse the arguments and run; every way in which a command can end becomes an exit code and at most one line."""
    options = Namespace()
    _print_any_name()
    try:
        # argparse does not like a namespace that is not empty
        options = Namespace(**{**(defaults or {}), **vars(parser.parse_intermixed_args(plain_words(argv)))})
        with _warnings_as_lines(parser.prog, options), _termination(), _storage(options):
            code = run(options)
            sys.stdout.flush()
            return code or 0
    except SystemExit as ending:  # --help, and SIGTERM
        if not vars(options) or ending.code == TERMINATED:
            say_notes(parser.prog, ending)
            return ending.code if isinstance(ending.code, int) else 0
        # of one from another process only the arguments are sure to be here, not the code
        code = ending.args[0] if ending.args else None
        return say_error(parser.prog, RuntimeError(f"the code ended the program: SystemExit({code})"))
    except KeyboardInterrupt as interrupt:
        return say_interrupted(parser.prog, interrupt)
    except BaseException as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps one that comes while a class is made
            return say_interrupted(parser.prog, error)
        if stdout_is_gone(error) or stream_is_closed(error):
            return say_lost_stream(parser.prog, error)
        return say_error(parser.prog, error, verbose=getattr(options, "verbose", False))


def plain_words(argv: Sequence[str]) -> list[str]:
    """Remove `--` from the arguments: what follows it is a name, even if it begins with a dash.

    >>> plain_words(["-c", "1", "--", "-odd.tar", "-", "a.tar"])
    ['-c', '1', './-odd.tar', '-', 'a.tar']
    """
    words = list(argv)
    if "--" not in words:
        return words
    end = words.index("--")
    return words[:end] + [f"./{word}" if word[:1] == "-" != word else word for word in words[end + 1 :]]


def _print_any_name() -> None:
    """Make stdout accept names that cannot be encoded, so that they do not end a listing."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stdout: Any = sys.stdout
        utf8 = stdout.encoding.lower().replace("-", "") == "utf8"
        stdout.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")


def say_error(program: str, error: BaseException, *, verbose: bool = False) -> int:
    """Print an error as one line on stderr, after its traceback if `verbose`, and return the exit code."""
    from webdataset.base.printing import printable
    from webdataset.base.redact import redacted
    from webdataset.errors import ExistingShardsError, WebDatasetError

    if not isinstance(error, Exception):
        raise error
    if isinstance(error, ExistingShardsError):
        error = UsageError(f"{error.message}; --force replaces the set, -o takes another pattern")
    if verbose and not isinstance(error, UsageError):
        import traceback

        terminal.err(redacted("".join(traceback.format_exception(error))))
    wrong_use = isinstance(error, UsageError) or is_about_an_argument(error)
    known = wrong_use or isinstance(error, (WebDatasetError, OSError))
    text = str(error) if known else f"{type(error).__name__}: {error}"
    lines = text if isinstance(error, UsageError) else printable(" ".join(text.split("\n")))
    terminal.err(f"{program}: {redacted(lines)}\n")
    say_notes(program, error)
    return USAGE_ERROR if wrong_use else DATA_ERROR


def is_about_an_argument(error: BaseException) -> bool:
    """Whether our own code rejected a value, which must have come from the command line."""
    from webdataset.errors import WebDatasetError

    if not isinstance(error, ValueError) or isinstance(error, (WebDatasetError, UnicodeError)):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("webdataset.")


def say_interrupted(program: str, interrupt: BaseException) -> int:
    """Report Ctrl-C, and return the exit code."""
    # One that came out of an exec(), and every dataclass is made by one, is remembered by the interpreter, which would
    # end by the signal instead of with the exit code. It forgets it at the next exec().
    exec("")  # noqa: S102 - runs nothing
    with contextlib.suppress(OSError):
        terminal.err(f"{program}: interrupted\n")
    say_notes(program, interrupt)
    return INTERRUPTED


def say_notes(program: str, error: BaseException) -> None:
    """Print the notes of an exception, such as which complete shards are left, and of an interrupt before it."""
    with contextlib.suppress(OSError):
        if isinstance(error.__context__, (KeyboardInterrupt, SystemExit)):  # Ctrl-C was pressed again
            say_notes(program, error.__context__)
        for note in getattr(error, "__notes__", ()):
            terminal.err(f"{program}: {note}\n")


def stdout_is_gone(error: BaseException) -> bool:
    """Whether the reader of our stdout has closed the pipe."""
    return _is_of_a_stream(error, errno.EPIPE)


def stream_is_closed(error: BaseException) -> bool:
    """Whether the error comes from a standard stream that the shell has closed."""
    return bool(streams.closed) and _is_of_a_stream(error, errno.EBADF)


def _is_of_a_stream(error: BaseException, number: int) -> bool:
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno == number):
        cause = cause.__cause__
    return cause is not None and getattr(error, "url", None) in (None, "-")


def say_lost_stream(program: str, error: BaseException) -> int:
    """Handle a standard stream that cannot be used; a reader that has closed the pipe is not an error."""
    with contextlib.suppress(Exception):  # discard what Python would still flush
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    if stdout_is_gone(error):
        return 0
    if stream_is_closed(error):
        which = " or ".join(streams.closed)
        error = UsageError(f"{which} is closed: redirect it, for example to /dev/null")
    return say_error(program, error)


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, 1)
    return f", did you mean {close[0]!r}?" if close else ""


@contextlib.contextmanager
def _warnings_as_lines(program: str, options: Namespace) -> Iterator[None]:
    quiet = getattr(options, "quiet", False)
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        text = str(message)
        if not quiet and not issubclass(category, FOR_PROGRAMMERS) and text not in shown:
            shown.add(text)
            terminal.err(f"{program}: warning: {message}\n")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _storage(options: Namespace) -> Iterator[None]:
    """Use --storage for everything that the command opens."""
    if not getattr(options, "storage", None):
        yield
        return
    from webdataset.storage.options import StorageOptions, as_default

    with as_default(StorageOptions.parsed(options.storage)):
        yield


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Make SIGTERM end a command as Ctrl-C does: children and partly written files are removed.

    The interpreter drops an exception that a signal raises inside one of its callbacks (of a weak reference, for
    example, while a module is imported). Such a Ctrl-C or SIGTERM is raised again a moment later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending: list[type[BaseException]] = [SystemExit]

    def end(number: int, _: object) -> None:
        if number == signal.SIGTERM:
            ending[0] = SystemExit
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        raise SystemExit(TERMINATED) if ending[0] is SystemExit else ending[0]

    def hear(lost: UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, (KeyboardInterrupt, SystemExit)):
            ending[0] = type(lost.exc_value)
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            report(lost)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGALRM)}
    report, sys.unraisablehook = sys.unraisablehook, hear
    try:
        yield
    finally:
        sys.unraisablehook = report
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
