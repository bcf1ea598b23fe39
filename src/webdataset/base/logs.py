"""Log records, without importing logging before there is something to say: that would be a tenth of our import time."""

from __future__ import annotations

from typing import Any


class Log:
    """The logger of this name, as `logging.getLogger` gives it when the first record is written.

    >>> Log("webdataset.gopen").isEnabledFor(10)
    False
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        import logging

        return getattr(logging.getLogger(self.name), attribute)
