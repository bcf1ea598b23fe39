"""Positions by name, and as version 1 wrote them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import webdataset as wds
from webdataset.base.positions import Position, as_json, named
from webdataset.resume.positions import Ahead, InShard, InShuffle, InStream, Owner, Within, restored

WITHIN = Within(InShard(3, 4, 4, 99), (1, 2))
POSITION = Position(2, 0, 5, where=InStream(77, (1,), Owner(0, 1, 1, 2), WITHIN))
FLAT = [2, 0, 5, 77, [1], [0, 1, 1, 2], WITHIN, []]
FLAT_NAMES = ["epoch", "passes", "given", "base_seed", "kept", "owner", "where", "inner"]


def test_a_position_is_the_same_after_json_and_pickle() -> None:
    saved = json.loads(json.dumps(as_json(POSITION)))
    assert saved["where"]["at"]["source"] == {"shard": 3, "samples": 4, "known": 4, "digest": 99}
    assert as_json(restored(saved)) == as_json(POSITION)
    assert restored(saved).where.owner == POSITION.where.owner
    assert pickle.loads(pickle.dumps(POSITION)) == POSITION


def test_lists_in_the_order_of_the_fields_are_read_too() -> None:
    saved = json.loads(json.dumps(POSITION))
    assert isinstance(saved, list)
    position = restored(saved)
    within = named(Within, position.where.at)
    assert (position.epoch, position.given, position.where.owner.worker) == (2, 5, 1)
    assert named(InShard, within.source) == InShard(3, 4, 4, 99)
    assert named(Ahead, [None, 3]).given == 3


@pytest.mark.parametrize("saved", [FLAT, dict(zip(FLAT_NAMES, FLAT, strict=True)), FLAT[:6]])
def test_states_from_before_the_envelope_are_read(saved: Any) -> None:
    saved = json.loads(json.dumps(as_json(saved)))
    position = restored(saved)
    assert (position.epoch, position.passes, position.given, position.round) == (2, 0, 5, 0)
    assert position.where.owner == POSITION.where.owner
    assert position.where.base_seed == 77
    assert (position.where.at is None) == (len(saved) == 6)


def test_what_is_no_named_tuple_stays_as_it_is() -> None:
    assert as_json(InShuffle(1, 2, 3, None)) == {"out": 1, "pulled": 2, "number": 3, "history": None}
    assert as_json([7, (8,)]) == [7, [8]]


def test_an_owner_tells_who_it_is() -> None:
    assert str(Owner(1, 4, 2, 8)) == "worker 2 of 8 on rank 1 of 4"


@pytest.mark.parametrize("mark", [None, 7, [], {"epoch": 0, "of": 1}, [0] * 20, {"epoch": 0}])
def test_a_damaged_position_is_one_error(mark, make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=2), shardshuffle=False)
    next(iter(dataset))
    with pytest.raises(wds.StateError, match="damaged"):
        dataset.load_state_dict({**dataset.state_dict(), "mark": mark})
