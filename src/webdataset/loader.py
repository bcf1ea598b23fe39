"""WebLoader: torch's DataLoader, or threads, with the fluent methods and with the workers' reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from .base.mailbox import Mailbox
from .base.reports import Report
from .errors import StateError
from .fluid import FluidInterface
from .loading.frameworks import LoaderFace
from .loading.processes import process_loader
from .loading.threads import ThreadLoader
from .pipeline import DataPipeline, add_length_method

if TYPE_CHECKING:
    from .exact.rounds import StreamRounds
    from .loading.steps import Taken
    from .loading.workermarks import ThreadMarks, WorkerMarks


class WebLoader(LoaderFace, DataPipeline, FluidInterface):
    """A DataLoader whose batches can be unbatched, shuffled and batched again, and counted.

    Takes the arguments of `torch.utils.data.DataLoader`. With `workers="thread"` the workers are threads of this
    process instead of processes, and torch is not needed.

    >>> loader = WebLoader([1, 2, 3, 4], batch_size=2, num_workers=2, workers="thread").with_epoch(3)
    >>> [list(map(int, batch)) for batch in loader]
    [[1, 2], [3, 4], [1, 2]]
    """

    _taken: Taken | None = None
    """Where a loader of an exact dataset is."""
    _marks: WorkerMarks | ThreadMarks | None = None
    """Where the workers of a loader of a streamed dataset are."""
    _stream_rounds: StreamRounds
    """How it cuts and repeats a streamed dataset, and where it is in that."""

    def __init__(self, dataset: Any, *args: Any, workers: str = "process", **kw: Any) -> None:
        if workers not in ("process", "thread"):
            raise ValueError(f'workers must be "process" or "thread", got {workers!r}')
        in_processes = workers == "process"
        pipeline = dataset
        if getattr(dataset, "exact", False):
            from .loading.steps import exact_steps, repeated_in_batches

            repeated = repeated_in_batches(dataset, args, kw)
            self._taken, dataset, args, kw = exact_steps(dataset, args, kw, threads=not in_processes)
            pipeline = dataset.dataset
        elif in_processes and isinstance(dataset, DataPipeline):
            from .loading.workermarks import Placed, marked

            self._marks = marked(dataset, args, kw)
            dataset = dataset if self._marks is None else Placed(dataset)
        self._mailbox = Mailbox() if in_processes and isinstance(pipeline, DataPipeline) else None
        if self._mailbox is not None:
            pipeline._report_folder = self._mailbox.folder
        if in_processes:
            super().__init__(process_loader(dataset, *args, mailbox=self._mailbox, **kw))
        else:
            super().__init__(ThreadLoader(dataset, *args, **kw))
            self._marks = self._thread_marks(self.pipeline[0]) if self._taken is None else None
        if self._taken is not None:
            self.append(self._taken)
            self.repetitions, self.nsamples = repeated
            add_length_method(self)
        elif self._marks is not None:
            from .exact.rounds import StreamRounds

            self._stream_rounds = StreamRounds()
            self.append(self._marks.items)

    def _thread_marks(self, loader: ThreadLoader) -> ThreadMarks | None:
        if loader.indexed or not isinstance(loader.dataset, DataPipeline):
            return None
        from .loading.workermarks import ThreadMarks

        return ThreadMarks(loader)

    def __iter__(self) -> Iterator[Any]:
        if self._marks is None or self.limits().is_one_pass:
            return super().__iter__()
        return self._shown_to_frameworks(self._stream_rounds.items(self.limits(), self.iterator1, self._marks.forget))

    def iterator1(self) -> Iterator[Any]:
        progress = self._taken or self._marks
        if progress is not None:
            progress.begin()
        return super().iterator1()

    def rounds(self) -> Any:
        if self._taken is None or (self.repetitions == 1 and self.nsamples <= 0):
            return None
        from .exact.rounds import Rounds
        from .loading.steps import may_hold

        # where a stage after the loader holds samples, every round begins with an epoch: they would be lost
        return None if may_hold(self.pipeline[2:]) is not None else Rounds(self._taken, self.limits())

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, after the latest batch that it gave: small, and fit for JSON."""
        if self._shown is not None:
            return self._shown
        if self._taken is None and self._marks is None:
            raise StateError(
                "the state of this loader cannot be saved",
                hint='WebLoader(dataset.batched(n), batch_size=None), workers="thread", or exact=True make it possible',
            )
        from .loading.steps import check_can_be_saved

        check_can_be_saved(self.pipeline[2:])
        limits = self.limits()
        if self._taken is not None:
            return self._taken.state_dict(limits)
        assert self._marks is not None
        state = self._marks.state_dict()
        return state if limits.is_one_pass else {**state, "round": self._stream_rounds.state(limits)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        self._shown = None
        if self._taken is not None:
            self._taken.load_state_dict(state, self.limits())
        elif self._marks is not None:
            from .loading.workermarks import end_workers

            self._stream_rounds.load(state, self.limits(), self._marks.load_state_dict)
            end_workers(self.pipeline[0])
        else:
            raise StateError("a state cannot be loaded into this loader", hint="it cannot save one either")

    def items_in_passes(self, count: int) -> int:
        return super().items_in_passes(count) if self._taken is None else self._taken.length(self.pipeline[2:], count)

    def stats(self) -> dict[str, Any]:
        """What the latest pass read, skipped and dropped, over all workers, and why."""
        total = Report()
        total.add(super().stats())
        loader = self.pipeline[0]
        if self._mailbox is not None and loader.num_workers > 0:
            for report in self._mailbox.reports():
                total.add(report)
        if self._mailbox is not None and (loader.num_workers == 0 or getattr(loader.dataset, "read_by_loader", False)):
            total.add(loader.dataset.stats())
        return total.as_dict()

    def set_epoch(self, epoch: int) -> Self:
        """Make this the epoch of the next pass, in the dataset and all its workers."""
        inner = getattr(self._taken or self._marks or self.pipeline[0].dataset, "set_epoch", None)
        if callable(inner) and self.rounds() is None:
            inner(epoch)
        return super().set_epoch(epoch)
