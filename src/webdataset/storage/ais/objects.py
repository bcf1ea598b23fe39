"""Objects of an AIStore cluster, over its own HTTP interface.

    ais://bucket/train-000000.tar                           an object; its characters are taken as they are
    ais://bucket/train-000000.tar?archpath=0001.jpg         one member of a shard
    ais://bucket/train-000000.tar?etl_name=resize           an object as a transformation in the cluster returns it

The cluster is the one of `AIS_ENDPOINT`, the token that of `AIS_AUTHN_TOKEN` or `AIS_AUTHN_TOKEN_FILE`. With
`USE_AIS_FOR=gs:s3`, `gs:` and `s3:` urls are read through it, too. A body that breaks is resumed at the same byte,
through the proxy again; its checksum is compared at the end (that of an object above 8 MiB only if the package `xxhash`
is installed).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote

from webdataset.base.settings import settings
from webdataset.errors import StorageError
from webdataset.storage.http.connect import OpenResponse
from webdataset.storage.http.faults import TRANSIENT_ERRORS, describe, status_error
from webdataset.storage.http.headers import HeaderFields
from webdataset.storage.http.reader import reading_ahead
from webdataset.storage.http.requests import WholeResponse
from webdataset.storage.http.stream import HttpStream, ObjectVersion
from webdataset.storage.stores.client import StoredObject
from webdataset.storage.stores.uploads import FileBody, FileUpload, Upload
from webdataset.storage.streams import QuietStream
from webdataset.storage.urls import scheme_of

from . import xxhash
from .client import EXPLAINED, JSON, NOT_FOUND, REFUSED, AisConnector, Cluster, cluster_of, failure, pause_to_settle

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PROVIDERS = {"ais": "ais", "s3": "aws", "gs": "gcp", "gcs": "gcp", "az": "azure", "oci": "oci"}
CHUNK_BYTES = 1 << 20
IS_FOLDER = 1 << 8  # among the flags of an entry of a list

# What may follow an object's name; any other question mark is part of the name.
_OPTIONS = ("archpath", "archmime", "archregx", "archmode", "etl_name", "etl_args", "namespace", "provider")
_QUERY = re.compile(rf"\?((?:(?:{'|'.join(_OPTIONS)})=[^&]*(?:&|$))+)$")
_CHECKSUMS: dict[str, Callable[[], xxhash.Hash]] = {"xxhash2": xxhash.new, "md5": hashlib.md5, "sha512": hashlib.sha512}


def open_ais(url: str, mode: str = "rb", *, bufsize: int = 8192, **options: Any) -> BufferedIOBase:
    """Open an object; without a named cluster through the `ais` command, which has a configuration of its own."""
    if not options.get("endpoint") and not settings.ais_endpoint:
        if shutil.which("ais") is None and not settings.secure:
            cluster_of(url)  # says how to name one
        from webdataset.storage.shell.programs import open_ais as open_with_command

        return open_with_command(url, mode, bufsize=bufsize, **options)
    found = AisObject(url, **options)
    return found.stream() if mode == "rb" else found.upload()


@dataclass(frozen=True)
class ObjectName:
    """The parts of the url of an object.

    >>> object_name("ais://b/a.tar?archpath=x/1.jpg")
    ObjectName(bucket='b', key='a.tar', provider='ais', query={'archpath': 'x/1.jpg'})
    >>> object_name("s3://b/what?.tar")
    ObjectName(bucket='b', key='what?.tar', provider='aws', query={})
    """

    bucket: str
    key: str
    provider: str
    query: dict[str, str] = field(default_factory=dict)

    @property
    def is_generated(self) -> bool:
        """Whether the cluster generates these bytes on request: they have no checksum, and cannot be read in ranges."""
        return any(name.startswith(("arch", "etl")) for name in self.query)

    @property
    def is_here(self) -> bool:
        """Whether the bucket is the cluster's own, not another store's or another cluster's."""
        return self.uname.startswith("ais/@#")

    @property
    def uname(self) -> str:
        """The full name of the object, as the nodes of a cluster call it among themselves.

        >>> object_name("ais://@remote#space/b/x/a.tar").uname, object_name("ais://b/a.tar").uname
        ('ais/@remote#space/b/x/a.tar', 'ais/@#/b/a.tar')
        """
        cluster, _, space = self.query.get("namespace", "").removeprefix("@").partition("#")
        return f"{self.provider}/@{cluster}#{space}/{self.bucket}/{self.key}"

    def address(self, cluster: Cluster, api: str = "native") -> str:
        """The web address of the object."""
        if not self.key:
            raise StorageError("this url names a bucket, not an object", url=f"ais://{self.bucket}")
        if api == "s3":
            return cluster.address("s3", self.bucket, self.key, **self.query)
        return cluster.address("v1", "objects", self.bucket, self.key, **({"provider": self.provider} | self.query))

    def list_request(self, cluster: Cluster, *, cached: bool = False, **message: object) -> tuple[str, bytes]:
        """Address and body of the request for a page of the names that begin with this one."""
        query = {"provider": self.provider, "namespace": self.query.get("namespace")}
        value = {"prefix": self.key, "props": "name,size", "flags": "1" if cached else "0"} | message
        body = json.dumps({"action": "list", "value": value}).encode()
        return cluster.address("v1", "buckets", self.bucket, **query), body


def object_name(url: str) -> ObjectName:
    """The parts of a url; StorageError if it names no bucket."""
    scheme = scheme_of(url)
    if scheme not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise StorageError(f"AIStore has no objects of {scheme}: urls", url=url, hint=f"the schemes are {known}")
    text = url.split(":", 1)[1].removeprefix("//")
    query: dict[str, str] = {}
    if found := _QUERY.search(text):
        text = text[: found.start()]
        pairs = (pair.partition("=") for pair in found[1].split("&") if pair)
        query = {name: unquote(value) for name, _, value in pairs}
    bucket, _, key = text.partition("/")
    if bucket.startswith(("@", "#")):  # a bucket of another cluster, or in a namespace
        query["namespace"] = bucket
        bucket, _, key = key.partition("/")
    if not bucket:
        raise StorageError("this url names no bucket", url=url, hint="write ais://bucket/name")
    return ObjectName(bucket, key, query.pop("provider", PROVIDERS[scheme]), query)


class AisObject(StoredObject):
    """An object of a cluster, one member of a shard (`archpath`), or the result of a transformation (`etl_name`).

    With several `connections` a large object is read in parts side by side, and its checksum is not compared.
    `endpoint`, `token`, `anonymous` and the options of a connection are `options`.
    """

    def __init__(
        self,
        url: str,
        *,
        etl_name: str | None = None,
        etl_args: object = None,
        archpath: str | None = None,
        verify: bool = True,
        api: str | None = None,
        connections: int = 1,
        **options: Any,
    ) -> None:
        args = etl_args if etl_args is None or isinstance(etl_args, str) else json.dumps(etl_args)
        more = {"etl_name": etl_name, "etl_args": args, "archpath": archpath}
        self.url = url
        self.cluster = cluster_of(url, **options)
        self.name = object_name(url)
        self.name.query.update({key: value for key, value in more.items() if value is not None})
        self._verify = verify
        self._api = _api(api)
        self._connections = connections

    @property
    def has_ranges(self) -> bool:  # type: ignore[override]
        return not self.name.is_generated

    def stream(self) -> QuietStream:
        stream = AisStream(self.url, self.cluster, self.name, verify=self._verify, api=self._api)
        return reading_ahead(stream, 1 if self.name.is_generated else self._connections)

    def part(self, start: int, stop: int, version: ObjectVersion | None) -> AisStream:
        place: dict[str, Any] = {"start": start, "stop": stop, "version": version}
        return AisStream(self.url, self.cluster, self.name, verify=False, api=self._api, **place)

    def head(self) -> ObjectVersion:
        headers = self._ask("HEAD").headers
        return ObjectVersion.from_head(_size(headers, self.url), _mark(headers.get))

    def size(self) -> int:
        return _size(self._ask("HEAD").headers, self.url)

    def list(self, *, pagesize: int = 0, cached: bool = False, partial: bool = False) -> Iterator[tuple[str, int]]:
        """Url and size of every object whose url begins with this one; `cached`: only what is in the cluster.

        Each page is asked for until the cluster was settled; it is an error when the patience is used up before that.
        With `partial` a page is taken as it comes.
        """
        name, url = self.name, self.url
        start = url.split(":", 1)[0] + "://" + (f"{name.query['namespace']}/" if "namespace" in name.query else "")
        is_checked = not partial and (cached or name.is_here)
        place: dict[str, str] = {}
        while True:
            page = self._page(is_checked, cached=cached, pagesize=pagesize, **place)
            for entry in page.get("entries") or []:  # no entries are null, not an empty list
                if not int(entry.get("flags") or 0) & IS_FOLDER:
                    yield f"{start}{name.bucket}/{entry['name']}", int(entry.get("size") or 0)
            token = page.get("continuation_token") or ""
            if not token:
                return
            if token == place.get("continuation_token"):
                raise StorageError("the list of the cluster does not advance", url=url)
            place = {"continuation_token": token, "uuid": page.get("uuid") or ""}

    def upload(self) -> Upload:
        """A stream to write the object through; it is collected in a temporary file, and stored when that is closed."""
        self.name.address(self.cluster)  # a bucket is refused now, not when the stream is closed
        return FileUpload(self.url, lambda file, size: _store(self.cluster, self.name, self.url, file, size))

    def delete(self) -> None:
        self._ask("DELETE", ok=(200, 204, NOT_FOUND))

    def _ask(self, method: str, **options: Any) -> WholeResponse:
        return self.cluster.ask(method, self.name, self.name.address(self.cluster), self.url, **options)

    def _page(self, is_checked: bool, **message: Any) -> dict[str, Any]:
        """A page of the list; a checked one is of a settled cluster."""
        cluster, url = self.cluster, self.url
        with contextlib.closing(cluster.retry_state(url)) as retries:
            while True:
                asked = time.monotonic()
                address, body = self.name.list_request(cluster, **message)
                page = _parsed_page(cluster.ask("GET", self.name, address, url, headers=JSON, body=body), url)
                doubt = is_checked and cluster.doubt(self.name, asked, int(page.get("flags") or 0))
                if not doubt:
                    retries.renew()
                    return page
                pause_to_settle(retries, f"this list is not complete: {doubt}")
                message.pop("uuid", None)  # a walk that has begun may have passed what arrives now


class AisStream(HttpStream):
    """The bytes of an object."""

    def __init__(
        self, url: str, cluster: Cluster, name: ObjectName, *, verify: bool = True, api: str = "native", **part: Any
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._verify = verify
        self._api = api
        self._has_connector = False
        self._checksum = ""
        self._hasher: xxhash.Hash | None = None
        self._digest_so_far = hashlib.blake2b() if name.is_generated else None
        super().__init__(url, cluster.options, identity=self._mark, **part)

    def part(self, start: int, stop: int) -> AisStream:
        """Some bytes of the same object, over a connection of their own."""
        place: dict[str, Any] = {"start": start, "stop": stop, "version": self.version}
        return AisStream(self.url, self._cluster, self._name, verify=False, api=self._api, **place)

    def _open(self) -> None:
        """One request: its connector tries again what may pass, and nobody else."""
        if not self._has_connector:
            self._has_connector = True
            address = self._name.address(self._cluster, self._api)
            self._connector = AisConnector(self._cluster, self._name, address, self.url)
        self._retries.check_open()
        response = self._connector.send("GET", self._range_headers())
        self._retries.answered()
        self._accept(response)

    def _accept(self, response: OpenResponse) -> None:
        if response.status in EXPLAINED:
            error = failure(response, self.url)
            response.close()
            raise error
        super()._accept(response)
        if not self.position and self._stop is None and self._verify and not self._name.is_generated:
            kind = response.header("Ais-Checksum-Type") or ""
            self._checksum = response.header("Ais-Checksum-Value") or ""
            affordable = kind != "xxhash2" or xxhash.is_affordable(response.length)
            self._hasher = _CHECKSUMS[kind]() if kind in _CHECKSUMS and self._checksum and affordable else None

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        count = super().readinto1(view)
        for hasher in (self._hasher, self._digest_so_far):
            if hasher is not None:
                hasher.update(view[:count])
        if self._finished and not count and self._stop is None:
            self._compare()
        return count

    def _compare(self) -> None:
        """Compare the checksum at the end of the object."""
        hasher, self._hasher = self._hasher, None
        if hasher is not None and hasher.hexdigest() != self._checksum.lower():
            raise StorageError("the checksum of what came is not the cluster's", url=self.url)

    def _mark(self, response: OpenResponse) -> str | None:
        """The version of an object: its checksum, else its version number."""
        if self._digest_so_far is not None:
            return "generated"  # _check_range compares the bytes themselves
        found = _mark(response.header) or response.validator
        if response.status == 206 and (self.version is None or found != self.version.validator):
            # a bucket may be configured to send the checksum of the range instead of the object's
            address = self._name.address(self._cluster)
            found = _mark(self._cluster.ask("HEAD", self._name, address, self.url).headers.get)
        return found

    def _range_headers(self) -> dict[str, str]:
        return {} if self._digest_so_far is not None else super()._range_headers()

    def _check_range(self, response: OpenResponse) -> None:
        if self._digest_so_far is None:
            super()._check_range(response)
            return
        if response.status != 200:
            raise self._error(status_error(response, self.url).message)
        again, missing = hashlib.blake2b(), self.position
        try:
            while missing and (data := response.raw.read(min(missing, CHUNK_BYTES))):
                again.update(data)
                missing -= len(data)
        except TRANSIENT_ERRORS as exn:
            raise self._error(describe(exn, self.options.read_timeout)) from None
        if missing or again.digest() != self._digest_so_far.digest():
            raise self._error("the cluster returns other bytes when asked again")
        self.version = ObjectVersion.of(response, self._identity)


def _parsed_page(response: WholeResponse, url: str) -> dict[str, Any]:
    try:
        page = json.loads(response.body)
    except ValueError:
        raise StorageError("the cluster's answer is no JSON", url=url, hint="check AIS_ENDPOINT") from None
    return page if isinstance(page, dict) else {}


def _store(cluster: Cluster, name: ObjectName, url: str, file: BinaryIO, size: int) -> None:
    """Send an object in two steps: the proxy redirects, then the body goes to the target.

    The proxy never gets the body: it responds before the end of it, and a client that streams loses the beginning.
    The target makes the object visible when its length and its checksum are right; the last writer wins.
    """
    address = name.address(cluster)
    headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
    checksum = ""
    if xxhash.is_affordable(size):
        hasher = xxhash.new()
        for chunk in FileBody(file, size):
            hasher.update(chunk)
        checksum = hasher.hexdigest()
        headers |= {"Ais-Checksum-Type": "xxhash2", "Ais-Checksum-Value": checksum}
    response = cluster.ask("PUT", name, address, url, body=FileBody(file, size), upload=headers, ok=(200, 201, 204))
    told = response.headers.get("ais-checksum-value")
    if checksum and told and response.headers.get("ais-checksum-type") == "xxhash2" and told.lower() != checksum:
        raise StorageError(f"the cluster stored something else than these {size} bytes", url=url)
    # what is there may be another writer's, but something must be there; a token may allow to write, and not to look
    if cluster.ask("HEAD", name, address, url, ok=(200, NOT_FOUND, *REFUSED)).status == NOT_FOUND:
        raise StorageError(f"these {size} bytes were stored, but there is no object now", url=url)


def _api(name: str | None) -> str:
    found = name or settings.ais_api
    if found not in ("native", "s3"):
        raise ValueError(f'the api of AIStore is "native" or "s3", got {found!r}')
    return found


def _size(headers: HeaderFields, url: str) -> int:
    is_described = any(name.lower().startswith("ais-") for name, _ in headers.items())
    text = headers.get("content-length") or ("0" if is_described else "")  # an empty object has no length
    if not text.isdecimal():
        raise StorageError("the cluster does not say how long the object is", url=url)
    return int(text)


def _mark(header: Callable[[str], str | None]) -> str | None:
    value = header("ais-checksum-value")
    return f"{header('ais-checksum-type')}:{value}" if value else header("ais-version")
