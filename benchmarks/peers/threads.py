"""This package with threads instead of worker processes."""

from __future__ import annotations

from typing import Any

from . import webloader
from .case import Case

PACKAGES: list[str] = []
NEEDS = ""
DISTRIBUTION = "webdataset"
URLS = True
RUNS = {"train": "2 threads", "rgb": "2 threads"}


def train(case: Case) -> Any:
    return webloader.train(case, workers="thread")


def rgb(case: Case) -> Any:
    return webloader.rgb(case, threads=case.workers)
