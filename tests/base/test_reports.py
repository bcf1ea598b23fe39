"""Reports: what is counted, and what is asked."""

from __future__ import annotations

import pytest

from webdataset.base.reports import MAX_REASONS, Report
from webdataset.errors import ShardError, ShardWarning
from webdataset.handlers import ignore_and_continue, reraise_exception


def test_reports_add_up() -> None:
    one, other = Report(), Report()
    for report in (one, other):
        report.count("samples_read", 2)
        report.dropped("samples_dropped", KeyError("jpg"))
    one.add(other.as_dict())
    assert (one.as_dict()["samples_read"], one.as_dict()["reasons"]) == (4, {"KeyError: 'jpg'": 2})


def test_reasons_are_bounded() -> None:
    report = Report()
    for number in range(MAX_REASONS + 5):
        report.dropped("samples_dropped", f"reason {number}")
    assert len(report.reasons) == MAX_REASONS + 1
    assert report.reasons["other reasons"] == 5


def test_a_handler_is_asked_and_the_skip_is_counted_but_for_strict_mode() -> None:
    error, report = ValueError("bad"), Report()
    assert report.ask(ignore_and_continue, error, "samples_dropped")
    with pytest.raises(ValueError, match="bad"):
        report.ask(reraise_exception, error, "samples_dropped")
    with pytest.raises(ValueError, match="bad"):
        Report(strict=True).ask(ignore_and_continue, error, "samples_dropped")
    assert report.as_dict()["samples_dropped"] == 1


def test_a_warning_is_counted_and_an_error_in_strict_mode() -> None:
    report = Report()
    with pytest.warns(ShardWarning, match="marker"):
        report.warn("no end marker", url="a.tar")
    assert report.as_dict()["warnings"] == 1
    with pytest.raises(ShardError, match="strict"):
        Report(strict=True).warn("no end marker", url="a.tar")
