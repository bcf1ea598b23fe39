"""Files of Hugging Face repositories: `hf://datasets/owner/name[@revision]/path`."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote, urljoin

from webdataset.base.packages import imported
from webdataset.base.settings import settings
from webdataset.errors import MissingPackageError, MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.requests import WholeResponse

from .client import NOT_FOUND, Client, ErrorHint, Query, pages, query_text
from .uploads import FileUpload

ENDPOINT = "https://huggingface.co"
FORM = "hf://datasets/owner/name[@revision]/path"
KINDS = ("datasets", "spaces", "models")
# a revision has no slash, but for the hub's own references
_REPOSITORY = re.compile(r"([^/@]+/[^/@]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?/(.*)", re.DOTALL)
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
_LOGIN = "set HF_TOKEN to a token that may do this, from huggingface.co/settings/tokens"


class HubPath(NamedTuple):
    """The parts of an hf: url."""

    root: str
    kind: str
    repository: str
    revision: str
    path: str


class HubClient(Client):
    """Requests to the hub for one file or folder."""

    error_hints: ClassVar = {
        "RepoNotFound": ErrorHint(
            "there is no such repository, or it is private", f"check its name; {_LOGIN}", MissingShardError
        ),
        "RevisionNotFound": ErrorHint("there is no such revision", "check the name after the @", MissingShardError),
        "EntryNotFound": ErrorHint(
            "there is no such file", "check the name and the range of shards", MissingShardError
        ),
        "GatedRepo": ErrorHint("the repository is gated", f"accept its conditions on its page, then {_LOGIN}"),
        "401": ErrorHint("there is no such repository, or it is private", f"check its name; {_LOGIN}"),
        "403": ErrorHint("access is denied", _LOGIN),
        "404": ErrorHint("there is no such file", "check the repository and the name", MissingShardError),
    }

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        endpoint: str | None = None,
        anonymous: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(url, **options)
        self.place = hub_path(url)
        self.endpoint = (endpoint or settings.hf_endpoint or ENDPOINT).rstrip("/")
        self._token = token
        self._anonymous = anonymous

    def address(self, query: Query = ()) -> str:
        place = self.place
        if not place.path:
            raise StorageError("this url names no file of the repository", url=self.url, hint=f"write {FORM}")
        kind = "" if place.kind == "models" else f"{place.kind}/"
        revision = quote(place.revision, safe="%")
        return f"{self.endpoint}/{kind}{place.repository}/resolve/{revision}/{quoted(place.path)}{query_text(query)}"

    def prepare(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:  # noqa: ARG002 - every store's
        token = self.token() if url.startswith(f"{self.endpoint}/") else None
        return headers | {"Authorization": f"Bearer {token}"} if token else headers

    def token(self) -> str | None:
        return None if self._anonymous else self._token or hub_token()

    def list(self) -> Iterator[tuple[str, int]]:
        place = self.place
        folder = place.path.rpartition("/")[0]
        revision = quote(place.revision, safe="%")
        tree = f"{self.endpoint}/api/{place.kind}/{place.repository}/tree/{revision}/{quoted(folder)}"
        start = tree.rstrip("/") + query_text([("recursive", "true"), ("expand", "false")])
        for url, size in pages(start, self._page, self.url):
            if url.startswith(place.root + place.path):
                yield url, size

    def _page(self, address: str) -> tuple[Iterable[tuple[str, int]], str]:
        response = self.ask("GET", lambda: address)
        try:
            files = [item for item in json.loads(response.body) if item["type"] == "file"]
            entries = [(self.place.root + item["path"], int(item["size"])) for item in files]
        except (ValueError, KeyError, TypeError):
            raise StorageError(f"{self.endpoint} does not answer as the hub", url=self.url) from None
        following = _NEXT.search(response.headers.get("Link") or "")
        after = urljoin(address, following[1]) if following else ""
        if after and not after.startswith(f"{self.endpoint}/"):  # it would get the user's headers
            raise StorageError(f"{self.endpoint} continues its list elsewhere", url=self.url)
        return entries, after

    def size_of(self, response: WholeResponse) -> int:
        return int(response.headers.get("X-Linked-Size") or super().size_of(response))

    def upload(self) -> FileUpload:
        """One commit, made when the file is complete."""
        hub = _hub_package(self.url)
        return FileUpload(self.url, lambda file, _size: self._commit(hub, "Add", "upload_file", path_or_fileobj=file))

    def delete(self) -> None:
        """One commit."""
        with contextlib.suppress(MissingShardError):
            self._commit(_hub_package(self.url), "Remove", "delete_file")

    def _commit(self, hub: ModuleType, verb: str, method: str, **options: object) -> None:
        """Call a method of the hub's package; what it raises becomes one line."""
        place = self.place
        api = hub.HfApi(endpoint=self.endpoint, token=self.token() or False)
        try:
            getattr(api, method)(
                path_in_repo=place.path,
                repo_id=place.repository,
                repo_type=place.kind.removesuffix("s"),
                revision=place.revision,
                commit_message=f"{verb} {place.path}",
                **options,
            )
        except Exception as exn:
            status = getattr(getattr(exn, "response", None), "status_code", None)
            what = "take" if verb == "Add" else "remove"
            line = f"the hub did not {what} the file ({type(exn).__name__}{f', {status}' if status else ''})"
            kind = MissingShardError if status == NOT_FOUND else StorageError
            raise kind(line, url=self.url, hint=_LOGIN) from None

    def error_of(self, response: WholeResponse) -> tuple[str, str]:
        code = response.headers.get("X-Error-Code") or ""
        return code, response.headers.get("X-Error-Message") or ""


def hub_path(url: str) -> HubPath:
    """The parts of an hf: url.

    >>> hub_path("hf://datasets/owner/name@main/a/b.tar").path
    'a/b.tar'
    """
    scheme, _, rest = url.partition(":")
    rest = rest.lstrip("/")
    kind, _, after = rest.partition("/")
    kind, after = (kind, after) if kind in KINDS else ("models", rest)
    found = _REPOSITORY.fullmatch(after)
    if found is None:
        raise StorageError("this url names no file of a repository", url=url, hint=f"write {FORM}")
    repository, revision, path = found.groups()
    root = f"{scheme}://{rest[: len(rest) - len(path)]}"
    return HubPath(root, kind, repository, revision or "main", path)


def hub_token() -> str | None:
    """The token of the environment, else the one that the hub's own login has saved."""
    found = settings.hf_token or settings.cloud("HUGGING_FACE_HUB_TOKEN")
    if found:
        return found.strip()
    home = settings.cloud("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    try:
        with open(settings.cloud("HF_TOKEN_PATH") or os.path.join(home, "token"), encoding="utf-8") as stream:
            return stream.read().strip() or None
    except (OSError, UnicodeError):
        return None


def _hub_package(url: str) -> ModuleType:
    try:
        return imported("huggingface_hub")
    except ImportError:
        raise MissingPackageError(
            "writing to the hub needs the package huggingface_hub", url=url, hint="pip install 'webdataset[hf]'"
        ) from None
