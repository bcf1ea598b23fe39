"""Tar shards as a map-style dataset: `dataset[i]`, and samplers that keep its reads together.

The names of the package `wids`, on the indices of `webdataset`: shards are read by ranges, or kept whole in a folder.
"""

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
