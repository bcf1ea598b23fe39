"""Members from other kinds of files: JSON Lines, Parquet, zip and tar archives, image folders with metadata."""

from __future__ import annotations

import csv
import json
import os
import random
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any

from webdataset.base.settings import settings
from webdataset.codecs import encode
from webdataset.errors import (
    EncodingError,
    LimitError,
    MissingPackageError,
    MissingShardError,
    SampleError,
    ShardError,
    StorageError,
)
from webdataset.storage.urls import local_path
from webdataset.tariterators import base_plus_ext, tarfile_samples

from .creating import MemberSource, file_source, key_of_member, numbered_key

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Files that say more about the files of a folder: their column `file_name` names them."""
NAME_COLUMN = "file_name"
ROWS = 1000

Row = Mapping[str, Any]


def from_json_lines(
    lines: Iterable[str], *, key: str = "{record:09d}", folder: str = "", origin: str = ""
) -> Iterator[MemberSource]:
    """Read one JSON object per line: `__key__` is the key, `@jpg` names a file, other entries become fields.

    >>> [(item.name, item.content()) for item in from_json_lines(['{"__key__": "a", "cls": 7, "txt": "hello"}'])]
    [('a.cls', b'7'), ('a.txt', b'hello')]
    """
    return from_rows(_json_rows(lines, origin), key=key, folder=folder, origin=origin)


def from_parquet(
    path: str, *, key: str = "{record:09d}", folder: str = "", opened: ExitStack | None = None
) -> Iterator[MemberSource]:
    """Read the rows of a Parquet file, each a sample whose fields are the columns; images get their own extension."""
    return from_rows(parquet_rows(path, opened), key=key, folder=folder, origin=path)


def from_rows(rows: Iterable[Row], *, key: str, folder: str, origin: str) -> Iterator[MemberSource]:
    """Make a sample of each row."""
    key_of = numbered_key(key)
    for number, row in enumerate(rows):
        name = str(row.get("__key__") or key_of(number))
        for field, value in row.items():
            if field.startswith("@") and isinstance(value, str):
                yield MemberSource(f"{name}.{field[1:]}", file_source(value, folder, origin))
            elif not field.startswith("_") and value is not None:
                yield _member(name, field, value)


def from_zip(path: str, opened: ExitStack) -> Iterator[MemberSource]:
    """Read the files of a zip archive, sorted so that those that share a basename are neighbours."""
    try:
        archive = opened.enter_context(zipfile.ZipFile(_local_file(path)))
    except (zipfile.BadZipFile, OSError) as error:
        if isinstance(error, StorageError):
            raise
        raise ShardError(f"this is no zip archive: {error}", url=path) from error
    names = sorted((info.filename for info in archive.infolist() if not info.is_dir()), key=key_of_member)
    for name in names:
        if "." in os.path.basename(name) and not os.path.basename(name).startswith("."):
            yield MemberSource(name, partial(_from_archive, archive, name, path))


def zip_size(path: str) -> int:
    """The bytes of the files that `from_zip` reads."""
    with zipfile.ZipFile(_local_file(path)) as archive:
        return sum(info.file_size for info in archive.infolist())


def from_tar(url: str) -> Iterator[MemberSource]:
    """Read the samples of an existing archive."""
    for sample in tarfile_samples([{"url": url}]):
        for field, data in sample.items():
            if not field.startswith("__"):
                yield MemberSource(f"{sample['__key__']}.{field}", partial(bytes, data))


def metadata_of(folder: str) -> str | None:
    """The file of an image folder that says more about its files, as Hugging Face datasets have it; None without one.

    >>> metadata_of("no such folder")
    """
    return next((path for name in METADATA if os.path.isfile(path := os.path.join(folder, name))), None)


def from_image_folder(folder: str, metadata: str) -> Iterator[MemberSource]:
    """Read the files that a folder's metadata name, each with the rest of its row as `json`."""
    for row in _metadata_rows(metadata):
        values = dict(row)
        name = values.pop(NAME_COLUMN, None)
        if not name:
            raise SampleError(
                f"a row has no {NAME_COLUMN}", url=metadata, hint=f"the column {NAME_COLUMN} names the file"
            )
        key, extension = base_plus_ext(str(name))
        if key is None or extension is None:
            raise SampleError(f"{name!r} has no extension", url=metadata, hint="it says what kind of file it is")
        yield MemberSource(str(name), file_source(str(name), folder, metadata))
        if values:
            yield _member(key, "json", values)


def shuffled(items: Iterable[MemberSource], seed: int) -> Iterator[MemberSource]:
    """The samples of a source in random order; the same for the same seed. Their contents are read when written."""
    samples = [list(group) for _, group in groupby(items, key=_key)]
    random.Random(seed).shuffle(samples)
    for members in samples:
        yield from members


def parquet_rows(path: str, opened: ExitStack | None = None) -> Iterator[Row]:
    """The rows of a Parquet file, as dicts."""
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingPackageError("Parquet files need pyarrow", hint="pip install 'webdataset[parquet]'") from error
    file = _local_file(path)
    try:
        table = parquet.ParquetFile(file)
    except Exception as error:
        raise ShardError(f"this is no Parquet file: {error}", url=path) from error
    if opened is not None:
        opened.callback(table.close)
    for batch in table.iter_batches(ROWS):
        yield from batch.to_pylist()


def _local_file(url: str) -> str:
    """The path of a file that is read here and there, not from its beginning to its end."""
    path = local_path(url)
    if path is None:
        raise StorageError("such files are read from this machine only", url=url, hint="fetch it first: wl cp")
    if not os.path.isfile(path):
        raise MissingShardError("no such file", url=url)
    return path


def _metadata_rows(path: str) -> Iterator[Row]:
    if path.endswith(".parquet"):
        yield from parquet_rows(path)
        return
    with open(path, encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file) if path.endswith(".csv") else _json_rows(file, path)


def _json_rows(lines: Iterable[str], origin: str) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise SampleError(f"line {number} is not JSON: {error}", url=origin or None) from None
        if not isinstance(row, dict):
            raise SampleError(f"line {number} is not a JSON object but {type(row).__name__}", url=origin or None)
        yield row


def _member(key: str, field: str, value: object) -> MemberSource:
    """A field with its value; what its name does not say how to encode gets an extension that does."""
    if isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes):  # an image or sound of Hugging Face
        ending = str(value.get("path") or "").rpartition(".")[2].lower() or _ending_of(value["bytes"])
        name = ending if field in ("image", "audio") else f"{field}.{ending}"
        return MemberSource(f"{key}.{name}", partial(bytes, value["bytes"]))
    return MemberSource(f"{key}.{field}", partial(_encoded, field, value))


def _encoded(field: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    try:
        return encode(field, value)
    except EncodingError:
        return json.dumps(value, default=str).encode()


def _ending_of(data: bytes) -> str:
    from webdataset.codecs.imageheaders import image_header

    header = image_header(data)
    return "bin" if header is None else {"JPEG": "jpg"}.get(header.format, header.format.lower())


def _from_archive(archive: zipfile.ZipFile, name: str, path: str) -> bytes:
    limit = settings.max_member_bytes
    try:
        with archive.open(name) as file:
            data = file.read(limit + 1)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise ShardError(f"the file cannot be read: {error}", url=path, member=name) from error
    if len(data) > limit:
        raise LimitError(
            f"the file has more than {limit} bytes", url=path, member=name, hint="raise WDS_MAX_MEMBER_BYTES"
        )
    return data


def _key(item: MemberSource) -> str:
    key, _ = base_plus_ext(item.name)
    return item.name if key is None else key
