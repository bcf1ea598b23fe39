"""A folder as a queue of shards, shared by many processes.

A process claims a shard by renaming it to `<name>._<process>_` (see `claims`); only one rename can succeed. What
becomes of a shard after its use is its fate: `unlink`, `keep` (renamed to `<name>._done_`) or `resample` (back into the
queue). It has been used when the next one is asked for. A shard whose consumer stopped before that is still claimed;
when the process is gone, it goes back into the queue.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from webdataset.base.behaviour import Behaviour
from webdataset.base.iterables import TorchIterable
from webdataset.base.private import open_regular
from webdataset.storage.braces import braceexpand
from webdataset.storage.local import allowed_path

from .claims import Claim

MODES = ("resample", "unlink", "keep")
DONE = "._done_"


class DirectoryShardList(TorchIterable):
    """Shards of a folder as they come in, each used by one process at a time.

    `poll` is the number of seconds between two looks at an empty folder, None to stop there; `timeout` is how long to
    wait in all. `fate(path)` is called after a shard was used, instead of what `mode` says. `select="oldest"` takes
    shards by their time, and by their names where times are equal.

    Only processes of this machine are known to be gone. Machines that share the folder leave each other's claims alone,
    unless `claim_timeout` says after how many seconds a claim of another machine expires: more than the longest use of
    a shard takes.

    Args:
        path: the folder
        pattern: the names of shards in it
        poll: seconds between two looks; None stops when the folder is empty
        timeout: seconds to wait in all
        mode: what becomes of a used shard: "resample" puts it back, "unlink" deletes it, "keep" renames it
        select: "random" or "oldest"
        fate: a function of the path, instead of `mode`
        claim_timeout: seconds after which another machine's claim expires

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = open(f"{folder}/a.tar", "w").close()
    ...     shards = iter(DirectoryShardList(folder, mode="unlink", poll=None))
    ...     used = next(shards)
    ...     shards.close()  # before the next one was asked for: it is still there
    ...     os.path.exists(used["url"])
    True
    """

    behaviour = Behaviour("holds", "a folder that fills and empties gives other shards the next time")

    def __init__(  # noqa: PLR0917 - the order is the API's
        self,
        path: str | os.PathLike[str],
        pattern: str = "*.{tar,tgz,tar.gz,tar.tgz}",
        poll: float | None = 1,
        timeout: float = 1e12,
        mode: str = "resample",
        select: str = "random",
        fate: Callable[[str], Any] | None = None,
        *,
        claim_timeout: float | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"the mode must be one of {', '.join(MODES)}, got {mode!r}")
        if select not in ("random", "oldest"):
            raise ValueError(f"select must be random or oldest, got {select!r}")
        if claim_timeout is not None and claim_timeout <= 0:
            raise ValueError(f"claim_timeout must be a number of seconds above 0, got {claim_timeout}")
        self.path = os.fspath(path)
        if not os.path.isdir(self.path):
            raise ValueError(f"{self.path!r} is not a folder of shards")
        self.pattern = pattern
        self.poll = poll
        self.timeout = timeout
        self.mode = mode
        self.select = select
        self.fate = fate
        self.claim_timeout = claim_timeout

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rng = random.Random(os.urandom(16))
        patience = time.monotonic() + self.timeout
        while True:
            self.cleanup_files_without_processes()
            claimed = self._claim(rng)
            if claimed is not None:
                with self._returned_if_reusable(claimed):
                    yield {"url": claimed}
                self.recycle(claimed)
                patience = time.monotonic() + self.timeout
            elif self.poll is None or time.monotonic() + self.poll > patience:
                return
            else:
                time.sleep(self.poll)

    def recycle(self, activename: str) -> None:
        """Do with a used shard, now called `activename`, what `fate` or `mode` says."""
        with contextlib.suppress(FileNotFoundError):
            if self.fate is not None:
                self.fate(activename)
            elif self.mode == "unlink":
                os.unlink(activename)
            elif self.mode == "keep":
                os.rename(activename, without_last_extension(activename) + DONE)
            else:
                _put_back(activename)
        _remove_note(activename)

    def cleanup_files_without_processes(self) -> None:
        """Put back the shards whose process has ended."""
        folder = allowed_path(self.path)
        names = os.listdir(folder)
        notes = _notes(names)
        for name in names:
            claim, path = Claim.of_name(name), os.path.join(folder, name)
            if claim is None or not self._are_over(notes.get(name, [claim]), path):
                continue
            # the note is older than the name, but the list of a folder that changes may lack it: look again
            if self._are_over(_notes(os.listdir(folder)).get(name, [claim]), path):
                _put_back(path)
        for name, claims in notes.items():
            if not os.path.lexists(os.path.join(folder, name)):
                self._remove_notes(os.path.join(folder, without_last_extension(name)), claims)

    def _remove_notes(self, shard: str, claims: list[Claim]) -> None:
        """Remove the notes of processes that have ended without removing them."""
        for path, claim in [(_note(shard, claim), claim) for claim in claims]:
            if self._are_over([claim], path):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    @contextlib.contextmanager
    def _returned_if_reusable(self, claimed: str) -> Iterator[None]:
        """Put a shard that goes back into the queue anyway back at once when the consumer stops."""
        try:
            yield
        except GeneratorExit:
            ours = get_pid_from_filename(claimed) == os.getpid()  # a fork ends what its parent began
            if self.mode == "resample" and self.fate is None and ours:
                _put_back(claimed)
                _remove_note(claimed)
            raise

    def _are_over(self, claims: list[Claim], path: str) -> bool:
        """Whether none of these processes, on two machines by chance of the same number, still uses what is there."""
        expired = self.claim_timeout is not None and time.time() - _claimed_at(path) > self.claim_timeout
        return all(not claim.is_held if claim.is_of_this_machine else expired for claim in claims)

    def _claim(self, rng: random.Random) -> str | None:
        """Claim a shard; returns its new path, or None."""
        patterns = list(braceexpand(self.pattern))
        folder = allowed_path(self.path)
        found = [
            os.path.join(self.path, name)
            for name in os.listdir(folder)
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) and not _is_claimed(name)
        ]
        found.sort(key=_age if self.select == "oldest" else lambda _: rng.random())
        mine = Claim.of_this_process()
        for shard in found:
            claimed = shard + mine.ending
            if os.path.lexists(claimed):
                continue  # it had this name before, and is not used up: renaming would replace it
            os.close(open_regular(_note(shard, mine), os.O_WRONLY | os.O_CREAT))
            try:
                os.rename(shard, claimed)
            except FileNotFoundError:
                _remove_note(claimed)  # another process was faster
                continue
            return claimed
        return None


def without_last_extension(fname: str) -> str:
    """
    >>> without_last_extension("a.tar._123_")
    'a.tar'
    """
    return os.path.splitext(fname)[0]


def get_pid_from_filename(fname: str) -> int | None:
    """
    >>> get_pid_from_filename("a.tar._123_"), get_pid_from_filename("a.tar")
    (123, None)
    """
    claim = Claim.of_name(fname)
    return claim.pid if claim else None


def _is_claimed(name: str) -> bool:
    return name.endswith(DONE) or Claim.of_name(name) is not None or Claim.of_note(name) is not None


def _notes(names: list[str]) -> dict[str, list[Claim]]:
    """The claims that the files beside claimed shards tell of, by the names of the shards."""
    found: dict[str, list[Claim]] = {}
    for noted in filter(None, map(Claim.of_note, names)):
        found.setdefault(noted[0], []).append(noted[1])
    return found


def _note(shard: str, claim: Claim) -> str:
    """The path of the file beside a shard with this claim."""
    folder, name = os.path.split(shard)
    return os.path.join(folder, claim.note(name))


def _remove_note(claimed: str) -> None:
    """Remove the note of this process, if the shard is no longer claimed."""
    if not os.path.lexists(claimed):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_note(without_last_extension(claimed), Claim.of_this_process()))


def _put_back(claimed: str) -> None:
    """Give a shard its name again; another shard that has that name by now is not replaced."""
    name = without_last_extension(claimed)
    with contextlib.suppress(FileNotFoundError):  # another process has put it back
        try:
            os.link(claimed, name)
        except FileExistsError:
            if not os.path.samefile(claimed, name):
                return  # it stays claimed until the other one is gone
        except OSError:  # a file system without links
            if not os.path.exists(name):
                os.rename(claimed, name)
            return
        os.unlink(claimed)


def _age(path: str) -> tuple[int, str]:
    try:
        return os.stat(path).st_mtime_ns, path
    except FileNotFoundError:
        return 0, path


def _claimed_at(path: str) -> float:
    """When a shard was renamed, as its file system noted it."""
    try:
        return os.stat(path).st_ctime
    except FileNotFoundError:
        return time.time()
