"""Every benchmark runs, on a few samples and without other packages; how long it takes is not looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "benchmarks")
sys.path.append(HERE)

pytest.importorskip("PIL")


def run(program, *words):
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, program), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The figures of all scenarios, of this package alone."""
    folder = tmp_path_factory.mktemp("figures")
    run("compare.py", "--tiny", "--generated", "--peers", "none", "--scenario", "all", "--output", str(folder))
    return folder


@pytest.mark.xdist_group("benchmarks")
def test_every_scenario_gives_figures_a_page_and_a_plot(compared):
    import compare
    import growth

    found = json.loads((compared / "results.json").read_text())["scenarios"]
    assert set(found) == {*compare.SCENARIOS, *growth.SCENARIOS}
    for name, peers in found.items():
        ours = peers.get("webloader") or next(iter(peers.values()))
        assert ours["trouble"] == "", name
        assert len(ours["rounds"]) == 1, name
    page = (compared / "peers.md").read_text()
    for name in found:
        assert f"## {name}: " in page
        assert (compared / f"{name}.svg").read_text().count("<rect") >= 1


@pytest.mark.xdist_group("benchmarks")
def test_a_later_run_goes_on_where_the_earlier_one_ended(compared):
    before = (compared / "results.json").read_text()
    run("compare.py", "--tiny", "--generated", "--peers", "none", "--scenario", "raw-B", "--output", str(compared))
    assert json.loads((compared / "results.json").read_text())["scenarios"] == json.loads(before)["scenarios"]
    words = ("--tiny", "--generated", "--peers", "none", "--scenario", "raw-B", "--again", "--output", str(compared))
    run("compare.py", *words)
    found, known = json.loads((compared / "results.json").read_text())["scenarios"], json.loads(before)["scenarios"]
    assert found.pop("raw-B") != known.pop("raw-B")
    assert found == known


def test_samples_that_differ_are_noticed():
    from compare import difference

    same = {"count": 2, "hash": "a"}
    assert difference(same, same) == ""
    assert difference(same, {"count": 1, "hash": "a"}) == "1 samples instead of 2"
    assert difference(same, {"count": 2, "hash": "b"}) == "not the same bytes"
    one, other = ({"count": 1, "pictures": {"7": [4, 4, 3, value]}} for value in (100.0, 102.0))
    assert difference(one, other) == ""
    other["pictures"]["7"][3] = 110.0
    assert difference(one, other) == "pixels differ by 10.0 of 255 for label 7"


def test_an_unknown_peer_or_scenario_is_told():
    for words in (["--peers", "nobody"], ["--scenario", "nothing"]):
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "compare.py"), *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "there is no no" in done.stderr


def test_a_peer_that_cannot_be_installed_is_reported(tmp_path, monkeypatch):
    import compare

    monkeypatch.setattr(compare, "ENVIRONMENTS", str(tmp_path))

    class Module:
        PACKAGES = ("./there/is/no/such/package",)
        NEEDS = ""

    assert compare.install("nobody", Module).startswith("not installed: ")
    assert compare.install("nobody", Module).endswith("nobody.log says why")  # and is not tried again


def test_the_profile_names_functions():
    assert "tottime" in run("profile_scenario.py", "raw-B", "--tiny").stdout


def test_the_commands_are_measured(tmp_path):
    words = [sys.executable, os.path.join(HERE, "commands.py"), "--samples", "200", "--rounds", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.stderr  # whether it was quick enough is the exit code
    for name in (
        "reading alone",
        "map, identity, -P 2",
        "shuffle through files",
        "concat, of 90 KB",
        "xargs, 4 commands",
    ):
        assert f"| {name}" in done.stdout


def test_the_engines_are_measured(tmp_path):
    words = ["local", "--shards", "2", "--megabytes", "0.1", "--rounds", "1", "--folder", str(tmp_path)]
    shown = run("engines.py", *words).stdout.splitlines()
    assert [line.split()[:2] for line in shown[2:]] == [["copy", "local"], ["compress", "local"]]
    assert not os.listdir(tmp_path)
