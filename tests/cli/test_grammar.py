"""Options mean the same in every command."""

from __future__ import annotations

import re
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
def test_the_common_options_mean_the_same(wl: Any, name: str) -> None:
    flags = dict(re.findall(r"(?m)^  (-\w)(?: \S+)?(?:, -\w \S+)?, --([\w-]+)", wl(name, "--help").out.decode()))
    assert flags["-h"] == "help"
    common = {"-S": "select", "-s": "skip", "-c": "count", "-f": "fields", "-P": "processes", "-q": "quiet"}
    for flag, word in common.items():
        assert flags.get(flag, word) == word or (name, flag) == ("jobs", "-s")  # kujob's, for items
