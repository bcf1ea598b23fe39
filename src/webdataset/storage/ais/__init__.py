"""AIStore: objects, batches, the cluster map, checksums."""
