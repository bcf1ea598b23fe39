"""kill -9 of a trainer at random moments: with its latest checkpoint, nothing is lost and nothing comes twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from frameworks.accounts import ROOT, SAMPLES, make_shards
from tests_support import python


def trained(folder: Path, seed: int, worlds: str) -> tuple[list[str], int]:
    """The keys that a trainer was trained on in spite of being killed, and how often it was."""
    urls = make_shards(folder)
    done = python(ROOT / "tests/frameworks/killed.py", urls, folder, seed, worlds)
    kills, end = done.stdout.split(maxsplit=1)
    assert end.strip() == "done", done.stdout + done.stderr
    return json.loads((folder / "account.json").read_text())["keys"], int(kills)


def once_each() -> Counter[str]:
    return Counter(f"{number:04d}" for number in range(SAMPLES))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The keys of a trainer that nobody killed."""
    return trained(tmp_path_factory.mktemp("whole"), 1, "1")[0]


@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_trainer_that_is_killed_again_and_again_trains_on_every_sample_once(
    seed: int, tmp_path: Path, whole: list[str]
) -> None:
    keys, kills = trained(tmp_path, seed, "1,1,1,1,1,1")
    assert kills >= 2
    assert Counter(keys) == once_each()
    assert keys == whole


@pytest.mark.parametrize(("seed", "worlds"), [(1, "2,1,3"), (2, "3,2,1"), (3, "2,2,2")])
def test_ranks_that_are_killed_go_on_as_another_number_of_ranks(seed: int, worlds: str, tmp_path: Path) -> None:
    keys, kills = trained(tmp_path, seed, worlds)
    assert kills >= 1
    assert Counter(keys) == once_each()
