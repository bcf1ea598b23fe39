"""Atomic files: they appear under their name only when they are complete.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     file = AtomicFile(os.path.join(folder, "a.tar"))
...     _ = file.write(b"hello")
...     before = os.path.exists(file.path)
...     file.publish()
...     before, os.listdir(folder)
(False, ['a.tar'])

While it is written the file is called `.NAME.RANDOM.tmp`, in the same folder. A killed process leaves only that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Sequence

from webdataset.errors import MissingShardError, StorageError

from .local import allowed_path

TEMPORARY_SUFFIX = ".tmp"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}
_NO_COPIES = {errno.EXDEV, errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY}
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class AtomicFile:
    """A local file being written: `publish()` renames it, `abort()` leaves nothing.

    A write that fails (a full disk) aborts at once; the file cannot be published afterwards.
    With `durable=True` the data is on the disk itself before the name appears, so that not even a power
    failure leaves half a file; that costs the time the disk needs.
    """

    def __init__(self, path: str, *, durable: bool = False, mode: int = 0o666) -> None:
        self.path = checked_target(path)
        self.durable = durable
        self.failed = False
        folder, name = os.path.split(self.path)
        # names have at most 255 bytes, and this one is longer than the file's own
        short = os.fsdecode(os.fsencode(name)[:200])
        self.temporary = os.path.join(folder, f".{short}.{os.urandom(6).hex()}{TEMPORARY_SUFFIX}")
        self._fd, self.closed = -1, False
        try:
            self._fd = os.open(self.temporary, _FLAGS, mode)
            self._keep_mode()
        except OSError as error:
            raise self._failure(error) from error
        except BaseException:  # an interrupt, of which the system knows nothing
            self.abort()
            raise

    def write(self, data: bytes) -> int:
        """Write all of these bytes."""
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise self._failure(error) from error
        return len(data)

    def writev(self, parts: Sequence[bytes]) -> None:
        """Write all of these parts, without making one of them first."""
        try:
            done = os.writev(self._fd, parts)
        except OSError as error:
            raise self._failure(error) from error
        if done < sum(map(len, parts)):
            self.write(b"".join(parts)[done:])

    def append(self, source: int, start: int, size: int) -> None:
        """Copy that many bytes of another open file, from this offset on, inside the system if it can."""
        try:
            while size:
                done = _copied(source, self._fd, start, size)
                if not done:
                    raise StorageError(f"a file that is copied lost {size} bytes meanwhile", url=self.path)
                start, size = start + done, size - done
        except StorageError:
            self.abort()
            raise
        except OSError as error:
            raise self._failure(error) from error

    def publish(self) -> None:
        """Give the complete file its name, replacing any file of that name."""
        self._complete()
        try:
            os.replace(self.temporary, self.path)
            self._sync_folder()
        except OSError as error:
            raise self._failure(error) from error

    def publish_as_first_free(self, names: Iterable[tuple[int, str]]) -> tuple[int, str]:
        """Give the complete file the first of these numbered names that is free, and return it.

        A name is taken by a hard link, which fails where the name exists: so processes that publish into
        one sequence of names never clash, and never leave a gap, whenever one of them dies.
        """
        self._complete()
        try:
            number, name = next((n, name) for n, name in names if self._link(name))
            os.unlink(self.temporary)
            self._sync_folder()
        except OSError as error:
            raise self._failure(error) from error
        return number, name

    def close(self) -> None:
        """Close the file as it is, without giving it its name."""
        if not self.closed:
            self.closed = True
            fd, self._fd = self._fd, -1  # the number may soon be another file's
            if fd >= 0:
                os.close(fd)

    def abort(self) -> None:
        """Remove what was written."""
        self.failed = True
        self.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.temporary)

    def _complete(self) -> None:
        if self.failed:
            hint = "the error before this one says why"
            raise StorageError("this file is incomplete and was not published", url=self.path, hint=hint)
        try:
            if self.durable:
                os.fsync(self._fd)
            self.close()  # network file systems report a full disk here
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> StorageError:
        self.abort()
        return as_storage_error(error, self.path)

    def _link(self, name: str) -> bool:
        try:
            os.link(self.temporary, name)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                hint = "let each process write to a pattern of its own"
                raise StorageError(
                    "this file system cannot share a pattern between processes", url=name, hint=hint
                ) from error
            raise
        return True

    def _sync_folder(self) -> None:
        if self.durable and os.name == "posix":
            folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _keep_mode(self) -> None:
        """Keep the permissions of a file that is replaced, as overwriting would."""
        with contextlib.suppress(OSError):
            os.chmod(self.temporary, stat.S_IMODE(os.stat(self.path).st_mode))


def _copied(source: int, target: int, start: int, size: int) -> int:
    """Copy up to that many bytes, inside the system if it can; returns their number."""
    try:
        return os.copy_file_range(source, target, size, offset_src=start)
    except AttributeError:  # not Linux
        pass
    except OSError as error:
        if error.errno not in _NO_COPIES:
            raise
    data = memoryview(os.pread(source, min(size, 1 << 20), start))
    done = 0
    while done < len(data):
        done += os.write(target, data[done:])
    return done


def checked_target(path: str) -> str:
    """The real path of a file that may be written; raises what writing would raise.

    Links are followed, so that a link to a file stays one.
    """
    real = os.path.realpath(allowed_path(path))
    folder = os.path.dirname(real)
    if os.path.isdir(real) or path.endswith(("/", os.sep)):
        raise _with_errno(
            StorageError("this is a folder, not a file", url=path, hint="name a file in it"), errno.EISDIR
        )
    if not os.path.isdir(folder):
        made = f"make the folder first: mkdir -p {folder}"
        hint = f"{folder} is no folder: name another one" if os.path.lexists(folder) else made
        raise _with_errno(MissingShardError("the folder to write to does not exist", url=path, hint=hint), errno.ENOENT)
    if os.path.exists(real) and not os.access(real, os.W_OK):
        raise as_storage_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path)
    return real


def is_special(path: str) -> bool:
    """Whether this is a device, a pipe or a socket, which is written in place."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def as_storage_error(error: OSError, path: str) -> StorageError:
    """An error of the operating system as StorageError, with a hint."""
    if error.errno in _FULL:
        hint = "free some space; nothing unfinished stands under this name"
        result = StorageError(f"the disk is full ({error.strerror})", url=path, hint=hint)
    elif error.errno in (errno.EACCES, errno.EPERM):
        result = StorageError("no permission to write here", url=path, hint="check the owner and mode of the folder")
    elif error.errno == errno.EROFS:
        result = StorageError("the file system is read-only", url=path, hint="write to another place")
    else:
        result = StorageError(f"cannot write: {error.strerror or error}", url=path)
    return _with_errno(result, error.errno)


def _with_errno(error: StorageError, number: int | None) -> StorageError:
    error.errno = number
    error.strerror = os.strerror(number) if number else None
    return error
