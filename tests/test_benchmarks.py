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

TINY = ("--tiny", "--generated", "--peers", "none", "--output")


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
    run("compare.py", "main", "growth", *TINY, str(folder))
    return folder


def scenarios(folder):
    return json.loads((folder / "results.json").read_text())["scenarios"]


def test_every_scenario_gives_figures_a_page_and_a_plot(compared):
    import compare
    import growth

    found = scenarios(compared)
    assert set(found) == {*compare.SCENARIOS, *growth.SCENARIOS}
    for name, peers in found.items():
        ours = peers.get("webloader") or next(iter(peers.values()))
        assert ours["trouble"] == "", name
        assert len(ours["rounds"]) == 1, name
    page = (compared / "peers.md").read_text()
    for name in found:
        assert f"## {name}: " in page
        assert (compared / f"{name}.svg").read_text().count("<rect") >= 1


def test_every_byte_that_is_given_is_read(compared):
    import compare

    found = scenarios(compared)
    for name, scenario in compare.SCENARIOS.items():
        for peer in found[name].values():
            for one in peer["rounds"]:
                assert (one["bytes"] > 0) == (scenario.kind != "import"), name
    checks = {name: found[name]["webloader"]["check"]["checksum"] for name in ("raw-A", "gzip-A", "write-A")}
    assert len(set(checks.values())) == 2, checks  # raw-A reads the same photographs several times
    assert checks["gzip-A"] == checks["write-A"]


def test_what_is_measured_again_leaves_the_rest(compared):
    before = scenarios(compared)
    run("compare.py", "raw-B", *TINY, str(compared))
    found = scenarios(compared)
    assert found.pop("raw-B") != before.pop("raw-B")
    assert found == before


def test_a_run_that_was_cut_goes_on(compared):
    path = compared / "results.json"
    found = json.loads(path.read_text()) | {"complete": False}
    kept = found["scenarios"]["raw-C"]
    del found["scenarios"]["raw-B"]
    path.write_text(json.dumps(found))
    run("compare.py", "raw-B", "raw-C", *TINY, str(compared))
    assert scenarios(compared)["raw-C"] == kept
    assert len(scenarios(compared)["raw-B"]["webloader"]["rounds"]) == 1


@pytest.mark.parametrize("name", ["exact", "network", "objects", "cache", "commands", "loader"])
def test_every_section_gives_a_table_or_says_what_it_needs(name, tmp_path):
    shown = run("compare.py", name, *TINY, str(tmp_path)).stdout
    known = json.loads((tmp_path / "results.json").read_text())["sections"][name]
    if known["trouble"]:
        assert "install.sh" in known["trouble"]
        pytest.skip(known["trouble"])
    assert known["rows"]
    for what, *_ in known["rows"]:
        assert f"| {what}" in shown


def test_samples_that_differ_are_noticed():
    from compare import difference

    same = {"samples": 2, "checksum": "a"}
    assert difference(same, same) == ""
    assert difference(same, {"samples": 1, "checksum": "a"})
    assert difference(same, {"samples": 2, "checksum": "b"})
    one, other = ({"samples": 1, "pictures": {"7": [4, 4, 3, value]}} for value in (100.0, 102.0))
    assert difference(one, other) == ""
    other["pictures"]["7"][3] = 110.0
    assert difference(one, other)


def test_an_unknown_peer_or_scenario_is_told():
    for words in (["--peers", "nobody"], ["nothing"], ["--scenario", "nothing"]):
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "compare.py"), *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert words[-1] in done.stderr


def test_a_peer_that_cannot_be_installed_is_reported(tmp_path, monkeypatch):
    import environments

    monkeypatch.setattr(environments, "ENVIRONMENTS", str(tmp_path))

    class Module:
        PACKAGES = ("./there/is/no/such/package",)
        NEEDS = ""

    assert environments.install("nobody", Module)
    assert "nobody.log" in environments.install("nobody", Module)  # and is not tried again


def test_the_profile_names_functions():
    assert "tottime" in run("profile_scenario.py", "raw-B", "--tiny").stdout


def test_the_engines_are_measured(tmp_path):
    words = ["local", "--shards", "2", "--megabytes", "0.1", "--rounds", "1", "--folder", str(tmp_path)]
    shown = run("engines.py", *words).stdout.splitlines()
    assert [line.split()[:2] for line in shown[2:]] == [["copy", "local"], ["compress", "local"]]
    assert not os.listdir(tmp_path)
