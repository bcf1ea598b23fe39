"""Positions by name, and as version 1 wrote them."""

from __future__ import annotations

import json
import pickle

import pytest

import webdataset as wds
from webdataset.resume.positions import Ahead, InShard, InShuffle, Owner, Position, Within, as_json, named

POSITION = Position(2, 0, 5, 77, (1,), Owner(0, 1, 1, 2), Within(InShard(3, 4, 4, 99), (1, 2)))


def test_a_position_is_the_same_after_json_and_pickle() -> None:
    saved = json.loads(json.dumps(as_json(POSITION)))
    assert saved["where"]["source"] == {"shard": 3, "samples": 4, "known": 4, "digest": 99}
    assert as_json(Position.of(saved)) == as_json(POSITION)
    assert Position.of(saved).owner == POSITION.owner
    assert pickle.loads(pickle.dumps(POSITION)) == POSITION


def test_lists_in_the_order_of_the_fields_are_read_too() -> None:
    saved = json.loads(json.dumps(POSITION))
    assert isinstance(saved, list)
    position = Position.of(saved)
    within = named(Within, position.where)
    assert (position.epoch, position.given, position.owner.worker) == (2, 5, 1)
    assert named(InShard, within.source) == InShard(3, 4, 4, 99)
    assert named(Ahead, [None, 3]).given == 3


def test_what_is_no_named_tuple_stays_as_it_is() -> None:
    assert as_json(InShuffle(1, 2, 3, None)) == {"out": 1, "pulled": 2, "number": 3, "history": None}
    assert as_json([7, (8,)]) == [7, [8]]


def test_an_owner_tells_who_it_is() -> None:
    assert str(Owner(1, 4, 2, 8)) == "worker 2 of 8 on rank 1 of 4"


@pytest.mark.parametrize("mark", [None, 7, [], {"epoch": 0, "of": 1}, [0] * 20, {"epoch": 0}])
def test_a_damaged_position_is_one_error(mark, make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=2), shardshuffle=False)
    next(iter(dataset))
    with pytest.raises(wds.StateError, match="the state is damaged"):
        dataset.load_state_dict({**dataset.state_dict(), "mark": mark})
