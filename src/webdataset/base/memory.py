"""Reused memory: large arrays in the memory of earlier ones to which nobody refers any more.

The pages of fresh memory are made one by one when they are first written to; for a batch of images that took longer
than filling it. A block of memory is a numpy array. Every view of it, and every tensor that is made of a view,
refers to it, so its reference count tells when it is free: what somebody still holds is never overwritten.

>>> import numpy
>>> first = large_array((1 << 20,), numpy.uint8)
>>> place = first.ctypes.data
>>> second = large_array((1 << 20,), numpy.uint8)
>>> second.ctypes.data == place
False
>>> del first
>>> large_array((1 << 20,), numpy.uint8).ctypes.data == place
True
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

    Array = np.ndarray[Any, Any]

LARGE = 1 << 20
"""Arrays of this many bytes lie in reused memory; for smaller ones malloc does as well."""
SLACK = 2
"""A block is used for arrays that fill at least this part of it, one half."""
PATIENCE = 32
"""A block that is free is kept for this many further arrays that do not fit it."""


class Block:
    """A piece of memory, and whether anybody uses it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = self.made(size)
        self.passed_over = 0
        self._unused = sys.getrefcount(self.memory)

    def made(self, size: int) -> Array:
        """The memory itself, as bytes."""
        import numpy as np

        return np.empty(size, np.uint8)

    @property
    def is_free(self) -> bool:
        """Whether nobody refers to it but this block."""
        return sys.getrefcount(self.memory) <= self._unused


class Memory:
    """The blocks of one thread."""

    def __init__(self, new_block: Callable[[int], Block] = Block) -> None:
        self.new_block = new_block
        self.blocks: list[Block] = []

    def block(self, size: int) -> Block:
        """A block of at least this size that nobody uses."""
        found = None
        for block in self.blocks:
            if not block.is_free:
                block.passed_over = 0
            elif found is None and size <= block.size <= max(SLACK * size, LARGE):
                found = block
            else:
                block.passed_over += 1
        if found is None:
            try:
                found = self.new_block(size)
            except OSError:  # too many open files: somebody holds a thousand batches
                return Block(size)
            self.blocks.append(found)
        found.passed_over = 0
        self.blocks = [block for block in self.blocks if block.passed_over <= PATIENCE]
        return found

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array with any content."""
        import numpy as np

        size = math.prod(shape) * np.dtype(dtype).itemsize
        array: Array = self.block(size).memory[:size].view(dtype).reshape(shape)
        return array


def large_array(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An array with any content, in reused memory if it is large."""
    import numpy as np

    dtype = np.dtype(dtype)
    if math.prod(shape) * dtype.itemsize < LARGE or dtype.hasobject or not _COUNTS:
        return np.empty(shape, dtype)
    return of_this_thread().array(shape, dtype)


def of_this_thread() -> Memory:
    """The memory that this thread reuses; it goes when the thread ends."""
    memory: Memory | None = getattr(_local, "memory", None)
    if memory is None:
        memory = _local.memory = Memory()
    return memory


def use(memory: Memory) -> None:
    """Let this thread's large arrays lie in other memory from now on."""
    _local.memory = memory


_COUNTS: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether reference counts tell who uses an object: not where threads run without the GIL."""
_local = threading.local()
