"""Claims of processes whose number is used again, of other machines and of webdataset 1.x, and processes that crash."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from webdataset.shardlists import DirectoryShardList
from webdataset.shardlists.claims import Claim

NOBODY = 2**22 + 1
"""No process has this number."""


def claimed(folder: Path, name: str, claim: Claim) -> list[str]:
    """Files as a process leaves them that has claimed a shard, sorted."""
    files = [claim.note(name), name + claim.ending]
    for file in files:
        (folder / file).touch()
    return files


def cleaned(folder: Path, **options: float | None) -> list[str]:
    DirectoryShardList(folder, **options).cleanup_files_without_processes()
    return sorted(os.listdir(folder))


def test_a_claimed_shard_has_the_name_that_version_1_gives_it(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    shards = iter(DirectoryShardList(tmp_path, poll=None, mode="unlink", pattern="*"))
    assert next(shards)["url"] == str(tmp_path / f"a.tar._{os.getpid()}_")
    assert list(DirectoryShardList(tmp_path, poll=None, pattern="*")) == []
    assert next(shards, None) is None
    assert os.listdir(tmp_path) == []


def test_another_process_with_the_same_number_does_not_hold_a_claim(tmp_path: Path) -> None:
    mine = Claim.of_this_process()
    claimed(tmp_path, "a.tar", mine._replace(started=mine.started - 1))
    held = claimed(tmp_path, "b.tar", mine)
    assert cleaned(tmp_path) == sorted([*held, "a.tar"])


def test_the_claims_of_another_machine_are_left_alone_for_as_long_as_one_says(tmp_path: Path) -> None:
    files = claimed(tmp_path, "a.tar", Claim(NOBODY, 1, "elsewhere-1"))
    for patience in (None, 3600):
        assert cleaned(tmp_path, claim_timeout=patience) == files
    for file in files:
        os.utime(tmp_path / file, (1, 1))  # claimed now, however old the shard is
    assert cleaned(tmp_path, claim_timeout=3600) == files
    assert cleaned(tmp_path, claim_timeout=1e-9) == ["a.tar"]


def test_a_claim_of_a_number_on_two_machines_is_over_when_it_is_on_both(tmp_path: Path) -> None:
    mine = Claim.of_this_process()
    over = mine._replace(started=mine.started - 1)
    files = claimed(tmp_path, "a.tar", over)
    (tmp_path / over._replace(machine="elsewhere-1").note("a.tar")).touch()
    assert set(files) < set(cleaned(tmp_path))
    assert cleaned(tmp_path, claim_timeout=1e-9) == ["a.tar"]


def test_claims_of_version_1_last_as_long_as_their_process(tmp_path: Path) -> None:
    for number in (NOBODY, os.getppid()):
        (tmp_path / f"{number}.tar._{number}_").touch()
    assert cleaned(tmp_path) == sorted([f"{NOBODY}.tar", f"{os.getppid()}.tar._{os.getppid()}_"])


KILLED = """
import os, signal, sys
from webdataset.shardlists import DirectoryShardList
rename = os.rename
def killed(*paths):
    if sys.argv[2] == "after":
        rename(*paths)
    os.kill(os.getpid(), signal.SIGKILL)
os.rename = killed
next(iter(DirectoryShardList(sys.argv[1], poll=None)))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed_while_it_claims_a_shard_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    (tmp_path / "a.tar").touch()
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path, moment], timeout=60, check=False)
    assert done.returncode == -9
    assert len(os.listdir(tmp_path)) == 2
    assert len(list(DirectoryShardList(tmp_path, poll=None, mode="unlink"))) == 1
    assert os.listdir(tmp_path) == []


def test_a_new_shard_replaces_none_of_the_same_name_that_is_claimed(tmp_path: Path) -> None:
    shards = DirectoryShardList(tmp_path, poll=None, mode="unlink")
    for text in ("old", "new"):
        (tmp_path / "a.tar").write_text(text)
        taken = iter(shards)
        next(taken, None)
        taken.close()  # in the middle of it
    assert (tmp_path / f"a.tar._{os.getpid()}_").read_text() == "old"
    assert (tmp_path / "a.tar").read_text() == "new"


def test_processes_that_race_for_shards_leave_no_notes(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number}.tar").touch()
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        used = pool.map(use_all, [str(tmp_path)] * 4, chunksize=1)
    assert sorted(name for names in used for name in names) == sorted(f"{number}.tar" for number in range(60))
    assert os.listdir(tmp_path) == []


def use_all(folder: str) -> list[str]:
    shards = DirectoryShardList(folder, poll=None, mode="unlink")
    return [os.path.basename(shard["url"]).partition("._")[0] for shard in shards]
