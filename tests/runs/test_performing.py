"""One item: the function is called, the command runs, and every way to end has its meaning."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.outcomes import Verdict
from webdataset.runs.performing import Performed, filled_words, perform
from webdataset.runs.places import Place
from webdataset.runs.plans import RunPlan, RunProgram, write_plan


def nobody(program: dict[str, Any], errors: str) -> Performed | None:
    """No command is ours."""
    return None


def command(folder: Path, words: list[str], outputs: tuple[str, ...] = (), **options: Any) -> RunPlan:
    program = RunProgram({"kind": "command", "words": words}, "d")
    return write_plan(Place(str(folder / "run")), program, TaskOptions.of(options), [Item("x/007.tar", (), outputs)])


def done(plan: RunPlan) -> Performed:
    return perform(plan, 0, nobody, "errors.jsonl")


@pytest.mark.parametrize(
    ("code", "verdict"),
    [("0", Verdict.DONE), ("1", Verdict.RETRY), ("65", Verdict.GIVE_UP), ("75", Verdict.RETRY), ("127", Verdict.STOP)],
)
def test_exit_codes_decide(tmp_path: Path, code: str, verdict: Verdict) -> None:
    assert done(command(tmp_path, ["sh", "-c", f"exit {code}"])).verdict is verdict


def test_a_killed_command_is_tried_again(tmp_path: Path) -> None:
    ended = done(command(tmp_path, ["sh", "-c", "kill -9 $$"]))
    assert (ended.verdict, "signal 9" in ended.error) == (Verdict.RETRY, True)


def test_a_command_that_does_not_exist_stops_the_run(tmp_path: Path) -> None:
    ended = done(command(tmp_path, ["no-such-program-here"]))
    assert ended.verdict is Verdict.STOP
    assert "no-such-program-here" in ended.error


def test_names_are_filled_in_without_a_shell(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    code = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]))"
    plan = command(tmp_path, [sys.executable, "-c", code, str(output), "{}", "{.}", "{#}", "$HOME;ls"], (str(output),))
    assert done(plan).verdict is Verdict.DONE
    assert output.read_text() == "['x/007.tar', '007', '0', '$HOME;ls']"
    assert filled_words(["a-{}-{}"], "1", 0) == ["a-1-1"]


def test_a_command_that_fails_half_way_leaves_no_output(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    plan = command(tmp_path, ["sh", "-c", f"echo half > {output}; exit 3"], (str(output),))
    assert done(plan).verdict is Verdict.RETRY
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_command_that_writes_nothing_is_no_success(tmp_path: Path) -> None:
    output = str(tmp_path / "out.txt")
    ended = done(command(tmp_path, ["true", "{}"], (output,)))
    assert ended.verdict is Verdict.GIVE_UP
    assert output in ended.error


def test_a_plan_of_a_later_version(tmp_path: Path) -> None:
    plan = write_plan(Place(str(tmp_path)), RunProgram({"kind": "dance"}, "d"), TaskOptions(), [Item("a")])
    ended = done(plan)
    assert ended.verdict is Verdict.GIVE_UP
    assert "dance" in ended.error


def test_a_worker_that_does_not_see_the_folder_of_an_output_stops_the_run(tmp_path: Path) -> None:
    output = tmp_path / "elsewhere" / "out.txt"
    ended = done(command(tmp_path, ["touch", str(output)], (str(output),)))
    assert ended.verdict is Verdict.STOP
    assert str(output.parent) in ended.error


def test_a_worker_that_does_not_see_where_the_run_was_begun_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "begun").mkdir()
    monkeypatch.chdir(tmp_path / "begun")
    plan = command(tmp_path, ["cat", "in.txt"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun").rmdir()
    assert str(tmp_path / "begun") in done(plan).error
