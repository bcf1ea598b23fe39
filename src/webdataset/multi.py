"""MultiLoader: worker processes without torch.

>>> loader = MultiLoader(range(3), workers=1)
>>> list(loader)
[0, 1, 2]
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from .errors import WebDatasetError
from .loading.forks import leaving_garbage


class MultiLoader:
    """Reads a dataset in several processes, each its own shards, and yields items as they come.

    The workers know their number from the environment variables WORKER and NUM_WORKERS, as `split_by_worker` does.
    A worker that fails or is killed is an error here.
    """

    def __init__(
        self,
        dataset: object,
        workers: int = 4,
        verbose: bool = False,
        nokill: bool = False,
        prefix: str | None = None,
        *,
        start_method: str | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.dataset = dataset
        self.workers = workers
        self.verbose = verbose
        self.nokill = nokill
        self.prefix = prefix
        self.start_method = start_method
        self._processes: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        if not self.nokill:
            self.kill()
        processes = dict(self._start())
        self._processes = list(processes.values())
        try:
            while processes:
                for ready in wait(list(processes)):
                    assert isinstance(ready, Connection)
                    yield from self._receive(ready, processes)
        finally:
            for process in self._processes:
                process.terminate()
            for process in self._processes:
                process.join()
            for receiver in processes:
                receiver.close()

    def kill(self) -> None:
        """End the workers of an earlier pass."""
        for process in self._processes:
            process.terminate()
            process.join()
        self._processes = []

    def _start(self) -> Iterator[tuple[Connection, Any]]:
        context: Any = multiprocessing.get_context(self.start_method)
        for worker in range(self.workers):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(self.dataset, worker, self.workers, sender), daemon=True)
            with leaving_garbage():
                process.start()
            sender.close()
            yield receiver, process

    def _receive(self, receiver: Connection, processes: dict[Connection, Any]) -> Iterator[Any]:
        try:
            kind, value = receiver.recv()
        except EOFError:
            process = processes.pop(receiver)
            process.join()
            raise WebDatasetError(f"a loader's worker ended early, with exit code {process.exitcode}") from None
        if kind == "item":
            yield value
        elif kind == "error":
            raise value
        else:
            processes.pop(receiver).join()
            receiver.close()


def _work(dataset: Iterable[Any], worker: int, workers: int, sender: Connection) -> None:
    os.environ["WORKER"], os.environ["NUM_WORKERS"] = str(worker), str(workers)
    try:
        for item in dataset:
            sender.send(("item", item))
    except BrokenPipeError:
        return
    except Exception as exn:
        exn.add_note(f"in worker {worker} of {workers}:\n{traceback.format_exc()}")
        sender.send(("error", exn))
    else:
        sender.send(("end", None))
