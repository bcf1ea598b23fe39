"""Azure Blob Storage: `az://container/blob` and `abfs://container@account.dfs.core.windows.net/path`."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar
from urllib.parse import unquote
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.requests import WholeResponse
from webdataset.storage.options import place_of

from .azure_account import Account, account_for, shared_key
from .client import Client, ErrorHint, Query, md5_base64, object_key, pages, query_text
from .markup import parsed, text_of
from .uploads import Parts, PartsUpload

VERSION = "2021-12-02"
LIST_PAGE = 5000
CREATED = (201,)
_LOGIN = "check AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY"


class AzureClient(Client):
    """Requests to Azure for one blob or prefix."""

    error_hints: ClassVar = {
        "ContainerNotFound": ErrorHint(
            "there is no such container", "check its name and the account", MissingShardError
        ),
        "BlobNotFound": ErrorHint("there is no such blob", "check the name and the range of shards", MissingShardError),
        "ResourceNotFound": ErrorHint("there is no such container or blob", "check the names", MissingShardError),
        "AuthenticationFailed": ErrorHint("the store does not accept the key or its date", f"{_LOGIN}, and the clock"),
        "InvalidAuthenticationInfo": ErrorHint("the store does not accept the credentials", _LOGIN),
        "AuthorizationFailure": ErrorHint("access is denied", "check the account's firewall, and the key or SAS token"),
        "PublicAccessNotPermitted": ErrorHint("the account is not public", _LOGIN),
        "NoAuthenticationInformation": ErrorHint("the container is not public", _LOGIN),
        "InvalidQueryParameterValue": ErrorHint("the SAS token is malformed", "check AZURE_STORAGE_SAS_TOKEN"),
        "401": ErrorHint("the store does not accept the credentials", _LOGIN),
        "403": ErrorHint("access is denied", "check the key or SAS token: its end, and what it permits"),
        "404": ErrorHint("there is no such container or blob", "check the names", MissingShardError),
        "409": ErrorHint("the store refuses", _LOGIN),
    }

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        anonymous: bool = False,
        named_by: tuple[str, str, int] | None = None,
        **options: Any,
    ) -> None:
        self.root, container, self.key = split(url)
        self.container, _, host = container.partition("@")
        self.account: Account = account_for(host, endpoint, anonymous=anonymous, url=url)
        if named_by is not None and self.account.is_elsewhere and place_of(self.account.endpoint) != named_by:
            options |= {"headers": {}, "foreign": True}
        super().__init__(url, **options)

    def address(self, query: Query = ()) -> str:
        return self._address(f"{quoted(self.container, '')}/{quoted(object_key(self.key, self.url))}", query)

    def _address(self, path: str, query: Query) -> str:
        text = query_text(query)
        if self.account.sas:
            text += ("&" if text else "?") + self.account.sas
        return f"{self.account.endpoint}/{path}{text}"

    def prepare(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:
        headers = headers | {"x-ms-version": VERSION}
        if body:
            headers["Content-MD5"] = md5_base64(body)
        if self.account.key:
            return shared_key(method, url, headers, self.account, len(body))
        token = self.account.token()
        return headers | {"Authorization": f"Bearer {token}"} if token else headers

    def list(self) -> Iterator[tuple[str, int]]:
        return pages("", self._page, self.url)

    def _page(self, marker: str) -> tuple[Iterable[tuple[str, int]], str]:
        query = [("restype", "container"), ("comp", "list"), ("prefix", self.key), ("maxresults", str(LIST_PAGE))]
        if marker:
            query.append(("marker", marker))
        response = self.ask("GET", lambda: self._address(quoted(self.container, ""), query))
        try:
            root = parsed(response.body)
        except ValueError:
            raise StorageError("the server does not answer as Azure Blob Storage", url=self.url) from None
        entries = [
            (self.root + _name(blob), int(text_of(blob, "Properties/Content-Length") or 0))
            for blob in root.findall("Blobs/Blob")
            if text_of(blob, "Properties/ResourceType") != "directory"
        ]
        return entries, text_of(root, "NextMarker")

    def upload(self) -> PartsUpload:
        return PartsUpload(self.url, AzureParts(self))

    def error_of(self, response: WholeResponse) -> tuple[str, str]:
        code = response.headers.get("x-ms-error-code") or ""
        try:
            root = parsed(response.body.removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            return code, ""
        # after the first line come the time and id of the request
        return code or text_of(root, "Code"), text_of(root, "Message").partition("\n")[0]

    def failure(self, response: WholeResponse) -> StorageError:
        error = super().failure(response)
        if response.status in (401, 403, 409) and self.account.is_anonymous:
            error.hint = "no Azure credentials were found; set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN"
        return error


class AzureParts(Parts):
    """Blocks, which Azure forgets after a week unless a list of blocks makes them a blob."""

    def __init__(self, client: AzureClient) -> None:
        import secrets

        self.client = client
        self._prefix = secrets.token_hex(4)  # so that another writer's blocks are not mistaken for ours

    def whole(self, data: bytes) -> str:
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        self.client.ask("PUT", headers=headers, body=data, ok=CREATED)
        return ""

    def begin(self) -> None:
        """There is nothing to announce."""

    def part(self, number: int, data: bytes, last: bool) -> str:  # noqa: ARG002 - for other stores
        name = base64.b64encode(f"{self._prefix}-{number:06d}".encode()).decode()
        query = [("comp", "block"), ("blockid", name)]
        self.client.ask("PUT", lambda: self.client.address(query), body=data, ok=CREATED)
        return name

    def complete(self, names: list[str]) -> str:
        blocks = "".join(f"<Latest>{escape(name)}</Latest>" for name in names)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()
        headers = {"Content-Type": "application/xml", "x-ms-blob-content-type": "application/octet-stream"}
        self.client.ask(
            "PUT", lambda: self.client.address([("comp", "blocklist")]), headers=headers, body=body, ok=CREATED
        )
        return ""

    def abort(self) -> None:
        """Blocks that no list names are invisible; there is no request that removes them sooner."""


def split(url: str) -> tuple[str, str, str]:
    """The url before the name of a blob, the container (with its account), and the name.

    >>> split("abfs://data@me.dfs.core.windows.net/a/b.tar")
    ('abfs://data@me.dfs.core.windows.net/', 'data@me.dfs.core.windows.net', 'a/b.tar')
    """
    scheme, _, rest = url.partition("://")
    container, _, key = rest.partition("/")
    if not container.partition("@")[0]:
        raise StorageError("this url names no container", url=url, hint="write az://container/blob")
    return f"{scheme}://{container}/", container, key


def _name(blob: Element) -> str:
    found = blob.find("Name")
    if found is None:
        return ""
    return unquote(found.text or "") if found.get("Encoded") == "true" else found.text or ""
