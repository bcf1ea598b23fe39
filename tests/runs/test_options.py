"""Options: of a file, of the engines, and those that make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from runs_support import doubled
from webdataset.runs.options import TaskOptions, options_file
from webdataset.runs.outcomes import Verdict, verdict_of_code

TEXTS = {
    "a.toml": 'memory = "2Gi"\nretries = 5\n[slurm]\npartition = "cpu"\n',
    "a.yaml": "memory: 2Gi\nretries: 5\nslurm:\n  partition: cpu\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_options_of_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TEXTS[name])
    options = TaskOptions.of(options_file(str(tmp_path / name)))
    assert (options.memory, options.retries, options.own) == (2**31, 5, {"slurm": {"partition": "cpu"}})
    assert TaskOptions.of(options.as_dict()) == options


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"retrys": 3}, "'retrys'"),
        ({"cpus": 0}, "cpus .* 0"),
        ({"retries": -1}, "retries .* -1"),
        ({"timeout": 0}, "timeout .* 0"),
        ({"memory": "much"}, "'much'"),
        ({"stop_codes": "three"}, "'three'"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        wds.jobs(doubled, [], **given)


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "x = ["), ("a.txt", ""), ("a.yaml", "- 1"), ("a.yaml", "a: ["), ("none.toml", None)]
)
def test_files_that_make_no_sense(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        wds.jobs(doubled, [], options=str(tmp_path / name))


def test_exit_codes_mean_what_the_user_says() -> None:
    more = TaskOptions.of({"stop_codes": "3", "give_up_codes": "4-5", "retry_codes": "127"}).verdicts()
    assert [verdict_of_code(code, more) for code in (0, 1, 3, 5, 127, -9)] == [
        Verdict.DONE,
        Verdict.RETRY,
        Verdict.STOP,
        Verdict.GIVE_UP,
        Verdict.RETRY,
        Verdict.RETRY,
    ]
