"""Work that takes longer than a request: it runs in the background, and requests see how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from webdataset.base.stops import Thread

from .fields import told


class Job:
    """Runs a function once, in a thread of its own; `function(job)` says how far it is and leaves its result."""

    def __init__(self, function: Callable[[Job], Any]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._thread: Thread | None = None
        self.done = 0
        self.total = 0
        self.result: object = None
        self.error = ""
        self.stopped = False

    def start(self) -> None:
        """Begin, unless it has begun already."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="webdataset-view-job", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ask it to end; it looks at `stopped`."""
        self.stopped = True

    @property
    def state(self) -> str:
        """waiting, running, done or failed."""
        if self._thread is None:
            return "waiting"
        if self._thread.is_alive():
            return "running"
        return "failed" if self.error else "done"

    def progress(self) -> dict[str, Any]:
        """How far it is, as plain data."""
        return {"state": self.state, "done": self.done, "total": self.total, "error": self.error}

    def _run(self) -> None:
        try:
            self.result = self._function(self)
        except Exception as error:
            self.error = told(error)
