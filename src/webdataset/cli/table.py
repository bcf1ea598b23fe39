"""The table of commands: adding one is adding a module to `commands` and a line here."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A line of the table; the command's module has its name."""

    group: str
    help: str


COMMANDS = {
    "create": Command("make", "make shards from folders, tables, archives or text"),
    "split": Command("make", "split a stream of samples into shards"),
    "concat": Command("make", "concatenate shards; select samples, rename fields, rekey"),
    "cp": Command("make", "copy shards anywhere, resumable and verified"),
    "index": Command("make", "make indices of shards"),
    "map": Command("transform", "run Python code on every sample"),
    "xargs": Command("transform", "run a shell command on every sample"),
    "shuffle": Command("transform", "shuffle all samples, even if larger than memory"),
    "sort": Command("transform", "sort samples by key or field, even if larger than memory"),
    "ls": Command("inspect", "list the members or samples of shards"),
    "info": Command("inspect", "summarize a dataset: fields, types, shapes, sizes"),
    "show": Command("inspect", "show samples in the terminal or as an HTML page"),
    "cat": Command("inspect", "print one field of one sample"),
    "extract": Command("export", "extract fields as TSV, CSV, JSON Lines or Parquet"),
    "dump": Command("export", "write fields to files"),
    "test": Command("check", "measure how fast a dataset loads and what limits it"),
    "plan": Command("check", "describe an exact epoch: steps, bytes, memory"),
    "lint": Command("check", "find problems: incomplete samples, bad images and more"),
    "cache": Command("manage", "list, verify or clear the cache"),
    "completion": Command("manage", "print a completion script for bash, zsh or fish"),
}
