"""`widsindex create|update|info|sample`: lists of shards as files."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import posixpath
import sys
from collections.abc import Callable, Sequence
from typing import Any

from webdataset.base.redact import redacted
from webdataset.errors import WebDatasetError
from webdataset.gopen import gopen
from webdataset.indices.files import write_whole
from webdataset.indices.making import index
from webdataset.storage.cache.names import without_signature
from webdataset.storage.urls import is_local

from .dataset import ShardListDataset
from .specs import load_json, read_specs

PIECE = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    options = _parser().parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except (WebDatasetError, OSError, ValueError, LookupError) as error:
        sys.stderr.write(f"widsindex: {redacted(str(error))}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="widsindex", description="Lists of shards for wids.ShardListDataset.")
    commands = parser.add_subparsers(required=True, metavar="{create,update,info,sample}")
    create = commands.add_parser("create", help="make a list of shards, with the number of samples in each")
    create.add_argument("files", nargs="+", help="shards: files, urls, braces")
    create.add_argument("-o", "--output", default="shardindex.json", help="the file to write (shardindex.json)")
    create.add_argument("-n", "--name", default="", help="the dataset's name")
    create.add_argument("-i", "--info", help="a description, or @FILE")
    create.add_argument("-b", "--base", help="what the urls are relative to")
    create.add_argument("--concatenated", action="store_true", help="shards may be archives put together with `cat`")
    create.set_defaults(run=_create)
    update = commands.add_parser("update", help="change a list of shards")
    update.add_argument("filename", help="the file to change")
    update.add_argument("-n", "--name", help="the dataset's name")
    update.add_argument("-i", "--info", help="a description, or @FILE")
    update.add_argument("-D", "--nodir", action="store_true", help="take the folders off the urls")
    update.add_argument("-d", "--dir", help="put this folder before the urls")
    update.add_argument("-b", "--base", help="what the urls are relative to")
    update.add_argument("-B", "--rebase", action="store_true", help="take the base off the urls that begin with it")
    update.add_argument("-k", "--keep", help="note this under keep")
    update.add_argument("-K", "--nokeep", help="take keep away")
    update.set_defaults(run=_update)
    info = commands.add_parser("info", help="say what is in a list of shards")
    info.add_argument("filenames", nargs="*", help="lists of shards")
    info.add_argument("-t", "--table", action="store_true", help="a line for each")
    info.set_defaults(run=_info)
    sample = commands.add_parser("sample", help="show a sample")
    sample.add_argument("filename", help="a list of shards")
    sample.add_argument("index", type=int, help="the sample's number")
    sample.add_argument("-p", "--python", action="store_true", help="as Python prints it")
    sample.add_argument("-r", "--raw", action="store_true", help="undecoded")
    sample.add_argument("-c", "--cat", metavar="FIELD", help="this field's bytes and nothing else")
    sample.add_argument("-w", "--width", type=int, default=100, help="characters of a line (100)")
    sample.set_defaults(run=_sample)
    return parser


def _create(options: argparse.Namespace) -> int:
    base = options.base
    urls = [url for file in options.files for url in _expanded(_joined(base, file))]
    catalogue = index(urls, where="cache", concatenated=options.concatenated)
    listed: list[dict[str, Any]] = []
    for url, count, size in zip(urls, catalogue.counts.tolist(), catalogue.sizes.tolist(), strict=True):
        sys.stdout.write(f"{redacted(url)}\n")
        md5sum = {"md5sum": _md5(url)} if is_local(url) else {}
        named = without_signature(url).removeprefix(f"{base.rstrip('/')}/") if base else without_signature(url)
        listed.append({"url": named, **md5sum, "nsamples": count, "filesize": size})
    found: dict[str, Any] = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": listed}
    found |= {"name": options.name} if options.name else {}
    found |= {"info": _text(options.info)} if options.info else {}
    found |= {"base": base} if base else {}
    found |= {"concatenated": True} if options.concatenated else {}
    _save(found, options.output)
    return 0


def _update(options: argparse.Namespace) -> int:
    found = load_json(options.filename)
    for name in ("name", "base"):
        if getattr(options, name) is not None:
            found[name] = getattr(options, name)
    if options.info is not None:
        found["info"] = _text(options.info)
    for shard in found.get("shardlist", []):
        if options.rebase and found.get("base"):
            shard["url"] = shard["url"].removeprefix(found["base"].rstrip("/") + "/")
        if options.nodir or options.dir:
            shard["url"] = posixpath.basename(shard["url"])
        if options.dir:
            shard["url"] = posixpath.join(options.dir, shard["url"])
    if options.keep is not None:
        found["keep"] = options.keep
    if options.nokeep is not None:
        found.pop("keep", None)
    _save(found, options.filename)
    return 0


def _info(options: argparse.Namespace) -> int:
    for number, filename in enumerate(options.filenames):
        found, shards = load_json(filename), read_specs(filename).shards
        size, samples = sum(max(shard.size, 0) for shard in shards), sum(shard.samples for shard in shards)
        if options.table:
            sys.stdout.write(f"{filename}\t{found.get('name')}\t{len(shards)}\t{samples}\t{size}\n")
            continue
        lines = {
            "name": found.get("name"),
            "info": found.get("info"),
            "base": found.get("base"),
            "shards": len(shards),
            "total size": _short(size),
            "total samples": samples,
            "avg sample size": _short(size / max(samples, 1)),
            "avg shard size": _short(size / len(shards)),
            "first shard": shards[0].url,
            "last shard": shards[-1].url,
        }
        sys.stdout.write("\n" if number else "")
        sys.stdout.writelines(f"{name:>16}: {redacted(str(value))}\n" for name, value in lines.items())
    return 0


def _sample(options: argparse.Namespace) -> int:
    raw = options.raw or options.cat is not None
    with ShardListDataset(options.filename, transformations=None if raw else "PIL") as dataset:
        sample = dataset[options.index]
    if options.cat is not None:
        field = options.cat if options.cat.startswith(".") else f".{options.cat}"
        if field not in sample:
            raise LookupError(f"sample {options.index} has no {field}; it has {' '.join(sample)}")
        sys.stdout.buffer.write(sample[field].getvalue())
        return 0
    plain = {name: value.getvalue() if isinstance(value, io.BytesIO) else value for name, value in sample.items()}
    if options.python:
        sys.stdout.write(f"{plain!r}\n")
    else:
        for name, value in plain.items():
            sys.stdout.write(f"{name:<20} {value!r}"[: options.width] + "\n")
    return 0


def _expanded(url: str) -> list[str]:
    from webdataset.shardlists import expand_urls

    return expand_urls(url)


def _joined(base: str | None, url: str) -> str:
    return url if not base or "://" in url or os.path.isabs(url) else f"{base.rstrip('/')}/{url}"


def _text(given: str) -> str:
    if not given.startswith("@"):
        return given
    with gopen(given[1:]) as stream:
        text: bytes = stream.read()
    return text.decode()


def _md5(url: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with gopen(url) as stream:
        while piece := stream.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _save(found: dict[str, Any], path: str) -> None:
    write_whole(path, json.dumps(found, indent=2).encode("utf-8", "surrogateescape") + b"\n")


def _short(number: float) -> str:
    units = ["", "k", "M", "G", "T"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{number:.1f}{units[0]}"
