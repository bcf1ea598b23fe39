"""Loaders: worker processes and threads, buffers, and what frameworks look for in a loader."""
