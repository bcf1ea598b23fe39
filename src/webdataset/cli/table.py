"""The table of the commands."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """One line of the table."""

    group: str
    module: str
    help: str


COMMANDS = {
    "create": Command("make", "create", "shards from folders, recipes, tables and lines"),
    "split": Command("make", "split", "one stream of samples into shards of a size"),
    "concat": Command("make", "concat", "shards one after the other; choose, rename, number anew"),
    "cp": Command("make", "cp", "shards from anywhere to anywhere, resumable and verified"),
    "index": Command("make", "index", "indices of shards"),
    "map": Command("transform", "map", "Python code over samples"),
    "xargs": Command("transform", "xargs", "a shell command per sample"),
    "shuffle": Command("transform", "shuffle", "all samples in random order, larger than memory"),
    "sort": Command("transform", "sort", "samples by key or field, larger than memory"),
    "ls": Command("inspect", "ls", "members or samples of shards"),
    "info": Command("inspect", "info", "what is in a dataset: fields, types, shapes, sizes"),
    "show": Command("inspect", "show", "samples in the terminal or on a page"),
    "cat": Command("inspect", "cat", "one field of one sample"),
    "extract": Command("inspect", "extract", "fields as TSV, CSV, JSON lines or Parquet"),
    "dump": Command("inspect", "dump", "fields into files"),
    "test": Command("test", "test", "how fast a dataset is, and what bounds it"),
    "plan": Command("test", "plan", "what an exact epoch will be: steps, bytes, memory"),
    "lint": Command("test", "lint", "what will surprise: half samples, collisions, bad images"),
    "cache": Command("test", "cache", "what the cache holds"),
    "completion": Command("test", "completion", "completion for bash, zsh and fish"),
}
