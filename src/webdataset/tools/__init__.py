"""What the commands do, as functions: map, run, concatenate, sort, shuffle, split, create, inspect, copy."""
