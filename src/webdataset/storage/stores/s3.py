"""Amazon S3, and the stores that speak its language, over signed HTTP.

`AWS_ENDPOINT_URL` names another store than Amazon's.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar
from urllib.parse import unquote_plus, urlsplit
from xml.sax.saxutils import escape

from webdataset.base.settings import settings
from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.requests import Answer

from . import aws
from .client import BAD_RANGE, Client, ClientStore, Cure, Query, bucket_and_key, pages, query_text
from .markup import parsed, text_of
from .sigv4 import Keys, signed
from .uploads import Parts, PartsUpload

LIST_PAGE = 1000
PASSING = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"})
"""Troubles that S3 also tells of with 400, or, when it completes an object, with 200."""
_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile in ~/.aws"


class S3Client(Client):
    """Asks an S3 store for one object or prefix."""

    cures: ClassVar = {
        "NoSuchBucket": Cure("there is no such bucket", "check its name, and AWS_ENDPOINT_URL", MissingShardError),
        "NoSuchKey": Cure("there is no such object", "check the name and the range of shards", MissingShardError),
        "InvalidBucketName": Cure("this is no name of a bucket", "write s3://bucket/key"),
        "InvalidAccessKeyId": Cure("the store does not know this access key", _KEYS),
        "SignatureDoesNotMatch": Cure("the secret key is wrong", _KEYS),
        "InvalidToken": Cure("the session token is wrong", "check AWS_SESSION_TOKEN"),
        "ExpiredToken": Cure("the session token has expired", "log in anew and set AWS_SESSION_TOKEN"),
        "RequestTimeTooSkewed": Cure("the clock of this machine is wrong", "set it by NTP"),
        "PermanentRedirect": Cure("the bucket is in another region", "set AWS_REGION to it"),
        "AuthorizationHeaderMalformed": Cure("the bucket is in another region", "set AWS_REGION to it"),
        "InvalidObjectState": Cure("the object is archived", "restore it from Glacier first"),
        "403": Cure("access is denied", "check the credentials, and that they may use this object"),
        "404": Cure("there is no such object", "check the name and the range of shards", MissingShardError),
    }

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        anonymous: bool = False,
        **connection: Any,
    ) -> None:
        super().__init__(url, **connection)
        self.bucket, self.key = bucket_and_key(url)
        self.endpoint = (endpoint or aws.aws_endpoint(profile) or "").rstrip("/")
        self.region = _regions().get((self.endpoint, self.bucket)) or region or aws.aws_region(profile)
        self._profile = profile
        self._anonymous = anonymous

    def address(self, query: Query = ()) -> str:
        return self._address(self.key, query)

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
            headers = headers | {
                "Content-MD5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            }
        return headers

    def list(self) -> Iterator[tuple[str, int]]:
        return pages("", self._page, self.url)

    def _page(self, token: str) -> tuple[Iterable[tuple[str, int]], str]:
        query = [("list-type", "2"), ("prefix", self.key), ("encoding-type", "url"), ("max-keys", str(LIST_PAGE))]
        if token:
            query.append(("continuation-token", token))
        answer = self.ask("GET", lambda: self._address("", query))
        root = self._xml(answer)
        decode = unquote_plus if text_of(root, "EncodingType") == "url" else str
        scheme = self.url.split(":", 1)[0]
        entries = [
            (f"{scheme}://{self.bucket}/{decode(text_of(item, 'Key'))}", int(text_of(item, "Size") or 0))
            for item in root.findall("Contents")
        ]
        return entries, text_of(root, "NextContinuationToken") if text_of(root, "IsTruncated") == "true" else ""

    def upload(self) -> PartsUpload:
        return PartsUpload(self.url, S3Parts(self))

    def error_of(self, answer: Answer) -> tuple[str, str]:
        try:
            root = parsed(answer.body)
        except ValueError:
            return "", ""
        return text_of(root, "Code"), text_of(root, "Message")

    def passing(self, answer: Answer) -> str:
        code = self.error_of(answer)[0] if b"<Error" in answer.body[:512] else ""
        return f"{answer.status} {code}" if code in PASSING else ""

    def failure(self, answer: Answer) -> StorageError:
        error = super().failure(answer)
        if answer.status == 403 and self.keys() is None:
            error.hint = (
                "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )
        return error

    def moved(self, answer: Answer) -> bool:
        region = answer.headers.get("x-amz-bucket-region")
        if not region:
            try:
                region = text_of(parsed(answer.body), "Region")
            except ValueError:
                region = ""
        if answer.status == BAD_RANGE or not region or region == self.region:
            return False
        self.region = _regions()[self.endpoint, self.bucket] = region
        return True

    def _xml(self, answer: Answer) -> Any:
        try:
            return parsed(answer.body)
        except ValueError:
            host = urlsplit(answer.url).hostname
            raise StorageError(
                f"{host} does not answer as an S3 store", url=self.url, hint="check AWS_ENDPOINT_URL"
            ) from None


class S3Parts(Parts):
    """A multipart upload."""

    def __init__(self, client: S3Client) -> None:
        self.client = client
        self.upload_id = ""

    def whole(self, data: bytes) -> None:
        self.client.ask("PUT", body=data)

    def begin(self) -> None:
        answer = self.client.ask("POST", lambda: self.client.address([("uploads", "")]))
        self.upload_id = text_of(self.client._xml(answer), "UploadId")
        if not self.upload_id:
            raise StorageError("the store gave no upload a name", url=self.client.url)

    def part(self, number: int, data: bytes, last: bool) -> str:  # noqa: ARG002 - all stores are told
        query = [("partNumber", str(number)), ("uploadId", self.upload_id)]
        etag = self.client.ask("PUT", lambda: self.client.address(query), body=data).headers.get("ETag")
        if not etag:
            raise StorageError("the store gave a part no ETag", url=self.client.url)
        return etag

    def complete(self, names: list[str]) -> None:
        entries = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(name)}</ETag></Part>"
            for number, name in enumerate(names, 1)
        )
        body = f"<CompleteMultipartUpload>{entries}</CompleteMultipartUpload>".encode()
        headers = {"Content-Type": "application/xml"}
        answer = self.client.ask("POST", self._address, headers=headers, body=body, ok=(200, 404))
        code, message = self.client.error_of(answer)  # a store may begin with 200 and fail later
        if code == "NoSuchUpload" and self._is_there(names):
            return  # an earlier try was successful, only its answer was lost
        if answer.status != 200 or code:
            raise StorageError(f"the upload could not be completed ({code}: {message})", url=self.client.url)

    def abort(self) -> None:
        self.client.ask("DELETE", self._address, ok=(204, 200, 404), tidying=True)

    def _address(self) -> str:
        return self.client.address([("uploadId", self.upload_id)])

    def _is_there(self, names: list[str]) -> bool:
        """The ETag of an object in parts is made of theirs."""
        try:
            digests = b"".join(bytes.fromhex(name.strip('"')) for name in names)
            etag = self.client.ask("HEAD").headers.get("ETag") or ""
        except (ValueError, StorageError):
            return False
        return etag.strip('"') == f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(names)}"


@functools.lru_cache(maxsize=1)
def _regions() -> dict[tuple[str, str], str]:
    """Regions of buckets that are not where they were looked for first, remembered by this process."""
    return {}


STORE = ClientStore(S3Client)
