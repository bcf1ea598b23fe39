"""The old programs are installed, and refuse what they do not know."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from webdataset.cli.old.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_flag_that_there_never_was_is_refused(wl: Any, program: str) -> None:
    assert wl.old(*program.split(), "--no-such-flag").code == 2


def test_every_name_is_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"wl", "widsindex", *(program.split()[0] for program in PROGRAMS)}
