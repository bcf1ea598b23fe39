"""Members from other kinds of files: JSON Lines, Parquet, zip and tar archives, image folders with metadata."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from webdataset.base.packages import imported
from webdataset.base.settings import settings
from webdataset.codecs import encode
from webdataset.codecs.compression import Budget, check_ratio, zip_pieces
from webdataset.errors import (
    DecodingError,
    EncodingError,
    LimitError,
    MissingPackageError,
    MissingShardError,
    SampleError,
    ShardError,
    StorageError,
)
from webdataset.gopen import gopen
from webdataset.storage.urls import local_path, scheme_of
from webdataset.tariterators import base_plus_ext, tarfile_samples
from webdataset.tools.inspect.listing import RESERVED
from webdataset.tools.inspect.listing import members as archive_members

from .creating import MemberSource, file_source, key_of_member, lines_of, numbered_key, planned, table_rows
from .grouping import LAST_DOT, kept, member_names, row_key, split_at_last_dot

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Files that say more about the files of a folder: their column `file_name` names them."""
NAME_COLUMN = "file_name"
ROWS = 1000
DAMAGES = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError)
"""What zipfile raises for archives that are damaged."""

Row = Mapping[str, Any]


def from_json_lines(
    lines: Iterable[str],
    *,
    key: str = "{record:09d}",
    folder: str = "",
    origin: str = "",
    inside: str | None = None,
    key_end: str | None = None,
) -> Iterator[MemberSource]:
    """Read one JSON object per line: `__key__` is the key, `@jpg` names a file, other entries become fields.

    Files that are not `inside` this folder are refused.

    >>> [(item.name, item.content()) for item in from_json_lines(['{"__key__": "a", "cls": 7, "txt": "hello"}'])]
    [('a.cls', b'7'), ('a.txt', b'hello')]
    """
    rows = _json_rows(lines, origin)
    return from_rows(rows, key=key, folder=folder, origin=origin, inside=inside, key_end=key_end)


def from_parquet(
    path: str,
    *,
    key: str = "{record:09d}",
    folder: str = "",
    opened: ExitStack | None = None,
    inside: str | None = None,
    key_end: str | None = None,
) -> Iterator[MemberSource]:
    """Read the rows of a Parquet file, each a sample whose fields are the columns; images get their own extension."""
    rows = parquet_rows(path, opened)
    return from_rows(rows, key=key, folder=folder, origin=path, inside=inside, key_end=key_end)


def from_rows(
    rows: Iterable[Row], *, key: str, folder: str, origin: str, inside: str | None = None, key_end: str | None = None
) -> Iterator[MemberSource]:
    """Make a sample of each row."""
    key_of = numbered_key(key)
    for number, row in enumerate(rows):
        name = row_key(str(row.get("__key__") or key_of(number)), key_end)
        for field, value in row.items():
            if field.startswith("@") and isinstance(value, str):
                yield MemberSource(f"{name}.{field[1:]}", file_source(value, folder, origin, inside))
            elif not field.startswith("_") and value is not None:
                yield _member(name, field, value)


def from_zip(path: str, opened: ExitStack, *, key_end: str | None = None) -> list[MemberSource]:
    """Read the names in a zip archive, sorted so that the files of a sample are neighbours."""
    try:
        archive = opened.enter_context(zipfile.ZipFile(_local_file(path)))
    except StorageError:
        raise
    except DAMAGES as error:
        raise ShardError(f"this is no zip archive: {error}", url=path) from error
    names = sorted(kept(name for name in archive.namelist() if name[-1:] not in ("", "/")), key=key_of_member)
    reader = _ZipReader(archive, path)
    return planned((MemberSource(name, partial(reader.content, name)) for name in names), key_end, origin=path)


def zip_size(path: str) -> int:
    """The bytes of the files that `from_zip` reads."""
    with zipfile.ZipFile(_local_file(path)) as archive:
        return sum(info.file_size for info in archive.infolist())


def from_tar(url: str, opened: ExitStack, *, key_end: str | None = None) -> Iterator[MemberSource]:
    """Read the samples of an archive, after its names; a stream that can be read only once is copied to a file."""
    place = _readable_twice(url, opened)
    names = kept(
        member.name for member in archive_members(place) if member.is_regular and not RESERVED.match(member.name)
    )
    member_names(names, key_end, origin=url)
    return _from_tar(place, frozenset(names), key_end)


def _from_tar(url: str, names: Container[str], key_end: str | None) -> Iterator[MemberSource]:
    keys = split_at_last_dot if key_end == LAST_DOT else base_plus_ext
    for sample in tarfile_samples([{"url": url}], select_files=names.__contains__, keys=keys):
        key = row_key(sample["__key__"], key_end)
        for field, data in sample.items():
            if not field.startswith("__"):
                yield MemberSource(f"{key}.{field}", partial(bytes, data))


def _readable_twice(url: str, opened: ExitStack) -> str:
    path = local_path(url)
    if url != "-" and (os.path.isfile(path) if path is not None else scheme_of(url) != "pipe"):
        return url
    path = os.path.join(opened.enter_context(tempfile.TemporaryDirectory()), "stream.tar")
    with gopen(url) as stream, open(path, "wb") as copy:
        shutil.copyfileobj(stream, copy)
    return path


def metadata_of(folder: str) -> str | None:
    """The file of an image folder that says more about its files, as Hugging Face datasets have it; None without one.

    >>> metadata_of("no such folder")
    """
    return next((path for name in METADATA if os.path.isfile(path := os.path.join(folder, name))), None)


def from_image_folder(
    folder: str, metadata: str, *, key_end: str | None = None, outside: bool = False
) -> Iterator[MemberSource]:
    """Read the files that a folder's metadata name, each with the rest of its row as `json`.

    They are in the folder, unless they may be `outside`.
    """
    files: list[MemberSource] = []
    rows: list[Row] = []
    for row in _metadata_rows(metadata):
        values = dict(row)
        name = values.pop(NAME_COLUMN, None)
        if not name:
            raise SampleError(
                f"a row has no {NAME_COLUMN}", url=metadata, hint=f"the column {NAME_COLUMN} names the file"
            )
        if base_plus_ext(str(name))[0] is None:
            raise SampleError(f"{name!r} has no extension", url=metadata, hint="it says what kind of file it is")
        source = file_source(str(name), folder, metadata, None if outside else folder)
        files.append(MemberSource(_inner_name(str(name)), source))
        rows.append(values)
    return _with_rows(planned(files, key_end, origin=metadata), rows)


def _inner_name(name: str) -> str:
    """The name of a member for a file that may lie anywhere.

    >>> _inner_name("../d/a.jpg"), _inner_name("https://host/d/a.jpg")
    ('d/a.jpg', 'd/a.jpg')
    """
    path = urlsplit(name).path if scheme_of(name) else name
    return "/".join(part for part in path.split("/") if part not in ("", ".", ".."))


def _with_rows(files: Iterable[MemberSource], rows: Iterable[Row]) -> Iterator[MemberSource]:
    for file, values in zip(files, rows, strict=True):
        yield file
        if values:
            key, _ = base_plus_ext(file.name)
            yield _member(str(key), "json", values)


def shuffled(items: Iterable[MemberSource], seed: int) -> Iterator[MemberSource]:
    """The samples of a source in random order; the same for the same seed. Their contents are read when written."""
    samples = [list(group) for _, group in groupby(items, key=_key)]
    random.Random(seed).shuffle(samples)
    for members in samples:
        yield from members


def parquet_rows(path: str, opened: ExitStack | None = None) -> Iterator[Row]:
    """The rows of a Parquet file, as dicts."""
    try:
        parquet = imported("pyarrow.parquet")
    except ImportError as error:
        raise MissingPackageError("Parquet files need pyarrow", hint="pip install 'webdataset[parquet]'") from error
    file = _local_file(path)
    try:
        metadata = parquet.read_metadata(file)
        columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
        # what rows share, they share in memory, too
        shared = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        table = parquet.ParquetFile(file, metadata=metadata, read_dictionary=shared)
    except Exception as error:
        raise ShardError(f"this is no Parquet file: {error}", url=path) from error
    if opened is not None:
        opened.callback(table.close)
    try:
        for number in range(metadata.num_row_groups):
            check_ratio(metadata.row_group(number).total_byte_size, os.path.getsize(file))
        for batch in table.iter_batches(ROWS):
            for row in range(batch.num_rows):
                yield {
                    name: column[row].as_py() for name, column in zip(batch.schema.names, batch.columns, strict=True)
                }
    except DecodingError as error:
        raise LimitError(error.message, url=path, hint=error.hint) from error


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
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        lines = lines_of(file, path)
        yield from table_rows(lines, path, csv.DictReader) if path.endswith(".csv") else _json_rows(lines, path)


def _json_rows(lines: Iterable[str], origin: str) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
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


class _ZipReader:
    """Reads the files of a zip archive piece by piece; what they expand to is compared with the archive's size."""

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self._archive = archive
        self._path = path
        self._size = os.path.getsize(archive.filename or path)
        self._given = 0

    def content(self, name: str) -> bytes:
        """The bytes of a file."""
        try:
            return b"".join(self._pieces(self._archive.getinfo(name)))
        except LimitError:
            raise
        except DecodingError as error:
            raise LimitError(error.message, url=self._path, member=name, hint=error.hint) from error
        except (*DAMAGES, zlib.error, EOFError, RuntimeError) as error:
            raise ShardError(f"the file cannot be read: {error}", url=self._path, member=name) from error

    def _pieces(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        limit, budget = settings.max_member_bytes, Budget()
        for piece in zip_pieces(self._archive, info):
            self._given += len(piece)
            limit -= len(piece)
            if limit < 0:
                message, hint = f"the file has more than {settings.max_member_bytes} bytes", "WDS_MAX_MEMBER_BYTES"
                raise LimitError(message, url=self._path, member=info.filename, hint=f"raise {hint}")
            if info.compress_type != zipfile.ZIP_STORED:
                budget.spend(len(piece))
            check_ratio(self._given, self._size)
            yield piece


def _key(item: MemberSource) -> str:
    key, _ = base_plus_ext(item.name)
    return item.name if key is None else key
