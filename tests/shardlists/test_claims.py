from __future__ import annotations

import os
from pathlib import Path

from webdataset.shardlists import (
    DirectoryShardList,
)
from webdataset.shardlists.claims import Claim


def test_another_process_with_the_same_number_does_not_hold_a_claim(tmp_path: Path) -> None:
    mine = Claim.of_this_process()
    earlier = mine._replace(started=mine.started - 1)
    (tmp_path / f"a.tar{earlier.ending}").touch()
    (tmp_path / f"b.tar{mine.ending}").touch()
    DirectoryShardList(tmp_path).cleanup_files_without_processes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", f"b.tar{mine.ending}"]


def test_the_claims_of_another_machine_are_left_alone_for_as_long_as_one_says(tmp_path: Path) -> None:
    claimed = f"a.tar{Claim(2**22 + 1, 1, 'elsewhere-1').ending}"
    (tmp_path / claimed).touch()
    for patience in (None, 3600):
        DirectoryShardList(tmp_path, claim_timeout=patience).cleanup_files_without_processes()
        assert os.listdir(tmp_path) == [claimed]
    os.rename(tmp_path / claimed, tmp_path / "x")
    os.rename(tmp_path / "x", tmp_path / claimed)  # claimed now, however old the shard is
    os.utime(tmp_path / claimed, (1, 1))
    DirectoryShardList(tmp_path, claim_timeout=3600).cleanup_files_without_processes()
    assert os.listdir(tmp_path) == [claimed]
    DirectoryShardList(tmp_path, claim_timeout=1e-9).cleanup_files_without_processes()
    assert os.listdir(tmp_path) == ["a.tar"]
