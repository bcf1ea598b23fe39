"""Amazon S3 and compatible stores (`AWS_ENDPOINT_URL`), over signed HTTP."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote_plus, urlsplit
from xml.sax.saxutils import escape

from webdataset.base.settings import settings
from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.requests import WholeResponse

from . import aws
from .client import BAD_RANGE, Client, ErrorHint, Query, bucket_and_key, md5_base64, object_key, pages, query_text
from .markup import parsed, text_of
from .sigv4 import Keys, signed
from .uploads import Parts, PartsUpload

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

LIST_PAGE = 1000
TRANSIENT_CODES = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"})
"""Errors that S3 also sends with status 400 or, while it completes an object, 200."""
_VARIABLES = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_KEYS = f"check {_VARIABLES}, or the profile in ~/.aws"


class S3Client(Client):
    """Requests to an S3 store for one object or prefix."""

    error_hints: ClassVar = {
        "NoSuchBucket": ErrorHint("there is no such bucket", "check its name, and AWS_ENDPOINT_URL", MissingShardError),
        "NoSuchKey": ErrorHint("there is no such object", "check the name and the range of shards", MissingShardError),
        "InvalidBucketName": ErrorHint("this is no name of a bucket", "write s3://bucket/key"),
        "InvalidAccessKeyId": ErrorHint("the store does not know this access key", _KEYS),
        "SignatureDoesNotMatch": ErrorHint("the secret key is wrong", _KEYS),
        "InvalidToken": ErrorHint("the session token is wrong", "check AWS_SESSION_TOKEN"),
        "ExpiredToken": ErrorHint("the session token has expired", "log in again and set AWS_SESSION_TOKEN"),
        "RequestTimeTooSkewed": ErrorHint("the clock of this machine is wrong", "set it by NTP"),
        "PermanentRedirect": ErrorHint("the bucket is in another region", "set AWS_REGION to it"),
        "AuthorizationHeaderMalformed": ErrorHint("the bucket is in another region", "set AWS_REGION to it"),
        "InvalidObjectState": ErrorHint("the object is archived", "restore it from Glacier first"),
        "403": ErrorHint("access is denied", "check the credentials, and that they may use this object"),
        "404": ErrorHint("there is no such object", "check the name and the range of shards", MissingShardError),
    }

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        anonymous: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(url, **options)
        self.bucket, self.key = bucket_and_key(url)
        self.endpoint = (endpoint or aws.aws_endpoint(profile) or "").rstrip("/")
        self.region = _regions().get((self.endpoint, self.bucket)) or region or aws.aws_region(profile)
        self._profile = profile
        self._anonymous = anonymous

    def address(self, query: Query = ()) -> str:
        return self._address(object_key(self.key, self.url), query)

    def _address(self, key: str, query: Query) -> str:
        bucket, path = quoted(self.bucket, ""), quoted(key) + query_text(query)
        if self.endpoint:
            return f"{self.endpoint}/{bucket}/{path}"
        host = f"s3.{quoted(self.region, '')}.amazonaws.com{'.cn' if self.region.startswith('cn-') else ''}"
        # a certificate for *.s3... is not one for a.b.s3...
        return f"https://{host}/{bucket}/{path}" if "." in self.bucket else f"https://{bucket}.{host}/{path}"

    def keys(self) -> Keys | None:
        return None if self._anonymous else aws.aws_keys(self._profile)

    def prepare(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:
        keys = self.keys()
        if keys is not None:
            if payer := settings.cloud("AWS_REQUEST_PAYER"):
                headers = headers | {"x-amz-request-payer": payer}
            return signed(method, url, headers, keys, region=self.region, body=body)
        if body:
            headers = headers | {"Content-MD5": md5_base64(body)}
        return headers

    def list(self) -> Iterator[tuple[str, int]]:
        return ((url, size) for url, size, _ in self.versions())

    def versions(self) -> Iterator[tuple[str, int, str]]:
        return pages("", self._page, self.url)

    def _page(self, token: str) -> tuple[Iterable[tuple[str, int, str]], str]:
        query = [("list-type", "2"), ("prefix", self.key), ("encoding-type", "url"), ("max-keys", str(LIST_PAGE))]
        if token:
            query.append(("continuation-token", token))
        response = self.ask("GET", lambda: self._address("", query))
        root = self._xml(response)
        decode = unquote_plus if text_of(root, "EncodingType") == "url" else str
        scheme = self.url.split(":", 1)[0]
        entries = [
            (
                f"{scheme}://{self.bucket}/{decode(text_of(item, 'Key'))}",
                int(text_of(item, "Size") or 0),
                _quoted(text_of(item, "ETag")),
            )
            for item in root.findall("Contents")
        ]
        return entries, text_of(root, "NextContinuationToken") if text_of(root, "IsTruncated") == "true" else ""

    def unfinished(self) -> Iterator[tuple[str, Callable[[], object]]]:
        return pages("", self._page_of_uploads, self.url)

    def _page_of_uploads(self, marker: str) -> tuple[Iterable[tuple[str, Callable[[], object]]], str]:
        query = [("uploads", ""), ("prefix", self.key), ("encoding-type", "url")]
        query += zip(("key-marker", "upload-id-marker"), marker.split("\0"), strict=True) if marker else ()
        root = self._xml(self.ask("GET", lambda: self._address("", query)))
        decode = unquote_plus if text_of(root, "EncodingType") == "url" else str
        entries: list[tuple[str, Callable[[], object]]] = []
        for item in root.findall("Upload"):
            key, id = decode(text_of(item, "Key")), [("uploadId", text_of(item, "UploadId"))]
            address = functools.partial(self._address, key, id)
            discard = functools.partial(self.ask, "DELETE", address, ok=(200, 204, 404))
            entries.append((f"{self.url.split(':', 1)[0]}://{self.bucket}/{key}", discard))
        following = (decode(text_of(root, "NextKeyMarker")), text_of(root, "NextUploadIdMarker"))
        return entries, "\0".join(following) if text_of(root, "IsTruncated") == "true" else ""

    def upload(self) -> PartsUpload:
        return PartsUpload(self.url, S3Parts(self))

    def error_of(self, response: WholeResponse) -> tuple[str, str]:
        try:
            root = parsed(response.body)
        except ValueError:
            return "", ""
        return text_of(root, "Code"), text_of(root, "Message")

    def transient_error(self, response: WholeResponse) -> str:
        code = self.error_of(response)[0] if b"<Error" in response.body[:512] else ""
        return f"{response.status} {code}" if code in TRANSIENT_CODES else ""

    def failure(self, response: WholeResponse) -> StorageError:
        error = super().failure(response)
        if response.status == 403 and self.keys() is None:
            error.hint = f"no AWS credentials were found; set {_VARIABLES}, or AWS_PROFILE"
        return error

    def moved(self, response: WholeResponse) -> bool:
        region = response.headers.get("x-amz-bucket-region")
        if not region:
            try:
                region = text_of(parsed(response.body), "Region")
            except ValueError:
                region = ""
        if response.status == BAD_RANGE or not region or region == self.region:
            return False
        self.region = _regions()[self.endpoint, self.bucket] = region
        return True

    def _xml(self, response: WholeResponse) -> Element:
        try:
            return parsed(response.body)
        except ValueError:
            host = urlsplit(response.url).hostname
            raise StorageError(
                f"{host} does not answer as an S3 store", url=self.url, hint="check AWS_ENDPOINT_URL"
            ) from None


class S3Parts(Parts):
    """A multipart upload."""

    is_revocable = True

    def __init__(self, client: S3Client) -> None:
        self.client = client
        self.upload_id = ""

    def whole(self, data: bytes) -> str:
        return _quoted(self.client.ask("PUT", body=data).headers.get("ETag"))

    def begin(self) -> None:
        response = self.client.ask("POST", lambda: self.client.address([("uploads", "")]))
        self.upload_id = text_of(self.client._xml(response), "UploadId")
        if not self.upload_id:
            raise StorageError("the store returned no id for the upload", url=self.client.url)

    def part(self, number: int, data: bytes, last: bool) -> str:  # noqa: ARG002 - for other stores
        query = [("partNumber", str(number)), ("uploadId", self.upload_id)]
        etag = self.client.ask("PUT", lambda: self.client.address(query), body=data).headers.get("ETag")
        if not etag:
            raise StorageError("the store returned no ETag for a part", url=self.client.url)
        return etag

    def complete(self, names: list[str]) -> str:
        entries = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(name)}</ETag></Part>"
            for number, name in enumerate(names, 1)
        )
        body = f"<CompleteMultipartUpload>{entries}</CompleteMultipartUpload>".encode()
        headers = {"Content-Type": "application/xml"}
        response = self.client.ask("POST", self._address, headers=headers, body=body, ok=(200, 404))
        code, message = self.client.error_of(response)  # a store may begin with 200 and fail later
        if code == "NoSuchUpload" and self._is_there(names):
            return _of_parts(names)  # an earlier try was successful, only its response was lost
        if response.status != 200 or code:
            line = f"the upload could not be completed ({code}: {message})"
            raise StorageError(line, url=self.client.url, status=response.status)
        return _quoted(text_of(self.client._xml(response), "ETag")) or _of_parts(names)  # Ceph 16 sends an empty one

    def abort(self) -> None:
        self.client.ask("DELETE", self._address, ok=(204, 200, 404), tidying=True)

    def _address(self) -> str:
        return self.client.address([("uploadId", self.upload_id)])

    def _is_there(self, names: list[str]) -> bool:
        """Whether the object is made of these parts: its ETag is computed from theirs."""
        try:
            etag = self.client.ask("HEAD").headers.get("ETag")
        except StorageError:
            return False
        return bool(etag) and _quoted(etag) == _of_parts(names)


def _of_parts(names: list[str]) -> str:
    """The ETag of an object in parts, computed from theirs; nothing if they are no MD5."""
    try:
        digests = b"".join(bytes.fromhex(name.strip('"')) for name in names)
    except ValueError:
        return ""
    return f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(names)}"'


def _quoted(etag: str | None) -> str:
    """An ETag as headers have it: some lists have it without quotes."""
    text = (etag or "").strip('"')
    return f'"{text}"' if text else ""


@functools.lru_cache(maxsize=1)
def _regions() -> dict[tuple[str, str], str]:
    """Regions of buckets that a store has told this process of."""
    return {}
