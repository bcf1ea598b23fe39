"""Exact epochs: a pipeline over indexed shards, run step by step by the plan of `epochs`."""
