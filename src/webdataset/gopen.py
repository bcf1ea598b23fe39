"""Any url as a stream: `gopen(url)` for reading, `gopen(url, "wb")` for writing.

`gopen_schemes` says which function opens which scheme; programs add their own:

    gopen_schemes["mem"] = lambda url, mode, bufsize: io.BytesIO(store[url])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from .base.logs import Log
from .base.redact import redacted
from .base.settings import settings
from .errors import NoRangesError, SecurityError
from .handlers import checked_handler
from .storage.local import open_local, standard_stream
from .storage.options import StorageOptions
from .storage.ranges import RangeReader
from .storage.registry import OPENERS, check_mode, unknown_scheme
from .storage.shell.commands import DEFAULT_TIMEOUT, CommandStream
from .storage.urls import (
    OUR_SCHEMES,
    SCHEMES,
    as_url,
    is_local,
    is_replaced,
    opened_scheme,
    rewriting_refused,
    rewritten_url,
    scheme_of,
)

log = Log("webdataset.gopen")

# Programs put details here, which errors of commands show.
info: dict[str, Any] = {}


def gopen(
    url: object,
    mode: str = "rb",
    bufsize: int = 8192,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **kw: object,
) -> Any:
    """Open a url: a path, `-` for standard input or output, `file:`, `pipe:`, `http:`, `s3:` and more.

    `storage_options` say how servers and stores are reached, for any scheme; other options are those of the scheme.

    Args:
        url: what to open
        mode: "rb" to read, "wb" to write
        bufsize: the buffer of commands
        storage_options: as for a WebDataset
        **kw: options of the scheme's opener

    >>> with gopen("pipe:echo hello") as stream:
    ...     stream.read()
    b'hello\\n'
    """
    check_mode(mode)
    url = rewritten_url(as_url(url))
    if settings.gopen_verbose:
        log.warning("gopen %s %s", redacted(url), mode)
    if url == "-":
        return standard_stream(mode)
    scheme = opened_scheme(url)
    if scheme not in gopen_schemes and is_local(url):
        return gopen_file(url, mode, settings.gopen_buffer, **kw)
    options = StorageOptions.of(storage_options)
    if not is_replaced(url):  # an opener of the program's own does not know them
        kw = options.for_url(url, mode) | kw
    opener = gopen_schemes.get(scheme) or gopen_schemes.get("__default__") or gopen_error
    return opener(url, mode, bufsize, **kw)


def open_ranges(url: object, *, storage_options: Mapping[str, Any] | None = None, **options: object) -> RangeReader:
    """Open a url to read ranges of it; schemes that programs have added can only be read as whole streams.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file, open_ranges(file.name) as parts:
    ...     parts.size
    0
    """
    url = rewritten_url(as_url(url))
    if is_replaced(url):
        raise NoRangesError(f"{scheme_of(url)}: urls of your own cannot be read in parts", url=url)
    return RangeReader(url, **StorageOptions.of(storage_options).for_url(url) | options)


def reader(url: Any, **kw: Any) -> Any:
    """Open a url for reading."""
    return gopen(url, "rb", **kw)


def rewrite_url(url: str) -> str:
    """Apply `GOPEN_REWRITE="regex=replacement;..."`: the first rule that matches at the start and changes the url.

    In secure mode an error: there urls are what the program says.
    """
    if settings.secure:
        raise rewriting_refused(url)
    return rewritten_url(url)


class Pipe(CommandStream):
    """A command as a stream, with the arguments of `subprocess.Popen`.

    >>> with Pipe("echo hello", mode="r", shell=True) as stream:
    ...     stream.read()
    b'hello\\n'
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *args: Any,
        mode: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        ignore_errors: bool = False,
        ignore_status: Iterable[int] = (),
        **kw: Any,
    ) -> None:
        if mode not in ("r", "rb", "w", "wb"):
            raise ValueError(f'the mode of a Pipe must be "r" or "w", got {mode!r}')
        if args:
            raise TypeError("a Pipe takes one command; give the options of Popen by name")
        self.args = ((command,), dict(kw))
        kw.setdefault("shell", False)
        super().__init__(command, mode, timeout=timeout, ignore_errors=ignore_errors, ignore_status=ignore_status, **kw)

    def readLine(self) -> bytes:  # noqa: N802 - its old name
        """One line of output."""
        return self.readline()

    def check_status(self) -> None:
        """Raise if the command has ended badly by now."""
        if self.proc is not None and self.proc.poll() is not None:
            self._finish()

    def wait_for_child(self) -> None:
        """Wait for the command and raise if it ended badly."""
        self._finish()

    def _text(self) -> str:
        return super()._text() + (f" {redacted(str(info))}" if info else "")


def set_options(
    obj: object,
    timeout: float | None = None,
    ignore_errors: bool | None = None,
    ignore_status: Iterable[int] | None = None,
    handler: Callable[[Exception], Any] | None = None,
) -> bool:
    """Change how failures of a command are handled; False for a stream that is no command."""
    if handler is not None:
        checked_handler(handler)
    if not isinstance(obj, CommandStream):
        return False
    if timeout is not None:
        obj.timeout = timeout
    if ignore_errors is not None:
        obj.ignore_errors = ignore_errors
    if ignore_status is not None:
        obj.ignore_status = [0, *ignore_status]
    if handler is not None:
        obj.handler = handler
    return True


def gopen_file(url: object, mode: str = "rb", bufsize: int = -1) -> BinaryIO:
    """Open a path or `file:` url."""
    return open_local(as_url(url), mode, buffering=bufsize)


def gopen_pipe(url: str, mode: str = "rb", bufsize: int = 8192, **kw: Any) -> Pipe:
    """Run the shell command of a `pipe:` url."""
    if not url.lower().startswith("pipe:"):
        raise ValueError(f"a pipe: url is needed, got {redacted(url)!r}")
    if not settings.allow_pipe:
        raise SecurityError("commands are refused (WDS_SECURE or WDS_ALLOW_PIPE=0)", url=url)
    return Pipe(url[len("pipe:") :], mode=mode, shell=True, bufsize=bufsize, url=url, **kw)  # noqa: S604 - its purpose


def gopen_curl(url: str, mode: str = "rb", bufsize: int = 8192, **kw: object) -> Any:  # noqa: ARG001 - all openers take it
    """Open a web address, or a file of another machine (`ssh:`, `sftp:`, `scp:`, `ftps:`)."""
    return OPENERS[scheme_of(url)](url, mode, **kw)


def gopen_gsutil(url: str, mode: str = "rb", bufsize: int = 8192, **kw: object) -> Any:
    """Open a Google Cloud Storage object."""
    return OPENERS["gs"](url, mode, bufsize=bufsize, **kw)


def gopen_s3(url: str, mode: str = "rb", bufsize: int = 8192, **kw: object) -> Any:
    """Open an S3 object."""
    return OPENERS["s3"](url, mode, bufsize=bufsize, **kw)


def gopen_ais(url: str, mode: str = "rb", bufsize: int = 8192, **kw: object) -> Any:
    """Open an AIStore object, or another store's object through AIStore."""
    return OPENERS["ais"](url, mode, bufsize=bufsize, **kw)


def gopen_htgs(url: str, mode: str = "rb", bufsize: int = 8192, **kw: object) -> Any:
    """Open a Google Cloud Storage object under its old scheme."""
    return OPENERS["htgs"](url, mode, bufsize=bufsize, **kw)


def gopen_az(url: str, mode: str = "rb", bufsize: int = 8192, **kw: object) -> Any:
    """Open a blob of Azure."""
    return OPENERS["az"](url, mode, bufsize=bufsize, **kw)


def gopen_hf(url: str, mode: str = "rb", bufsize: int = 8192, **kw: object) -> Any:
    """Open a file of a Hugging Face repository."""
    return OPENERS["hf"](url, mode, bufsize=bufsize, **kw)


def gopen_error(url: str, *args: object, **kw: object) -> Any:  # noqa: ARG001 - stands in for an opener
    """The opener of unknown schemes: an error that says how to add one."""
    raise unknown_scheme(url, gopen_schemes)


gopen_schemes: dict[str, Callable[..., Any]] = SCHEMES
gopen_schemes |= {
    "__default__": gopen_error,
    "pipe": gopen_pipe,
    "http": gopen_curl,
    "https": gopen_curl,
    "ssh": gopen_curl,
    "sftp": gopen_curl,
    "ftps": gopen_curl,
    "scp": gopen_curl,
    "ais": gopen_ais,
    "gs": gopen_gsutil,
    "gcs": gopen_gsutil,
    "s3": gopen_s3,
    "htgs": gopen_htgs,
    "az": gopen_az,
    "abfs": gopen_az,
    "abfss": gopen_az,
    "hf": gopen_hf,
}

OUR_SCHEMES |= gopen_schemes

# `webdataset.gopen` is the function, so that programs reach the rest of this module through it.
for _name, _value in list(globals().items()):
    if not _name.startswith("_"):
        setattr(gopen, _name, _value)
