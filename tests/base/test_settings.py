"""The environment, as typed properties."""

from __future__ import annotations

import pytest

import webdataset as wds
from webdataset.base.settings import settings
from webdataset.base.workers import make_seed, pytorch_worker_info, pytorch_worker_seed


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)])
def test_flags(monkeypatch, value, expected):
    monkeypatch.setenv("WDS_SECURE", value)
    assert settings.secure is expected


def test_a_number_that_is_none_is_named(monkeypatch):
    monkeypatch.setenv("WDS_SEED", "seven")
    with pytest.raises(ValueError, match="WDS_SEED"):
        _ = settings.seed


def test_setting_enforce_security_reaches_everything(monkeypatch):
    assert wds.utils.enforce_security is False
    monkeypatch.setattr(wds.utils, "enforce_security", True)
    assert settings.secure
    assert not settings.allow_pipe
    monkeypatch.setenv("WDS_ALLOW_PICKLE", "1")
    assert not settings.allow_pickle
    monkeypatch.undo()
    assert not settings.secure


def test_a_program_cannot_undo_the_environments_security(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    wds.utils.enforce_security = False
    assert settings.secure


def test_rank_and_worker_come_from_the_environment(monkeypatch):
    for name, value in (("RANK", "2"), ("WORLD_SIZE", "4"), ("WORKER", "1"), ("NUM_WORKERS", "3")):
        monkeypatch.setenv(name, value)
    assert pytorch_worker_info() == (2, 4, 1, 3)
    assert pytorch_worker_seed() == 2001


def test_seeds_are_31_bits_and_differ():
    seeds = {make_seed(name, i) for name in "ab" for i in range(100)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**31 for seed in seeds)
