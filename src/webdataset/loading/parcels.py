"""Batches from worker processes, in blocks of shared memory that are used again and again.

torch sends every tensor in a file of shared memory of its own, made for it. Here the arrays and tensors of an item lie
in a block of memory that the worker and the loader's process both see; what goes through the pipe is where they lie. A
batch that `batched` makes is written into such a block in the first place.

A block belongs to the worker. It is the loader's while an array or tensor there refers to it, which a byte in it
tells, and the worker makes a new block if none is free: a batch that somebody holds is never overwritten, and a worker
never waits for one. The blocks have no names, so nothing is left behind by processes that are killed, and no limit of
/dev/shm applies.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from webdataset.base.memory import LARGE, Block, Memory, of_this_thread, use
from webdataset.base.packages import loaded
from webdataset.base.workers import is_loader_worker

if TYPE_CHECKING:
    import numpy as np
    import torch

HEADER = 4096
"""The first page of a block tells whether the loader uses it."""
ALIGNED = 64
WORTH_SHARING = 32 << 10
"""Items of fewer bytes go through the pipe."""


class Packing:
    """A loader's collation, whose results leave its worker processes as parcels; elsewhere it changes nothing."""

    def __init__(self, collate: Callable[[Any], Any], dataset: object) -> None:
        self.collate = collate
        self.dataset = dataset

    def __call__(self, samples: object) -> Any:
        if not is_loader_worker(self.dataset):  # nor in a worker of another loader, whose dataset has one of its own
            return self.collate(samples)
        memory = of_this_thread()
        if memory.new_block is not SharedBlock:
            memory = Memory(SharedBlock)
            use(memory)
        item = self.collate(samples)
        began = time.perf_counter()
        parcel = packed(item, memory)
        progress = getattr(getattr(self.dataset, "dataset", self.dataset), "_progress", None)
        if progress is not None and progress.context is not None:
            progress.context.report.spend("transfer", time.perf_counter() - began)
        return parcel


class SharedBlock(Block):
    """A block that another process can open."""

    def made(self, size: int) -> np.ndarray[Any, Any]:
        import numpy as np

        self.file = os.memfd_create("webdataset")
        os.ftruncate(self.file, HEADER + size)
        self.map = mmap.mmap(self.file, HEADER + size)
        return np.frombuffer(self.map, np.uint8, size, HEADER)

    def __init__(self, size: int) -> None:
        super().__init__(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self.address = self.memory.ctypes.data

    @property
    def is_free(self) -> bool:
        """Whether nobody here refers to it, and nobody in the loader's process."""
        return not self.map[0] and super().is_free

    def sent(self) -> None:
        """It is the loader's now."""
        self.map[0] = 1

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.file)


class LostParcelError(Exception):
    """An item whose worker has ended before it was opened."""


class Part(NamedTuple):
    """Where a piece of an item lies: in which of the parcel's blocks, from where on, and how many bytes."""

    block: int
    start: int
    size: int


class Parcel:
    """An item on its way to the loader; unpickling it gives the item."""

    def __init__(self, blocks: list[Any], parts: list[Part]) -> None:
        self._blocks = [(os.getpid(), block.file, block.size) for block in blocks]
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return received, (self._blocks, self._parts)


def packed(item: object, memory: Memory) -> object:
    """The item as a parcel; the item itself if it is small, or one that only torch knows how to send."""
    buffers: list[Any] = []
    file = io.BytesIO()
    try:
        _Pickler(file, buffers.append).dump(item)
        pieces = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    except Exception:  # torch sends it, or says what is wrong with it
        return item
    if sum(len(piece) for piece in pieces) < WORTH_SHARING:
        return item
    found = [_place(piece, memory.blocks) for piece in pieces]
    missing = sum(_aligned(len(piece)) for piece, at in zip(pieces, found, strict=True) if at is None)
    fresh: Any = memory.block(max(missing, LARGE)) if missing else None
    if missing and not isinstance(fresh, SharedBlock):
        return item
    blocks: list[Any] = []
    parts, end = [], 0
    for piece, at in zip(pieces, found, strict=True):
        block, start = at or (fresh, end)
        if at is None:
            block.memory[start : start + len(piece)] = memoryview(piece)
            end += _aligned(len(piece))
        if block not in blocks:
            blocks.append(block)
        parts.append(Part(blocks.index(block), start, len(piece)))
    for block in blocks:
        block.sent()
    return Parcel(blocks, parts)


def received(blocks: list[tuple[int, int, int]], parts: list[Part]) -> Any:
    """The item of a parcel: its arrays and tensors lie in the worker's memory, which is theirs as long as they live."""
    began = time.perf_counter()
    memories = [memoryview(_opened(*block)) for block in blocks]
    pickled, *buffers = [memories[block][start : start + size] for block, start, size in parts]
    item = pickle.loads(pickled, buffers=buffers)  # noqa: S301 - from a worker of ours
    spent.seconds += time.perf_counter() - began
    return item


class Spent:
    """How long this process has taken parcels apart."""

    seconds = 0.0


spent = Spent()


@cache
def can_share() -> bool:
    """Whether this system has files without a name that a parent can open: Linux has."""
    try:
        file = os.memfd_create("webdataset")
    except (AttributeError, OSError):
        return False
    try:
        os.close(os.open(f"/proc/{os.getpid()}/fd/{file}", os.O_RDWR))
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def forget_dead_workers() -> None:
    """Give back the memory of workers that have ended; what somebody still holds stays."""
    for process, file, inode in list(_maps):
        try:
            is_there = os.stat(f"/proc/{process}/fd/{file}").st_ino == inode
        except OSError:
            is_there = False
        if not is_there:
            _maps.pop((process, file, inode), None)


_maps: dict[tuple[int, int, int], mmap.mmap] = {}
"""The blocks of workers that this process has opened, by process, file and inode."""


def _opened(process: int, file: int, size: int) -> Any:
    """A worker's block as an array; it is given back to the worker when nobody refers to the array any more."""
    import numpy as np

    path = f"/proc/{process}/fd/{file}"
    try:
        place = (process, file, os.stat(path).st_ino)
        if place not in _maps:
            forget_dead_workers()
            handle = os.open(path, os.O_RDWR)
            try:
                _maps[place] = mmap.mmap(handle, HEADER + size)
            finally:
                os.close(handle)
    except (FileNotFoundError, PermissionError, ProcessLookupError) as exn:  # as the files of a process that ends
        raise LostParcelError(f"worker process {process} has ended") from exn
    memory = np.frombuffer(_maps[place], np.uint8, size, HEADER)
    weakref.finalize(memory, _give_back, _maps[place], os.getpid()).atexit = False
    return memory


def _give_back(block: mmap.mmap, owner: int) -> None:
    if os.getpid() == owner:  # a child of the loader's process has copies of all its objects
        block[0] = 0


class _Pickler(pickle.Pickler):
    """Pickles tensors as arrays, whose values stay out of the pickle."""

    def __init__(self, file: BinaryIO, buffer_callback: Callable[[pickle.PickleBuffer], object]) -> None:
        super().__init__(file, 5, buffer_callback=buffer_callback)

    def reducer_override(self, value: object) -> Any:
        torch = loaded("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return NotImplemented
        plain = type(value) is torch.Tensor and value.device.type == "cpu" and value.layout is torch.strided
        if not plain or value.requires_grad or value.is_conj() or value.is_neg():
            raise _ForTorchError
        order = sorted(range(value.ndim), key=value.stride, reverse=True)
        if not value.is_contiguous() and value.permute(order).is_contiguous():  # as channels_last
            back = [order.index(n) for n in range(value.ndim)]
            return _permuted, (value.permute(order), back)
        if value.dtype == torch.bfloat16:
            return _of_kind, (value.contiguous().view(torch.int16), value.dtype)
        return torch.from_numpy, (value.contiguous().numpy(),)


class _ForTorchError(Exception):
    """A tensor that only torch knows how to send."""


def _permuted(tensor: torch.Tensor, order: list[int]) -> torch.Tensor:
    return tensor.permute(order)


def _of_kind(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.view(dtype)


def _place(piece: memoryview, blocks: list[Any]) -> tuple[Any, int] | None:
    """In which block a piece lies already, and where; None if it must be copied into one."""
    if len(piece) < LARGE // 2:
        return None
    import numpy as np

    address = np.frombuffer(piece, np.uint8).ctypes.data
    for block in blocks:
        if block.address <= address and address + len(piece) <= block.address + block.size:
            return block, address - block.address
    return None


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
