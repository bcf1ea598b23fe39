"""Folders and files of one's own, in places where other users may write, too: runs, caches, what is published.

What is opened here belongs to this user, nobody else may write to it, and no link led to it. So a stranger who was
there first, or swaps something meanwhile, neither gives us contents nor redirects what is written.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     write_private(f"{folder}/run", "plans/a.json", b"{}")
...     with opened(f"{folder}/run", "plans/a.json", os.O_RDONLY) as file:
...         os.read(file, 10)
b'{}'
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from webdataset.errors import SecurityError

from .settings import settings

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_LINKS = _NO_FOLLOW | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NO_LINKS
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_own(facts: os.stat_result, path: str) -> None:
    """Refuse a folder or file that is not this user's own, or to which others may write."""
    if not hasattr(os, "geteuid"):  # Windows, whose owners and rights are others
        return
    if facts.st_uid not in (os.geteuid(), 0, settings.owner):
        what, cure = "this belongs to another user", "name a place of your own"
    elif facts.st_mode & OTHERS_WRITE:
        what, cure = "other users may write here", f"chmod go-w {path}, if all that is there is your own"
    else:
        return
    raise SecurityError(what, url=path, hint=cure)


def make_private(path: str) -> None:
    """Make a folder that only this user may enter, unless it is there; then it must be this user's own."""
    with contextlib.suppress(FileExistsError):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        os.mkdir(path, 0o700)
    os.close(opened_folder(path))


def opened_folder(path: str, *, foreign: bool = False) -> int:
    """A descriptor of a folder of one's own; with `foreign`, of anybody's, also behind a link that the user names."""
    try:
        number = os.open(path, _FOLDER & ~_NO_FOLLOW if foreign else _FOLDER)
    except OSError:
        _check_link(os.lstat(path), path)
        raise
    return number if foreign else _checked(number, path)


@contextlib.contextmanager
def inside(folder: str, name: str, *, make: bool = False, foreign: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder in which a file lies, and the file's name there; `make` makes folders on the way."""
    *parents, last = name.split("/")
    if not all(part.strip(".") for part in (*parents, last)):
        raise SecurityError(f"the name {name!r} leads out of its folder", url=folder)
    if make and not os.path.lexists(folder):
        make_private(folder)
    number, path = opened_folder(folder, foreign=foreign), folder
    try:
        for part in parents:
            path = os.path.join(path, part)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=number)
            try:
                inner = os.open(part, _FOLDER, dir_fd=number)
            except OSError:
                _check_link(os.stat(part, dir_fd=number, follow_symlinks=False), path)
                raise
            os.close(number)
            number = inner
            if not foreign:
                check_own(os.fstat(number), path)
        yield number, last
    finally:
        os.close(number)


@contextlib.contextmanager
def opened(folder: str, name: str, flags: int, *, foreign: bool = False) -> Iterator[int]:
    """A descriptor of a regular file in a folder of one's own, which is made if it is to be."""
    with inside(folder, name, make=bool(flags & os.O_CREAT), foreign=foreign) as (parent, last):
        number = open_regular(last, flags, folder=parent)
    try:
        yield number
    finally:
        os.close(number)


def open_regular(path: str, flags: int, mode: int = 0o644, *, folder: int | None = None) -> int:
    """A descriptor of a regular file; a link to one, or a pipe that somebody has put there, is a SecurityError."""
    try:
        number = os.open(path, flags | NO_LINKS | getattr(os, "O_NONBLOCK", 0), mode, dir_fd=folder)
    except OSError:
        _check_link(os.stat(path, dir_fd=folder, follow_symlinks=False), path)
        raise
    if stat.S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    raise SecurityError("this is no regular file", url=path, hint="remove it")


def write_private(
    folder: str, name: str, data: bytes, mode: int = 0o644, *, make: bool = True, foreign: bool = False
) -> None:
    """Write a file into a folder of one's own, which appears under its name when it is complete."""
    with inside(folder, name, make=make, foreign=foreign) as (parent, last):
        temporary = f".{last[:200]}.{os.urandom(6).hex()}.tmp"
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, mode, dir_fd=parent)
        try:
            with open(number, "wb") as file:
                file.write(data)
            os.replace(temporary, last, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(temporary, dir_fd=parent)
            raise


def _checked(number: int, path: str) -> int:
    try:
        check_own(os.fstat(number), path)
    except BaseException:
        os.close(number)
        raise
    return number


def _check_link(facts: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(facts.st_mode):
        raise SecurityError("this is a link, and links are not followed here", url=path, hint="name the place itself")
