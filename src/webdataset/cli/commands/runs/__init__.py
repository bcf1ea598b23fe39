"""Commands about runs over many shards."""
