"""Outages as programs live through them: what the log says of them, and servers that come back when it does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest


class Lines(logging.Handler):
    """What the log says of servers that are down."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.began = threading.Event()
        self._helpers: list[threading.Thread] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "trying again" in self.lines[-1]:
            self.began.set()

    @property
    def begun(self) -> list[str]:
        return [line for line in self.lines if "trying again" in line]

    @property
    def over(self) -> list[str]:
        return [line for line in self.lines if "answers again" in line]

    def then(self, repair: Callable[[], object]) -> None:
        """Call this, in a thread of its own, when waiting has begun."""

        def wait() -> None:
            if self.began.wait(60):
                repair()

        self._helpers.append(threading.Thread(target=wait, daemon=True))
        self._helpers[-1].start()

    def close(self) -> None:
        self.began.set()
        for helper in self._helpers:
            helper.join(60)
        super().close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """Servers are waited for, as outside of tests; gives what the log says of that."""
    monkeypatch.delenv("WDS_RETRIES")
    log, lines = logging.getLogger("webdataset.storage"), Lines()
    log.addHandler(lines)
    yield lines
    log.removeHandler(lines)
    lines.close()
