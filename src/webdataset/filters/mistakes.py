"""Mistakes in a filter's options."""

from __future__ import annotations


class OptionError(ValueError, AssertionError):
    """Options that make no sense together or at all; older versions had an assert in these places."""
