"""The table of commands: adding one is adding a module to `commands` and a line here."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A line of the table; the command's module has its name."""

    group: str
    help: str
    folder: str = "commands"


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
    "jobs": Command("transform", "run commands on many shards, here or on a cluster", "commands.runs"),
    "ls": Command("inspect", "list the members or samples of shards"),
    "info": Command("inspect", "summarize a dataset: fields, types, shapes, sizes"),
    "show": Command("inspect", "show samples in the terminal or as an HTML page"),
    "view": Command("inspect", "look at a dataset in the browser"),
    "cat": Command("inspect", "print one field of one sample"),
    "extract": Command("export", "extract fields as TSV, CSV, JSON Lines or Parquet"),
    "dump": Command("export", "write fields to files"),
    "serve": Command("remote", "make batches here for a trainer on another machine", "commands.remote"),
    "mon": Command("remote", "show how fast producers make batches", "commands.remote"),
    "stat": Command("remote", "summarize batches: types, shapes, ranges of values", "commands.remote"),
    "keygen": Command("remote", "make keys for producers and trainers", "commands.remote"),
    "test": Command("check", "measure how fast a dataset loads and what limits it"),
    "plan": Command("check", "describe an exact epoch: steps, bytes, memory"),
    "simdist": Command("check", "simulate ranks: who gets what, and whether it is equal"),
    "lint": Command("check", "find problems: incomplete samples, bad images and more"),
    "cache": Command("manage", "list, verify or clear the cache"),
    "completion": Command("manage", "print a completion script for bash, zsh or fish"),
}

INTERNAL = {"task": Command("", "do items of a plan; engines call it", "commands.runs")}
"""Commands that programs call, not people."""

ALL = COMMANDS | INTERNAL

SHARDWISE = ("map", "xargs")
"""Commands that make one shard of one shard, so that --on can run them on an engine."""
