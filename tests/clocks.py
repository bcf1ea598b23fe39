"""A clock that is moved by waiting, and retries that go by it."""

from __future__ import annotations

from webdataset.storage.patience import Patience, RetriesExhaustedError, RetryState


class Time:
    """A clock that is moved by waiting."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return False


def waiting(time, url="http://host/a.tar", server=None, **options):
    return RetryState(Patience(**options), url, server, stop=time, clock=time.clock)


def tries_until_given_up(wait, **options):
    for number in range(1, 1000):
        try:
            wait.pause("it failed", **options)
        except RetriesExhaustedError as exn:
            return number, exn
    raise AssertionError("it never gives up")
