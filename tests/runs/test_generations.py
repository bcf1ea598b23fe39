"""Who owns a run: one process at a time, and nothing of an earlier one is published or called done."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runs_support import PYTHON, make_inputs
from waiting import soon
from webdataset.errors import StorageError
from webdataset.runs import generations
from webdataset.runs.crew import Crew, do_items
from webdataset.runs.generations import OwnedError, SupersededError, lease, own, owned
from webdataset.runs.items import Item, with_versions
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunPlan, RunProgram, write_plan
from webdataset.runs.records import RecordReader
from webdataset.runs.runs import Run
from webdataset.storage.stores.s3 import S3Client
from webdataset.storage.stores.uploads import Publication


def planned(folder: Path, script: str, *, digest: str = "d", count: int = 1, **options: Any) -> RunPlan:
    """Items whose inputs and outputs lie in the folder."""
    program = RunProgram({"kind": "command", "words": ["sh", "-c", script]}, digest)
    items = []
    for number in range(count):
        (folder / f"in-{number}").open("a").close()
        items.append(Item(str(number), (f"{folder}/in-{number}",), (f"{folder}/out-{number}",)))
    return write_plan(Place(str(folder / "run")), program, TaskOptions.of(options), with_versions(items))


def facts(plan: RunPlan) -> dict[str, Any]:
    return {"plan": plan.id, "engine": "local"}


def standings(plan: RunPlan) -> list[str]:
    return [str(standing) for _, _, standing in Run(plan.place.url).standings(plan)]


def test_what_a_stopped_task_has_staged_is_not_published_after_a_take_over(tmp_path: Path) -> None:
    first = planned(tmp_path, f"echo old > {tmp_path}/out-{{}}; touch {tmp_path}/staged; kill -STOP $PPID", digest="1")
    generation = own(first.place, facts(first))
    generation.make_stages(first)
    crew = Crew(first, [0], task=f"{generation.name}-a-0")
    try:
        assert soon(lambda: crew.poll(0.01) == [] and (tmp_path / "staged").exists())
        assert list(tmp_path.glob(".webdataset-*/*/out-0"))
        second = planned(tmp_path, f"echo new > {tmp_path}/out-{{}}", digest="2")
        with owned(second.place, facts(second), take_over=True) as newer:
            newer.make_stages(second)
            assert do_items(second, [0], task=f"{newer.name}-a-0")[0] == 0
        os.kill(crew._busy[0].process.pid, signal.SIGCONT)
        told: list[Any] = []
        assert soon(lambda: told.extend(crew.poll(0.01)) or told)
    finally:
        crew.close()
    assert [record.status for record in told] == ["superseded"]
    assert (tmp_path / "out-0").read_text() == "new\n"
    assert (standings(second), standings(first)) == (["done"], ["stale"])
    assert not list(tmp_path.glob(".webdataset-*")), "nothing is remade"


def line(value: int, *more: str) -> list[str]:
    """A run that sleeps in its first shard if there is a file `slow`, and makes a file `asleep` before."""
    sleeps = "os.path.exists('slow') and (open('asleep', 'w').close(), time.sleep(600))"
    code = f"import time, os; {sleeps}; cls = {value}"
    return [*PYTHON, "map", "-c", code, "in-{000..002}.tar", "-o", "out-{}.tar", "--state", "run", *more]


def test_going_back_to_earlier_code_does_everything_again_whatever_clocks_say(wl: Any, here: Path) -> None:
    """Times in records, and of files, are those of a clock that was ahead while the second code ran."""
    words = ("map", "in-{000..002}.tar", "-o", "out-{}.tar", "--state", "run", "--on", "local", "-c")
    wl(*words, "cls = 1")
    expected = (here / "out-001.tar").read_bytes()
    ahead = [sys.executable, "-c", AHEAD, *words, "cls = 2"]
    assert subprocess.run(ahead, check=False).returncode == 0
    assert (here / "out-001.tar").read_bytes() != expected
    assert "3 stale" in wl(*words, "cls = 1").err
    assert (here / "out-001.tar").read_bytes() == expected
    assert "3 done" in wl(*words, "cls = 1").err
    assert "3 stale" in wl(*words, "cls = 2").err


AHEAD = """
import sys, time
now = time.time
time.time = lambda: now() + 7200
from webdataset.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.usefixtures("here")
def test_a_live_owner_is_not_taken_over_and_a_killed_one_is(here: Path) -> None:
    (here / "slow").touch()
    first = subprocess.Popen(line(1, "--on", "local", "-q"))
    try:
        assert soon((here / "asleep").exists)
        refused = subprocess.run(line(2, "--on", "local"), capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert str(first.pid) in refused.stderr
    finally:
        first.kill()
        first.wait()
    (here / "slow").unlink()
    assert subprocess.run(line(2, "--on", "local", "-q"), check=False).returncode == 0
    assert not list(here.glob(".webdataset-*"))
    assert not list(here.glob(".*.tmp"))


@pytest.mark.usefixtures("here")
def test_a_controller_whose_run_is_taken_over_stops(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "slow").touch()
    program = "import sys; from webdataset.runs import generations; generations.BEAT_SECONDS = 0.1\n"
    program += "from webdataset.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, *line(1, "--on", "local")[3:]]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as first:
        assert soon((here / "asleep").exists)
        (here / "slow").unlink()
        second = subprocess.run(line(2, "--on", "local", "--take-over"), check=False)
        assert second.returncode == 0
        _, told = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "taken" in told
    before = {path.name: path.read_bytes() for path in here.glob("out-*")}
    again = subprocess.run(line(2, "--on", "local"), capture_output=True, text=True, check=False)
    assert "3 done" in again.stderr, "who was superseded has undone nothing"
    assert before == {path.name: path.read_bytes() for path in here.glob("out-*")}


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(str(tmp_path / "run") if request.param == "folder" else request.getfixturevalue("s3_prefix"))


def test_of_two_that_begin_one_is_the_owner(place: Place) -> None:
    first = own(place, {"plan": "x"})
    with pytest.raises(OwnedError):
        own(place, {"plan": "x"})
    second = generations.Generation(place, {"plan": "x"})
    second.check()
    with pytest.raises(SupersededError):
        first.check()
    with pytest.raises(SupersededError):
        first.end()
    second.check()
    number = generations.Generation(place, {"plan": "x"}, f"{second.name[:8]}-ffffffff")
    with pytest.raises(SupersededError):
        second.check()
    number.check()


def elsewhere(place: Place, name: str) -> None:
    """Let the owner be one of another machine."""
    file = f"generations/{name}.json"
    place.write(file, json.dumps(json.loads(place.read(file)) | {"system": "another"}).encode())


def test_an_owner_elsewhere_is_taken_over_when_it_does_not_beat(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "STALE_SECONDS", 0.3)
    monkeypatch.setattr(generations, "BEAT_SECONDS", 0.0)
    plan = write_plan(place, RunProgram({"kind": "command"}, "d"), TaskOptions(), [Item("a")])
    first = own(place, facts(plan))
    elsewhere(place, first.name)
    sleep = generations.time.sleep

    def beating(seconds: float) -> None:
        first.beat()
        sleep(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(generations.time, "sleep", beating)
        with pytest.raises(OwnedError, match=socket.gethostname()):
            own(place, facts(plan))
    second = own(place, facts(plan))
    with pytest.raises(SupersededError):
        first.beat()
    second.leave()
    own(place, facts(plan)).end()
    assert lease(place, generations.generations(place)[-1]) == {"ended": True}


def test_an_owner_that_was_paused_before_it_made_its_stages_leaves_none(tmp_path: Path) -> None:
    plan = planned(tmp_path, "true")
    first = own(plan.place, facts(plan))
    own(plan.place, facts(plan), take_over=True)
    with pytest.raises(SupersededError):
        first.make_stages(plan)
    assert not list(tmp_path.glob(".webdataset-*"))


def test_what_killed_tasks_have_left_is_removed_by_clean(wl: Any, here: Path) -> None:
    (here / "slow").touch()
    first = subprocess.Popen(line(1, "--on", "local", "-q"))
    assert soon(lambda: any('"start"' in path.read_text() for path in here.glob("run/records/*/*")))
    assert list(here.glob(".webdataset-*"))
    refused = wl("jobs", "clean", "run")
    assert refused.code == 1
    first.kill()
    first.wait()
    assert wl("jobs", "clean", "run").code == 0
    assert not list(here.glob(".webdataset-*"))


def test_an_output_of_the_same_size_by_other_code_is_stale(tmp_path: Path) -> None:
    plan = planned(tmp_path, f"printf abc > {tmp_path}/out-{{}}")
    with owned(plan.place, facts(plan)) as generation:
        generation.make_stages(plan)
        do_items(plan, [0], task=f"{generation.name}-a-0")
    assert standings(plan) == ["done"]
    found = (tmp_path / "out-0").stat()
    (tmp_path / "out-0").write_bytes(b"xyz")
    os.utime(tmp_path / "out-0", ns=(found.st_atime_ns, found.st_mtime_ns // 10**7 * 10**7))
    assert standings(plan) == ["stale"]


def test_an_input_that_changes_while_it_is_read_is_not_used(tmp_path: Path) -> None:
    plan = planned(tmp_path, f"echo >> {tmp_path}/in-{{}}; : > {tmp_path}/in-{{}}; touch {tmp_path}/out-{{}}")
    assert do_items(plan, [0])[0] == 65
    assert not (tmp_path / "out-0").exists()
    [ended] = [record for record in RecordReader(plan.place).new() if record.final]
    assert "changed" in ended.error


def test_an_output_that_changes_before_the_end_of_the_run_is_not_called_done(here: Path) -> None:
    make_inputs(here, 3)
    spoil = "import os, time; os.path.exists('out-000.tar') and os.utime('out-000.tar', ns=(0, 1)); cls = 1"
    words = [*PYTHON, "map", "-c", spoil, "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local", "--workers", "1"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "000" in ended.stderr
    assert "2 done, 1 stale" in subprocess.run(words, capture_output=True, text=True, check=False).stderr


def test_an_upload_asks_before_its_object_appears(s3_prefix: str) -> None:
    from webdataset.gopen import gopen

    def refuse() -> None:
        raise SupersededError("no more")

    versions: dict[str, str] = {}
    with Publication(lambda: None, versions).in_force(), gopen(f"{s3_prefix}/a", "wb") as stream:
        stream.write(b"abc")
    assert list(versions) == [f"{s3_prefix}/a"]
    with pytest.raises(SupersededError), Publication(refuse, versions).in_force():
        gopen(f"{s3_prefix}/b", "wb").close()
    assert Place(s3_prefix).read_if_there("b") is None


def test_a_task_of_an_earlier_owner_says_that_going_on_makes_no_sense(tmp_path: Path) -> None:
    plan = planned(tmp_path, f"touch {tmp_path}/out-{{}}")
    generation = own(plan.place, facts(plan))
    submission = Run(plan.place.url).submission(plan, "k8s", [0], 1, generation=generation)
    own(plan.place, facts(plan), take_over=True)
    words = [*PYTHON, "task", plan.url, "0", "--submission", submission.id]
    assert subprocess.run(words, check=False).returncode == 78
    assert not (tmp_path / "out-0").exists()


def stored(bucket: str, folder: Path, script: str, digest: str = "d") -> RunPlan:
    program = RunProgram({"kind": "command", "words": ["sh", "-c", script]}, digest)
    items = [Item("a", (), (f"{bucket}/data/a",))]
    return write_plan(Place(str(folder / "run")), program, TaskOptions(), items)


def test_an_upload_that_was_sent_before_a_take_over_is_not_completed_afterwards(s3_bucket: str, tmp_path: Path) -> None:
    """It asked just before, and was paused."""
    from webdataset.gopen import gopen

    plan = stored(s3_bucket, tmp_path, "true")
    own(plan.place, facts(plan))

    def asked() -> None:
        own(plan.place, facts(plan), take_over=True)

    stream = gopen(f"{s3_bucket}/data/a", "wb")
    stream.write(b"abc")
    with pytest.raises(StorageError), Publication(asked, {}).in_force():
        stream.close()
    assert Place(s3_bucket).read_if_there("data/a") is None
    others = gopen(f"{s3_bucket}/data/b", "wb")
    with Publication(asked, {}).in_force():
        others.write(b"abc")
        others.close()
    assert Place(s3_bucket).read("data/b") == b"abc", "what is no output of the run is nobody's business"


def test_an_object_that_appears_too_late_is_stale(wl: Any, here: Path, s3_bucket: str) -> None:
    line = ["map", "in-{000..002}.tar", "-o", f"{s3_bucket}/out-{{}}.tar", "--on", "local", "--state", "run", "-c"]
    assert wl(*line, "cls = 1").code == 0
    late = Place(s3_bucket).read("out-001.tar")
    assert wl(*line, "cls = 2").code == 0
    assert "3 done" in wl(*line, "cls = 2").err
    Place(s3_bucket).write("out-001.tar", late)
    assert "2 done, 1 stale" in wl(*line, "cls = 2").err
    assert "3 stale" in wl(*line, "cls = 1").err
    assert "3 done" in wl(*line, "cls = 1").err
    listed = S3Client(f"{s3_bucket}/").unfinished()
    assert list(listed) == []
