"""Write fields of samples to files that never leave a folder.

Names come from the data, so they are checked part by part: no `..`, nothing absolute, no names of devices; and each
folder on the way is opened without following links, so that a link inside the folder leads nowhere either.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from webdataset.errors import SecurityError, StorageError
from webdataset.filters.fields import parse_field_spec
from webdataset.handlers import Handler, handled, reraise_exception
from webdataset.storage.local import allowed_path
from webdataset.storage.publish import as_storage_error
from webdataset.tar.large import LargeMember
from webdataset.tools.transform.choosing import field_named, nested_value
from webdataset.tools.transform.lazy import LazySample, field_decoder, missing_field

Sample = Mapping[str, Any]

DEFAULT_PATTERN = "out-{index:06d}"

_DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])([. :].*)?$", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def dump(
    samples: Iterable[Sample],
    pattern: str = DEFAULT_PATTERN,
    *,
    fields: str | Sequence[str] | None = None,
    force: bool = False,
    handler: Handler = reraise_exception,
) -> Iterator[str]:
    """Write fields to files and yield their paths.

    The pattern may hold {index} (counted from 0), {key}, {field} and any field of the sample by its name, as {cls} or
    {json.label}; without {field}, the field is added as the extension. The folder before its first brace is made if it
    is not there, and everything stays in it. Without `fields`, all are written. A file that exists is an error unless
    `force`.
    """
    folder, rest = _split(pattern)
    names = None if fields is None else parse_field_spec(fields)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise as_storage_error(error, folder) from error
    target = _Target(allowed_path(folder), folder, force=force)

    def written(numbered: tuple[int, Sample]) -> list[str]:
        index, sample = numbered
        wanted = _chosen(sample, names)
        paths = {field: _path(rest, index, sample, field) for field in wanted}
        return [target.write(path, sample[field]) for field, path in paths.items()]

    return (path for paths in handled(enumerate(samples), written, handler) for path in paths)


def safe_parts(name: str) -> list[str]:
    """Split a relative name that stays in its folder into its parts; SecurityError for others.

    >>> safe_parts("train/dog.jpg")
    ['train', 'dog.jpg']
    >>> safe_parts("../dog.jpg")
    Traceback (most recent call last):
    webdataset.errors.SecurityError: the name leaves the folder [member ../dog.jpg]; {index} in the pattern is safe
    """
    parts = name.split("/")
    if os.sep != "/":
        parts = [part for piece in parts for part in piece.split(os.sep)]
    if name.startswith(("/", "\\")) or _DRIVE.match(name):
        raise _refused("the name is absolute", name)
    if ".." in parts or "\0" in name:
        raise _refused("the name leaves the folder", name)
    if any(_DEVICES.match(part) for part in parts):
        raise _refused("the name is that of a device on some systems", name)
    parts = [part for part in parts if part not in ("", ".")]
    if not parts or name.endswith(("/", "/.")):
        raise _refused("the name is that of a folder", name)
    return parts


class _Target:
    """A folder that files are written into."""

    def __init__(self, real: str, shown: str, *, force: bool) -> None:
        self.real = real
        self.shown = shown
        self.force = force

    def write(self, name: str, data: object) -> str:
        parts = safe_parts(name)
        path = os.path.join("" if self.shown == "." else self.shown, *parts)
        if not isinstance(data, (bytes, bytearray, memoryview, LargeMember)):
            raise StorageError(f"bytes are needed to write a file, got {type(data).__name__}", url=path)
        try:
            with self._opened(parts[:-1]) as folder:
                self._place(folder, parts[-1], data.pieces() if isinstance(data, LargeMember) else (data,), path)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise as_storage_error(error, path) from error
        return path

    @contextlib.contextmanager
    def _opened(self, parts: list[str]) -> Iterator[int]:
        """Open a folder in the target, one part at a time, as a descriptor."""
        folder = os.open(self.real, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            for part in parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                mode = os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    raise _refused("there is a link instead of a folder, and links are not followed", part)
                inner = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _place(self, folder: int, name: str, pieces: Iterable[Any], path: str) -> None:
        if not self.force and _exists(folder, name):
            raise _exists_error(path)
        temporary = f".{secrets.token_hex(8)}.tmp"
        try:
            with open(os.open(temporary, _NEW, 0o666, dir_fd=folder), "wb") as file:
                for piece in pieces:
                    file.write(piece)
            if self.force:
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                self._rename_new(folder, temporary, name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)

    def _rename_new(self, folder: int, temporary: str, name: str, path: str) -> None:
        """Rename by linking, which fails if the name exists, so that not even a new file is overwritten."""
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise _exists_error(path) from None
        except OSError:  # a file system without links
            if _exists(folder, name):
                raise _exists_error(path) from None
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _split(pattern: str) -> tuple[str, str]:
    """Split a pattern into the user's folder and the rest, which is filled in from the data."""
    brace = pattern.find("{")
    slash = pattern.rfind("/", 0, brace if brace >= 0 else len(pattern))
    folder, rest = (pattern[: slash + 1], pattern[slash + 1 :]) if slash >= 0 else (".", pattern)
    if not rest:
        raise ValueError(f"the pattern {pattern!r} names no file: write {pattern}{{key}} or {pattern}out-{{index:06d}}")
    _filled(rest, 0, "", "", _AnyField())
    return folder if len(folder) < 2 else folder.rstrip("/") or "/", rest


def _path(pattern: str, index: int, sample: Sample, field: str) -> str:
    name = _filled(pattern, index, str(sample.get("__key__", index)), field, sample)
    return name if "{field" in pattern else f"{name}.{field}"


class _AnyField(dict[str, Any]):
    """Stands for a sample while a pattern is looked at: it has every field."""

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> int:
        return 0


class _Pattern(string.Formatter):
    """Fills names in from the index, the key, the field that is written, and then the fields of the sample."""

    def __init__(self, own: dict[str, Any], sample: Sample) -> None:
        self.own, self.sample = own, sample

    def get_field(self, field_name: str, args: object, kwargs: object) -> tuple[Any, str]:  # noqa: ARG002 - string.Formatter's
        if field_name in self.own:
            return self.own[field_name], field_name
        if not field_name or field_name.isdigit():
            raise ValueError("it has no name in its braces")
        value = nested_value(self.sample, field_name)
        # a field is one part of a name: it makes no folders of its own
        return (value.strip().replace("/", "_") if isinstance(value, str) else value), field_name


def _filled(pattern: str, index: int, key: str, field: str, sample: Sample) -> str:
    values = sample if isinstance(sample, _AnyField) else LazySample(dict(sample), field_decoder("basic"))
    try:
        return _Pattern({"index": index, "key": key, "field": field}, values).vformat(pattern, (), {})
    except KeyError as error:
        raise missing_field(str(error.args[0] if error.args else error), sample) from None
    except (IndexError, ValueError, AttributeError, TypeError) as error:
        hint = "there are {index}, {index:06d}, {key}, {field}, and the fields of the sample, such as {cls}"
        raise ValueError(f"the pattern {pattern!r} cannot be filled in ({error}); {hint}") from None


def _chosen(sample: Sample, names: list[list[str]] | None) -> list[str]:
    if names is None:
        return [name for name in sample if not name.startswith("_")]
    return [field_named(sample, alternatives) for alternatives in names]


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _exists_error(path: str) -> StorageError:
    return StorageError("this file exists already", url=path, hint="--force replaces it")


def _refused(message: str, name: str) -> SecurityError:
    return SecurityError(message, member=name, hint="{index} in the pattern is safe")
