"""What happens to an error: raised, skipped or the end, and always counted."""

from __future__ import annotations

import pytest

import webdataset as wds
from webdataset.base.reports import Report, current_report
from webdataset.handlers import CountingHandler, handled

ITEMS = ["1", "x", "3", "y", "5"]


def test_reraising_stops_with_the_error():
    with pytest.raises(ValueError, match="'x'"):
        list(handled(ITEMS, int, wds.reraise_exception))


def test_ignoring_goes_on_or_stops():
    assert list(handled(ITEMS, int, wds.ignore_and_continue)) == [1, 3, 5]
    assert list(handled(ITEMS, int, wds.ignore_and_stop)) == [1]


def test_warning_goes_on_or_stops():
    with pytest.warns(UserWarning, match="'[xy]'") as caught:
        assert list(handled(ITEMS, int, wds.warn_and_continue)) == [1, 3, 5]
    assert len(caught) == 2
    with pytest.warns(UserWarning, match="'[xy]'"):
        assert list(handled(ITEMS, int, wds.warn_and_stop)) == [1]


def test_skips_are_counted_with_their_reasons():
    report = Report()
    with report.in_force():
        list(handled(ITEMS, int, wds.ignore_and_continue))
    assert report.as_dict()["samples_dropped"] == 2
    assert len(report.as_dict()["reasons"]) == 2


def test_strict_mode_has_no_skips():
    with Report(strict=True).in_force(), pytest.raises(ValueError, match="'x'"):
        list(handled(ITEMS, int, wds.ignore_and_continue))


def test_the_counting_handler_counts_and_has_limits():
    handler = CountingHandler()
    assert list(handled(ITEMS, int, handler)) == [1, 3, 5]
    assert (handler.total, handler.errors) == (2, {"ValueError": 2})
    with pytest.raises(ValueError, match="'y'"):
        list(handled(ITEMS, int, CountingHandler(max_errors=1)))
    assert list(handled(ITEMS, int, CountingHandler(max_consecutive=1))) == [1, 3, 5]
    with pytest.raises(ValueError, match="'y'"):
        list(handled(["1", "x", "y"], int, CountingHandler(max_consecutive=1)))


def test_an_error_is_told_the_sample_it_happened_in():
    with pytest.raises(KeyError) as caught:
        list(handled([{"__key__": "k7", "__url__": "http://u:pw@h/a.tar"}], lambda s: s["jpg"], wds.reraise_exception))
    [note] = caught.value.__notes__
    assert ("'k7'" in note, "http://***@h/a.tar" in note) == (True, True)


def test_a_report_is_in_force_in_its_block_only():
    report = Report()
    with report.in_force():
        assert current_report() is report
    assert current_report() is not report
