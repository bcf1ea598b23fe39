"""Log records and progress bars, without importing logging or tqdm before there is something to say."""

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


def progress_bar(what: str, unit: str, total: int | None = None) -> Any:
    """A bar of the package tqdm, as it looks best in a terminal or a notebook."""
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        from webdataset.errors import MissingPackageError

        raise MissingPackageError("progress=True needs the package tqdm", hint="pip install tqdm") from error
    return tqdm(desc=what, unit=f" {unit}", total=total)
