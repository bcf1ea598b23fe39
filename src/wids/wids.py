"""The same names, where programs of the old package look for them."""

from __future__ import annotations

from .dataset import ShardListDataset
from .samplers import ChunkedSampler, DistributedChunkedSampler, ShardedSampler, ShardListSampler

__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "ShardListDataset",
    "ShardListSampler",
    "ShardedSampler",
]
