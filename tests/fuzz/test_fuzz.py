"""A short run of the fuzzer over each kind of foreign data; `./run fuzz` takes a minute for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_support import python

from .targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_foreign_data_is_read_or_refused(name: str) -> None:
    fuzzer = Path(__file__).with_name("fuzzer.py")
    done = python(fuzzer, name, "--examples", "150")
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-3000:])
