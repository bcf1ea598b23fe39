"""Make datasets: create, split, copy, index."""
