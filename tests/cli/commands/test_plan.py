"""wl plan."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import webdataset as wds
from webdataset.cli import main


def test_it_tells_what_the_library_plans(make_shard: Callable[..., str], capsys: Any) -> None:
    shards = [make_shard(f"{n}.tar", samples=n) for n in (7, 11, 2)]
    assert main(["plan", "--ranks", "4", "--workers", "3", "--batch", "2", *shards]) == 0
    assert capsys.readouterr().out == f"{wds.plan(shards, ranks=4, workers=3, batch=2)}\n"


def test_programs_get_json(make_shard: Callable[..., str], capsys: Any) -> None:
    shard = make_shard("a.tar", samples=10)
    line = "plan --ranks 3 --batch 2 --whole --shuffle-bytes 0 --seed 5 --epoch 2 --json"
    assert main([*line.split(), shard]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["samples"], told["steps"], told["dropped"], told["repeated"]) == (10, 1, 4, 0)
    assert told["shuffle_quality"].keys() == {"distance", "same_shard"}
    assert sum(told["bytes_per_rank"]) > 0


def test_an_archive_from_a_pipe_has_no_plan(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["plan", "-"]) == 1
    assert "[url -]" in capsys.readouterr().err
