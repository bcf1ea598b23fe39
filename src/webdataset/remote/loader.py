"""RemoteLoader: a loader whose batches are made on other machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, cast

from webdataset.base.reports import Report
from webdataset.base.settings import settings
from webdataset.base.units import number_of_bytes
from webdataset.fluid import FluidInterface
from webdataset.loading.collation import Collation, makes_tensors
from webdataset.loading.frameworks import DataLoaderFacade
from webdataset.loading.loaded import LoadedRunner
from webdataset.loading.threads import has_cuda
from webdataset.loading.workers import UntrackedWorkers
from webdataset.pipeline import DataPipeline, add_length_method

from .addresses import check_allowed, is_stream, places
from .asking import AskingOptions
from .feeds import feeds_of
from .keys import TRAINER, Keys, keys_of
from .progress import RemoteOptions, RemoteProgress
from .streams import StreamSource
from .wire import MOST_CHARACTERS

BUDGET = 256 << 20
TIMEOUT, PATIENCE = 10.0, 300.0


class RemoteLoader(DataLoaderFacade, DataPipeline, FluidInterface):
    """The batches of an exact pipeline that `wl serve` or `wds.serve` makes elsewhere, in place of a WebLoader.

    `urls` are the producers' addresses, `tcp://cpu-{0..3}:7880`; `dns://producers:7880` stands for all addresses of a
    name, `@producers.txt` for those in a file, and both are looked up again as producers come and go. Every sample
    comes once per epoch, in an order that does not depend on the number of producers; they may die, hang, come back
    or be added. `len()`, `state_dict()`, `set_epoch()` and the fluent methods are those of a WebLoader.

    `keys` is a file that `wl keygen` made; addresses of other machines need one, or `insecure=True`. `budget` is how
    many bytes of batches are under way or wait, `timeout` after how many seconds of silence a producer is taken to
    hang, `patience` for how many seconds there may be no producer at all. `feeds`, a multiple of the number of ranks,
    is what the order depends on besides the pipeline; `job` tells jobs apart that share producers. Arrays become
    tensors if torch is installed, unless `tensors=False`; on `device`, or in pinned memory with `pin_memory=True`.
    `rank` and `world_size` are those of torch.distributed or the environment unless given; `largest` is the most bytes
    of a batch.

    A url such as `zpull://host:port` is a stream: endless, at most once, from our `serve` or from Tensorcom.

    >>> loader = RemoteLoader("tcp://127.0.0.1:{7880..7883}")
    >>> loader.addresses[-1]
    'tcp://127.0.0.1:7883'
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        keys: Keys | None = None,
        insecure: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        feeds: int | None = None,
        budget: int | str = BUDGET,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
        job: str = "",
        device: object = None,
        pin_memory: bool = False,
        tensors: bool | None = None,
        largest: int | str | None = None,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("give rank= and world_size=, or neither")
        if timeout <= 0 or patience <= 0:
            raise ValueError(f"timeout= and patience= are seconds, above 0: got {timeout} and {patience}")
        if len(job) > MOST_CHARACTERS:
            raise ValueError(f"job= is a name of at most {MOST_CHARACTERS} characters, got {len(job)}")
        ranks = None if rank is None or world_size is None else (rank, world_size)
        if ranks is not None and not 0 <= ranks[0] < ranks[1]:
            raise ValueError(f"rank {rank} is not one of the {world_size} ranks")
        keys = keys_of(keys, TRAINER)
        finish = self._finish(tensors, device, pin_memory=pin_memory)
        self._workers: Any
        if is_stream(urls) or (not isinstance(urls, str) and any(map(is_stream, urls))):
            source = StreamSource(urls, keys=keys, insecure=insecure, finish=finish)
            self.addresses = source.urls
            self._workers = UntrackedWorkers(source)
            super().__init__(source)
            return
        if feeds is not None and ranks is not None:
            feeds_of(ranks[1], feeds)
        self.addresses = places(urls)
        for address in self.addresses:
            check_allowed(address, keys, insecure=insecure)
        most = settings.max_member_bytes if largest is None else number_of_bytes(largest)
        asking = AskingOptions(number_of_bytes(budget), timeout, patience, most)
        options = RemoteOptions(tuple(self.addresses), keys, insecure, asking, ranks, feeds, job, finish)
        self._workers = RemoteProgress(options)
        super().__init__(self._workers.loader)
        add_length_method(self)

    @staticmethod
    def _finish(tensors: bool | None, device: object, *, pin_memory: bool) -> Callable[[Any], Any]:
        if device is None and not pin_memory:
            return Collation(makes_tensors(tensors), batches=False)
        if tensors is False:
            raise ValueError("device= and pin_memory= are for tensors: they do not go with tensors=False")
        return partial(on_device, device, pin_memory)

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Make an epoch of exactly this many batches, of a stream, too; changes the loader.

        Args:
            nsamples: the number of batches
            nbatches: the same, under another name; the larger counts

        >>> len(RemoteLoader("zpull://127.0.0.1:0").with_epoch(60))
        60
        """
        super().with_epoch(nsamples, nbatches)
        return cast("Self", add_length_method(self))

    @property
    def runner(self) -> LoadedRunner:
        """What runs it."""
        return LoadedRunner(self, self._progress, DataPipeline, self._workers)

    def stats(self) -> dict[str, Any]:
        """What the producers read, skipped and dropped for the latest pass, and why; and what came from them in all."""
        total = Report()
        total.add(super().stats())
        if not isinstance(self._workers, RemoteProgress):
            return total.as_dict() | {"batches_lost": self._workers.loader.lost}
        total.add(self._workers.report.as_dict())
        return total.as_dict() | self._workers.counts()

    def producers(self) -> list[str]:
        """The addresses of the producers that answer now."""
        return self._workers.producers().live() if isinstance(self._workers, RemoteProgress) else []

    def close(self) -> None:
        """Close the connections; iterating again opens new ones."""
        if isinstance(self._workers, RemoteProgress):
            self._workers.close()
        else:
            self._workers.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def on_device(device: object, pin_memory: bool, item: object) -> Any:
    """The arrays of an item as tensors on a device, through pinned memory if that is asked for and there is a GPU."""
    import torch
    from torch.utils.data import default_convert

    item = default_convert(item)
    if pin_memory and has_cuda():
        from torch.utils.data._utils.pin_memory import pin_memory as pinned

        item = pinned(item)
    return item if device is None else _moved(torch.Tensor, item, lambda tensor: tensor.to(device, non_blocking=True))


def _moved(kind: type, value: Any, move: Callable[[Any], Any]) -> Any:
    if isinstance(value, kind):
        return move(value)
    if isinstance(value, dict):
        return {name: _moved(kind, inner, move) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_moved(kind, inner, move) for inner in value)
    return value
