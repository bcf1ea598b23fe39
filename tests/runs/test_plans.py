"""Plans: the same contents are the same plan, a task reads only its part, a million items are nothing special."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from webdataset.errors import StateError
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import PART_ITEMS, RunProgram, read_plan, write_plan

PROGRAM = RunProgram({"kind": "command", "words": ["true", "{}"]}, "digest")


def items(count: int) -> list[Item]:
    return [Item(f"{n:07d}", (f"in-{n:07d}.tar",), (f"out-{n:07d}.tar",), n, f"v{n}") for n in range(count)]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = write_plan(Place(str(tmp_path)), PROGRAM, TaskOptions(retries=5), items(PART_ITEMS + 3))
    again = read_plan(plan.url)
    assert (again.id, again.count, again.digest, again.options.retries) == (plan.id, PART_ITEMS + 3, "digest", 5)
    assert again.item(PART_ITEMS + 1) == items(PART_ITEMS + 3)[PART_ITEMS + 1]
    assert list(again.items()) == items(PART_ITEMS + 3)
    assert again.program == PROGRAM.facts


def test_the_same_contents_are_the_same_plan(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    first = write_plan(place, PROGRAM, TaskOptions(), items(3))
    assert write_plan(place, PROGRAM, TaskOptions(), items(3)).id == first.id
    assert write_plan(place, PROGRAM, TaskOptions(), items(4)).id != first.id
    assert write_plan(place, RunProgram(PROGRAM.facts, "other"), TaskOptions(), items(3)).id != first.id
    assert len(list((tmp_path / "plans").iterdir())) == 3


def test_a_plan_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="nothing") as raised:
        write_plan(Place(str(tmp_path)), PROGRAM, TaskOptions(), [])
    assert raised.value.url == str(tmp_path)


def test_what_is_no_plan(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"{tmp_path}/plans/0123"):
        with pytest.raises(StateError, match="no plan") as raised:
            read_plan(url)
        assert raised.value.url == url
    plan = write_plan(Place(str(tmp_path)), PROGRAM, TaskOptions(), items(2))
    with pytest.raises(StateError, match="2") as raised:
        plan.item(2)
    assert raised.value.url == plan.url
    path = tmp_path / "plans" / plan.id / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(StateError, match="version") as raised:
        read_plan(plan.url)
    assert raised.value.url == plan.url


BIG = """
import resource, sys
from webdataset.runs.api import plan_of
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunProgram
items = (Item(f"{n:07d}", (), (f"s3://bucket/out-{n:07d}.tar",)) for n in range(200_000))
plan = plan_of(Place(sys.argv[1]), RunProgram({"kind": "command", "words": ["x"]}, "d"), TaskOptions(), items)
print(plan.count, plan.item(199_999).name)
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(peak, resource.getrusage(resource.RUSAGE_SELF).ru_utime)
"""


def test_a_large_plan_takes_little_memory_and_time(tmp_path: Path) -> None:
    """200,000 items in a fifth of what a million may take: 10 seconds (of CPU, here) and 500 MB."""
    told = subprocess.run([sys.executable, "-c", BIG, str(tmp_path)], capture_output=True, text=True, check=True)
    made, spent = told.stdout.splitlines()
    assert made == "200000 0199999"
    kilobytes, seconds = map(float, spent.split())
    assert seconds < 10
    assert kilobytes < 500_000
