"""Indices: where each sample of a shard is; catalogues of shards; samples by number and by key."""
