"""Who am I: rank, world size, worker, number of workers; and the seeds derived from it.

Nothing here imports torch: a process that never imported it is no worker of a torch loader.
"""

from __future__ import annotations

from .packages import loaded
from .settings import settings


def pytorch_worker_info(group: object = None) -> tuple[int, int, int, int]:
    """(rank, world_size, worker, num_workers) of this process.

    >>> pytorch_worker_info()
    (0, 1, 0, 1)
    """
    rank, world_size = _rank_and_world(group)
    worker, num_workers = _worker_and_workers()
    return rank, world_size, worker, num_workers


def pytorch_worker_seed(group: object = None) -> int:
    """A number that differs for every worker of every rank."""
    rank, _, worker, _ = pytorch_worker_info(group)
    return rank * 1000 + worker


def is_loader_worker(dataset: object = None) -> bool:
    """Whether this process is a worker of a torch loader, or of the one that reads this dataset.

    >>> is_loader_worker()
    False
    """
    data = loaded("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return info is not None and (dataset is None or info.dataset is dataset)


def make_seed(*args: object, bits: int = 31) -> int:
    """A seed of 31 bits from any values, the same in every process, on every Python.

    >>> make_seed("train", 3)
    2051683360
    """
    import hashlib

    digest = hashlib.blake2b(repr(args).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") & ((1 << bits) - 1)


def _rank_and_world(group: object) -> tuple[int, int]:
    rank, world_size = settings.rank_and_world
    if rank is not None and world_size is not None:
        return rank, world_size
    distributed = loaded("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        group = distributed.group.WORLD if group is None else group
        return distributed.get_rank(group=group), distributed.get_world_size(group=group)
    return 0, 1


def _worker_and_workers() -> tuple[int, int]:
    worker, num_workers = settings.worker_and_workers
    if worker is not None and num_workers is not None:
        return worker, num_workers
    data = loaded("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return (info.id, info.num_workers) if info is not None else (0, 1)
