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
from webdataset.storage.http.requests import Answer
from webdataset.storage.http.stream import Version, version_read

from .client import Client, ClientStore, Cure, Query, bucket_and_key, pages, query_text
from .google import google_token
from .uploads import Parts, PartsUpload

ENDPOINT = "https://storage.googleapis.com"
LIST_PAGE = 1000
CREATED, CANCELLED, INCOMPLETE = (200, 201), 499, 308
_RANGE = re.compile(r"bytes=0-(\d+)")
_LOGIN = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"


class GcsClient(Client):
    """Asks Google Cloud Storage for one object or prefix."""

    cures: ClassVar = {
        "401": Cure("the store does not accept who we are", _LOGIN),
        "403": Cure("access is denied", "check that the account may use this bucket and object"),
        "404": Cure("there is no such bucket or object", "check the names", MissingShardError),
        "412": Cure("the object has changed meanwhile", "try again"),
    }

    def __init__(self, url: str, *, endpoint: str | None = None, anonymous: bool = False, **connection: Any) -> None:
        super().__init__(url, **connection)
        self.bucket, self.key = bucket_and_key(url)
        emulator = settings.cloud("STORAGE_EMULATOR_HOST")
        if emulator and "://" not in emulator:
            emulator = f"http://{emulator}"
        self.endpoint = (endpoint or emulator or ENDPOINT).rstrip("/")
        # a test server must not see the user's token
        self._anonymous = anonymous or (endpoint is None and emulator is not None)

    def address(self, query: Query = (("alt", "media"),)) -> str:
        return f"{self._bucket()}/o/{quoted(self.key, '')}{query_text(query)}"

    def _bucket(self, kind: str = "") -> str:
        return f"{self.endpoint}{kind}/storage/v1/b/{quoted(self.bucket, '')}"

    def prepare(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:  # noqa: ARG002 - every store's
        # the store names the address of an upload, but not who gets the token
        token = self._token() if url.startswith(f"{self.endpoint}/") else None
        return headers | {"Authorization": f"Bearer {token}"} if token else headers

    def _token(self) -> str | None:
        return None if self._anonymous else google_token()

    def size(self) -> int:
        """The size of the object in bytes."""
        answer = self.ask("GET", lambda: self.address([("fields", "size")]))
        return int(self._json(answer).get("size", 0))

    def stated(self) -> Version:
        """What the store says of the object; its name for the version is the one that reading gives."""
        return version_read(self.part(0, 1, None)) if self.size() else Version.named(0, None)

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

    def error_of(self, answer: Answer) -> tuple[str, str]:
        try:
            error = json.loads(answer.body)["error"]
            return str(error["errors"][0].get("reason", "")) if error.get("errors") else "", str(
                error.get("message", "")
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return "", ""

    def failure(self, answer: Answer) -> StorageError:
        error = super().failure(answer)
        if answer.status in (401, 403) and self._token() is None:
            error.hint = f"no Google credentials were found; {_LOGIN}"
        return error

    def _json(self, answer: Answer) -> dict[str, Any]:
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StorageError(f"{self.endpoint} does not answer as Google Cloud Storage", url=self.url)
        return found


class GcsParts(Parts):
    """A resumable upload: one part after the other, to an address that the store gives out."""

    parallel = 1

    def __init__(self, client: GcsClient) -> None:
        self.client = client
        self._session = ""
        self._sent = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def whole(self, data: bytes) -> None:
        self._md5.update(data)
        self._sent = len(data)
        headers = {"Content-Type": "application/octet-stream"}
        answer = self.client.ask("POST", lambda: self._uploads("media"), headers=headers, body=data, ok=CREATED)
        self._check(answer)

    def begin(self) -> None:
        headers = {"Content-Type": "application/json", "X-Upload-Content-Type": "application/octet-stream"}
        body = json.dumps({"name": self.client.key}).encode()
        answer = self.client.ask("POST", lambda: self._uploads("resumable"), headers=headers, body=body, ok=CREATED)
        self._session = answer.headers.get("Location") or ""
        if not self._session:
            raise StorageError("the store gave the upload no address", url=self.client.url)

    def part(self, number: int, data: bytes, last: bool) -> str:  # noqa: ARG002 - all stores are told
        self._md5.update(data)
        start, end = self._sent, self._sent + len(data)
        while True:
            # the store says how much of a part it kept; the rest goes again
            rest = data[len(data) - (end - start) :]
            total = str(end) if last else "*"
            headers = {"Content-Range": f"bytes {start}-{end - 1}/{total}" if rest else f"bytes */{total}"}
            answer = self.client.ask("PUT", self._address, headers=headers, body=rest, ok=(*CREATED, INCOMPLETE))
            if answer.status != INCOMPLETE:
                break
            kept = _RANGE.match(answer.headers.get("Range") or "")
            reached = int(kept[1]) + 1 if kept else 0
            if not start <= reached <= end or (reached == start and rest):
                raise StorageError(f"the store kept {reached} of {start} bytes of the upload", url=self.client.url)
            start = reached
            if start == end and not last:
                break
        self._sent = end
        if last:
            self._check(answer)
        return ""

    def complete(self, names: list[str]) -> None:
        """The last part has done that."""

    def abort(self) -> None:
        self.client.ask("DELETE", self._address, ok=(200, 204, 404, 410, CANCELLED), tidying=True)

    def _uploads(self, kind: str) -> str:
        query = [("uploadType", kind), ("name", self.client.key)]
        return f"{self.client._bucket('/upload')}/o{query_text(query)}"

    def _address(self) -> str:
        return self._session

    def _check(self, answer: Answer) -> None:
        """What the store has must be what was sent."""
        found = self.client._json(answer)
        md5 = base64.b64encode(self._md5.digest()).decode()
        if found.get("md5Hash", md5) != md5 or int(found.get("size", self._sent)) != self._sent:
            self.client.ask("DELETE", lambda: self.client.address(()), ok=(200, 204, 404))
            raise StorageError(
                "the store received other bytes than were sent; the object was removed", url=self.client.url
            )


STORE = ClientStore(GcsClient)
