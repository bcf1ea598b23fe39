"""Google Cloud Storage over its JSON interface; `STORAGE_EMULATOR_HOST` names a server of one's own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from webdataset.base.settings import settings
from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.requests import WholeResponse
from webdataset.storage.http.stream import ObjectVersion, version_of_part

from .client import Client, ErrorHint, Query, bucket_and_key, object_key, pages, query_text
from .google import google_token
from .uploads import Parts, PartsUpload

ENDPOINT = "https://storage.googleapis.com"
LIST_PAGE = 1000
CREATED, CANCELLED, INCOMPLETE = (200, 201), 499, 308
_RANGE = re.compile(r"bytes=0-(\d+)")
_LOGIN = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"


class GcsClient(Client):
    """Requests to Google Cloud Storage for one object or prefix."""

    error_hints: ClassVar = {
        "401": ErrorHint("the store does not accept the credentials", _LOGIN),
        "403": ErrorHint("access is denied", "check that the account may use this bucket and object"),
        "404": ErrorHint("there is no such bucket or object", "check the names", MissingShardError),
        "412": ErrorHint("the object has changed meanwhile", "try again"),
    }

    def __init__(self, url: str, *, endpoint: str | None = None, anonymous: bool = False, **options: Any) -> None:
        super().__init__(url, **options)
        self.bucket, self.key = bucket_and_key(url)
        emulator = settings.cloud("STORAGE_EMULATOR_HOST")
        if emulator and "://" not in emulator:
            emulator = f"http://{emulator}"
        self.endpoint = (endpoint or emulator or ENDPOINT).rstrip("/")
        # a test server must not see the user's token
        self._anonymous = anonymous or (endpoint is None and emulator is not None)

    def address(self, query: Query = (("alt", "media"),)) -> str:
        return f"{self._bucket()}/o/{quoted(object_key(self.key, self.url), '')}{query_text(query)}"

    def _bucket(self, kind: str = "") -> str:
        return f"{self.endpoint}{kind}/storage/v1/b/{quoted(self.bucket, '')}"

    def prepare(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:  # noqa: ARG002 - every store's
        # the store names the address of an upload, but not who gets the token
        token = self._token() if url.startswith(f"{self.endpoint}/") else None
        return headers | {"Authorization": f"Bearer {token}"} if token else headers

    def _token(self) -> str | None:
        return None if self._anonymous else google_token()

    def size(self) -> int:
        response = self.ask("GET", lambda: self.address([("fields", "size")]))
        return int(self._json(response).get("size", 0))

    def head(self) -> ObjectVersion:
        """The version of the object, as a read names it."""
        return version_of_part(self.part(0, 1, None)) if self.size() else ObjectVersion.from_head(0, None)

    def list(self) -> Iterator[tuple[str, int]]:
        return pages("", self._page, self.url)

    def _page(self, token: str) -> tuple[Iterable[tuple[str, int]], str]:
        fields = "items(name,size),nextPageToken"
        query = [("prefix", self.key), ("maxResults", str(LIST_PAGE)), ("fields", fields)]
        if token:
            query.append(("pageToken", token))
        found = self._json(self.ask("GET", lambda: f"{self._bucket()}/o{query_text(query)}"))
        scheme = self.url.split(":", 1)[0]
        entries = [
            (f"{scheme}://{self.bucket}/{item['name']}", int(item.get("size", 0))) for item in found.get("items", [])
        ]
        return entries, found.get("nextPageToken", "")

    def upload(self) -> PartsUpload:
        return PartsUpload(self.url, GcsParts(self))

    def delete(self) -> None:
        self.ask("DELETE", lambda: self.address(()), ok=(200, 204, 404))

    def error_of(self, response: WholeResponse) -> tuple[str, str]:
        try:
            error = json.loads(response.body)["error"]
            reason = error["errors"][0].get("reason", "") if error.get("errors") else ""
            return str(reason), str(error.get("message", ""))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return "", ""

    def failure(self, response: WholeResponse) -> StorageError:
        error = super().failure(response)
        if response.status in (401, 403) and self._token() is None:
            error.hint = f"no Google credentials were found; {_LOGIN}"
        return error

    def _json(self, response: WholeResponse) -> dict[str, Any]:
        try:
            found = json.loads(response.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StorageError(f"{self.endpoint} does not answer as Google Cloud Storage", url=self.url)
        return found


class GcsParts(Parts):
    """A resumable upload: one part after the other, to an address that the store assigns."""

    parallel = 1

    def __init__(self, client: GcsClient) -> None:
        self.client = client
        self._session = ""
        self._sent = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def whole(self, data: bytes) -> str:
        self._md5.update(data)
        self._sent = len(data)
        headers = {"Content-Type": "application/octet-stream"}
        response = self.client.ask("POST", lambda: self._uploads("media"), headers=headers, body=data, ok=CREATED)
        self._check(response)
        return ""

    def begin(self) -> None:
        headers = {"Content-Type": "application/json", "X-Upload-Content-Type": "application/octet-stream"}
        body = json.dumps({"name": self.client.key}).encode()
        response = self.client.ask("POST", lambda: self._uploads("resumable"), headers=headers, body=body, ok=CREATED)
        self._session = response.headers.get("Location") or ""
        if not self._session:
            raise StorageError("the store returned no address for the upload", url=self.client.url)

    def part(self, number: int, data: bytes, last: bool) -> str:  # noqa: ARG002 - for other stores
        self._md5.update(data)
        start, end = self._sent, self._sent + len(data)
        while True:
            # the store says how much of a part it kept; the rest is sent again
            rest = data[len(data) - (end - start) :]
            total = str(end) if last else "*"
            headers = {"Content-Range": f"bytes {start}-{end - 1}/{total}" if rest else f"bytes */{total}"}
            response = self.client.ask("PUT", self._address, headers=headers, body=rest, ok=(*CREATED, INCOMPLETE))
            if response.status != INCOMPLETE:
                break
            kept = _RANGE.match(response.headers.get("Range") or "")
            reached = int(kept[1]) + 1 if kept else 0
            if not start <= reached <= end or (reached == start and rest):
                raise StorageError(f"the store kept {reached} of {start} bytes of the upload", url=self.client.url)
            start = reached
            if start == end and not last:
                break
        self._sent = end
        if last:
            self._check(response)
        return ""

    def complete(self, names: list[str]) -> str:  # noqa: ARG002 - for other stores
        """The last part has completed the object."""
        return ""

    def abort(self) -> None:
        self.client.ask("DELETE", self._address, ok=(200, 204, 404, 410, CANCELLED), tidying=True)

    def _uploads(self, kind: str) -> str:
        query = [("uploadType", kind), ("name", self.client.key)]
        return f"{self.client._bucket('/upload')}/o{query_text(query)}"

    def _address(self) -> str:
        return self._session

    def _check(self, response: WholeResponse) -> None:
        """Compare the object with what was sent."""
        found = self.client._json(response)
        md5 = base64.b64encode(self._md5.digest()).decode()
        if found.get("md5Hash", md5) != md5 or int(found.get("size", self._sent)) != self._sent:
            self.client.ask("DELETE", lambda: self.client.address(()), ok=(200, 204, 404))
            raise StorageError(
                "the store received other bytes than were sent; the object was removed", url=self.client.url
            )
