"""What workers leave for their loader."""

from __future__ import annotations

import gc
import os

from webdataset.base.mailbox import Mailbox, publish
from webdataset.base.reports import Report


def test_counts_and_errors_arrive(monkeypatch) -> None:
    monkeypatch.setenv("WORKER", "1")
    monkeypatch.setenv("NUM_WORKERS", "2")
    mailbox, report = Mailbox(), Report()
    report.count("samples_read", 3)
    try:
        raise KeyError("jpg")
    except KeyError:
        publish(mailbox.folder, report)
    assert [counts["samples_read"] for counts in mailbox.reports()] == [3]
    error = mailbox.error(1)
    assert isinstance(error, KeyError)
    assert "in worker 1 of 2" in error.__notes__[0]
    assert mailbox.error(0) is None
    mailbox.clear()
    assert list(mailbox.reports()) == []


def test_nobody_to_tell_is_no_error() -> None:
    publish(None, Report())
    mailbox = Mailbox()
    folder = mailbox.folder
    del mailbox
    gc.collect()
    assert not os.path.exists(folder)
    publish(folder, Report())


def test_a_pass_that_is_still_open_when_the_program_ends_leaves_nothing(monkeypatch) -> None:
    """The interpreter closes it when files can no longer be opened."""
    mailbox = Mailbox()
    monkeypatch.setattr("sys.is_finalizing", lambda: True)
    publish(mailbox.folder, Report())
    assert list(mailbox.reports()) == []
