"""The cache folder: downloads, complete files, eviction."""
