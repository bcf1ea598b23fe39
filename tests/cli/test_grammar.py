"""Options mean the same in every command."""

from __future__ import annotations

from typing import Any

import pytest

from webdataset.cli import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_two_examples(wl: Any, name: str) -> None:
    ended = wl(name, "--help")
    assert ended.code == 0
    text = ended.out.decode()
    assert text.startswith("examples:\n  # ")
    assert text.split("usage:")[0].count("wl ") >= 2
    assert wl("help", name).out == ended.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_common_options_mean_the_same(name: str) -> None:
    from webdataset.cli.running import parser_of

    flags = {flag: action.dest for action in parser_of(name)._actions for flag in action.option_strings}
    for flag, dest in {"-S": "select", "-s": "skip", "-f": "fields", "-q": "quiet", "-v": "verbose"}.items():
        assert flags.get(flag, dest) == dest or (name, flag) == ("jobs", "-s")  # kujob's, for items
    assert flags.get("-c", "count") in ("count", "count_or_code")
    assert flags.get("-P", "processes") == flags.get("-p", "processes") == "processes"
