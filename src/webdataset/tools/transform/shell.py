"""Run a shell command for each sample, in a folder of its own, and collect its files.

>>> samples = [{"__key__": "a", "txt": b"hello"}]
>>> list(run_commands("tr a-z A-Z < sample.txt > sample.up; rm sample.txt")(samples))
[{'__key__': 'a', 'up': b'HELLO'}]
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from webdataset.base.reports import Report, current_report
from webdataset.base.settings import settings
from webdataset.base.stages import pipelinefilter
from webdataset.errors import CommandError, SampleError, SecurityError
from webdataset.handlers import Handler, ask, close, placed, reraise_exception
from webdataset.storage.shell.guards import end_group, guard
from webdataset.tools.parallel import submitted

from .spilling import temporary_folder

Sample = dict[str, Any]
Output = Callable[[bytes], object]

LAST_BYTES = 300

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@pipelinefilter
def run_commands(
    data: Iterable[Sample],
    /,
    command: str,
    *,
    processes: int = 0,
    ordered: bool = True,
    handler: Handler = reraise_exception,
    output: Output | None = None,
    **options: Any,
) -> Iterator[Sample]:
    """Run a shell command for each sample, in a folder that holds `sample.EXT` for each field and `sample.__key__`.

    The files `sample.EXT` that are there afterwards are the sample. Folders with such files, or files
    `sample-000001.EXT`, become samples of their own in its place. The command's output goes to `output`. Other options
    are those of Commander.
    """
    commander = Commander(command, output=output, report=current_report(), **options)
    return _run(data, commander, max(processes, 1), ordered, handler)


class Commander:
    """Runs one command for one sample at a time, from any thread.

    `base` is the base name of the files, instead of `sample`; `separator` is put between a sample's key and the names
    of samples made from it; `add` keeps the sample itself too; `subfolders=True` makes samples of folders only;
    `ignore_status` uses the files of a command even if it failed; `only` chooses the fields to write. Of the files that
    a command leaves, those are used whose names match `include` and not `exclude`, in any part. The command's output
    becomes the field `log`. `keep` does not delete the folders.
    """

    def __init__(
        self,
        command: str,
        *,
        base: str = "sample",
        shell: str = "bash",
        separator: str = "/",
        add: bool = False,
        subfolders: bool = False,
        ignore_status: bool = False,
        only: Callable[[Sample], Sample] | None = None,
        include: str = "",
        exclude: str | None = None,
        log: str | None = None,
        workdir: str | None = None,
        keep: bool = False,
        output: Output | None = None,
        report: Report | None = None,
    ) -> None:
        if not command.strip():
            raise ValueError("the command is empty")
        if not base or "/" in base or "." in base:
            raise ValueError(f"the base must be a plain word such as sample, got {base!r}")
        self.argv = [*shell.split(), "-c", command]
        # once: Popen would search PATH for every sample
        self.program = shutil.which(self.argv[0])
        self.base, self.separator, self.add, self.subfolders = base, separator, add, subfolders
        self.ignore_status, self.only, self.workdir, self.keep = ignore_status, only, workdir, keep
        self.include = re.compile(include)
        self.exclude = None if exclude is None else re.compile(exclude)
        self.log = log
        self.output = output
        self.report = report or Report()
        self.folder = ""
        self._free: list[str] = []
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._warned = False
        self._numbered = re.compile(rf"{re.escape(base)}[-_]?([^.]+)\.(.+)", re.DOTALL)

    def __call__(self, job: tuple[int, Sample]) -> list[Sample]:
        """Run the command for one sample, and return the samples it makes."""
        number, sample = job
        folder = self._folder(number)
        try:
            self._unpack(folder, sample)
            pid, output = self._run(folder)
            made = self._collected(folder, sample)
            if not self.keep:
                self._reuse(folder, pid)
        except BaseException:
            if not self.keep:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return made if self.log is None else [{**result, self.log: output} for result in made]

    def stop(self) -> None:
        """End all commands that are running, and everything they started."""
        with self._lock:  # so that none is reaped meanwhile, and its process id reused
            self._stopped = True
            for process in self._running:
                end_group(process.pid)

    # -- one sample ------------------------------------------------------------------------------

    def _folder(self, number: int) -> str:
        """Return an empty folder, a used one if possible: making and removing one costs as much as all of its files."""
        try:
            return self._free.pop()
        except IndexError:
            folder = f"{self.folder}/{number:09d}"
            os.mkdir(folder, 0o700)
            return folder

    def _reuse(self, folder: str, pid: int) -> None:
        """Empty the folder for another sample, unless something that the command started is still running in it."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    os.unlink(entry.path)
            os.killpg(pid, 0)
        except ProcessLookupError:
            self._free.append(folder)
        except OSError:  # a folder in the folder, for example
            shutil.rmtree(folder, ignore_errors=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def _unpack(self, folder: str, sample: Sample) -> None:
        chosen = self.only(sample) if self.only is not None else sample
        for field, data in chosen.items():
            if field[:2] != "__":
                _write(f"{folder}/{self.base}.{field}", data)
        _write(f"{folder}/{self.base}.__key__", os.fsencode(sample["__key__"]))

    def _run(self, folder: str) -> tuple[int, bytes]:
        """Run the command; return its process id and output."""
        reading, writing = os.pipe()
        try:
            try:
                process = self._start(folder, writing)
            finally:
                os.close(writing)
            output = self._read_output(reading)
        finally:
            os.close(reading)
        status = self._ended(process)
        if status and not self.ignore_status:
            text = " ".join(output[-LAST_BYTES:].decode("utf-8", "replace").split())
            raise CommandError(f"the command ended with status {status}" + (f": {text}" if text else ""))
        return process.pid, output

    def _start(self, folder: str, output: int) -> subprocess.Popen[bytes]:
        """Start the command in a process group, which can be ended as a whole."""
        if not settings.allow_pipe:
            hint = "run it elsewhere"
            raise SecurityError("commands are refused (WDS_SECURE or WDS_ALLOW_PIPE=0)", hint=hint)
        with self._lock:
            if self._stopped:
                raise CommandError("the command was stopped")
            try:
                process = guard.start(
                    self.argv,
                    executable=self.program,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            except OSError as error:
                raise CommandError(f"cannot start: {error.strerror}: {self.argv[0]}") from error
            self._running.add(process)
        return process

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the command, and return its status; until then it can be stopped."""
        # not reaped before it is out of the set: its process id might be reused by the time it is stopped
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._running.discard(process)
        guard.forget(process.pid)
        return process.wait()

    def _read_output(self, pipe: int) -> bytes:
        last = b""
        while data := os.read(pipe, 1 << 16):
            last = last + data if self.log is not None else (last + data)[-LAST_BYTES:]
            if self.output is not None:
                self.output(data)
        return last

    # -- what it left ------------------------------------------------------------------------------

    def _collected(self, folder: str, sample: Sample) -> list[Sample]:
        key = sample["__key__"]
        own: Sample = {}
        others: dict[str, Sample] = {}
        unknown = []
        for entry in self._entries(folder):
            if entry.is_dir(follow_symlinks=False):
                if fields := self._fields_in(entry.path):
                    others[entry.name] = fields
            elif entry.name.startswith(f"{self.base}."):
                own[entry.name[len(self.base) + 1 :]] = _content(entry)
            elif (found := self._numbered.fullmatch(entry.name)) and not self.subfolders:
                others.setdefault(found.group(1), {})[found.group(2)] = _content(entry)
            else:
                unknown.append(entry.name)
        if unknown:
            self._warn_about(unknown[0], key)
        made = [self._finished(fields, f"{key}{self.separator}{name}", key) for name, fields in others.items()]
        if self.add or not (made or self.subfolders):
            made.insert(0, self._finished(own, key, key))
        return [result for result in made if len(result) > 1]

    def _fields_in(self, folder: str) -> Sample:
        prefix = f"{self.base}."
        return {
            entry.name[len(prefix) :]: _content(entry)
            for entry in self._entries(folder)
            if entry.name.startswith(prefix) and not entry.is_dir(follow_symlinks=False)
        }

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        """Return the files to use, sorted; the key and folders are always among them."""
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
        return [entry for entry in found if self._counts(entry.name) or entry.is_dir(follow_symlinks=False)]

    def _counts(self, name: str) -> bool:
        if name == f"{self.base}.__key__":
            return True
        return self.include.search(name) is not None and (self.exclude is None or self.exclude.search(name) is None)

    def _finished(self, fields: Sample, default: str, key: str) -> Sample:
        named = fields.pop("__key__", None)
        if named is not None and named != os.fsencode(key):  # a key of its own, probably written with echo
            default = os.fsdecode(named.rstrip(b"\r\n"))
        result: Sample = {"__key__": default}
        if not result["__key__"]:
            raise SampleError(f"the command left an empty {self.base}.__key__", key=key)
        for field, data in fields.items():
            if not field or field[:2] == "__":
                raise SampleError(f"the command left a file that cannot be a field: {self.base}.{field}", key=key)
            if field.lower() in result:
                raise SampleError("the command left two files for one field; case does not matter", field=field)
            result[field.lower()] = data
        return result

    def _warn_about(self, name: str, key: str) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            text = f"the command leaves files that are not called {self.base}.EXT, such as {name!r}; they are left out"
            self.report.warn(text, key=key)


def _run(
    data: Iterable[Sample], commander: Commander, workers: int, ordered: bool, handler: Handler
) -> Iterator[Sample]:
    source = iter(data)
    try:
        with _folder_for(commander) as folder:
            commander.folder = folder
            pool = ThreadPoolExecutor(workers, "webdataset-command")
            try:
                for (_, sample), future in submitted(
                    pool, commander, enumerate(source), workers=workers, ordered=ordered
                ):
                    error = future.exception()
                    if error is None:
                        yield from future.result()
                    elif not isinstance(error, Exception):
                        raise error
                    elif not ask(handler, placed(error, sample), commander.report, "samples_dropped"):
                        return
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                commander.stop()
                pool.shutdown()
    finally:
        close(source)


def _folder_for(commander: Commander) -> contextlib.AbstractContextManager[str]:
    """Make a folder that is deleted afterwards, or one that is kept."""
    if not commander.keep:
        return temporary_folder(commander.workdir)
    return contextlib.nullcontext(tempfile.mkdtemp(prefix="wl-", dir=commander.workdir))


def _content(entry: os.DirEntry[str]) -> bytes:
    """Read a file; only a file or a link to one can be a field."""
    if not entry.is_file():
        raise SampleError(f"the command left something that is not a file: {entry.name}")
    with open(entry.path, "rb", buffering=0) as file:
        return file.readall()


def _write(path: str, data: bytes) -> None:
    """Write a new file, with as few system calls as possible: there are several per command."""
    file = os.open(path, _NEW, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)
