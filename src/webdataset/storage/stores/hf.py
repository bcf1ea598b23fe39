"""Files of Hugging Face repositories: `hf://datasets/owner/name[@revision]/path`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote, urljoin

from webdataset.base.settings import settings
from webdataset.errors import MissingPackageError, MissingShardError, StorageError
from webdataset.storage.http.addresses import quoted
from webdataset.storage.http.requests import Answer

from .client import NOT_FOUND, Client, ClientStore, Cure, Query, pages, query_text
from .uploads import FileUpload

ENDPOINT = "https://huggingface.co"
FORM = "hf://datasets/owner/name[@revision]/path"
KINDS = ("datasets", "spaces", "models")
# a revision has no slash, but for the hub's own references
_REPOSITORY = re.compile(r"([^/@]+/[^/@]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?/(.*)", re.DOTALL)
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
_LOGIN = "set HF_TOKEN to a token that may do this, from huggingface.co/settings/tokens"


class Place(NamedTuple):
    """The parts of an hf: url."""

    root: str
    kind: str
    repository: str
    revision: str
    path: str


class HubClient(Client):
    """Asks the hub for one file or folder."""

    cures: ClassVar = {
        "RepoNotFound": Cure(
            "there is no such repository, or it is private", f"check its name; {_LOGIN}", MissingShardError
        ),
        "RevisionNotFound": Cure("there is no such revision", "check the name after the @", MissingShardError),
        "EntryNotFound": Cure("there is no such file", "check the name and the range of shards", MissingShardError),
        "GatedRepo": Cure("the repository is gated", f"accept its conditions on its page, then {_LOGIN}"),
        "401": Cure("there is no such repository, or it is private", f"check its name; {_LOGIN}"),
        "403": Cure("access is denied", _LOGIN),
        "404": Cure("there is no such file", "check the repository and the name", MissingShardError),
    }

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        endpoint: str | None = None,
        anonymous: bool = False,
        **connection: Any,
    ) -> None:
        super().__init__(url, **connection)
        self.place = place_of(url)
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
        answer = self.ask("GET", lambda: address)
        try:
            files = [item for item in json.loads(answer.body) if item["type"] == "file"]
            entries = [(self.place.root + item["path"], int(item["size"])) for item in files]
        except (ValueError, KeyError, TypeError):
            raise StorageError(f"{self.endpoint} does not answer as the hub", url=self.url) from None
        following = _NEXT.search(answer.headers.get("Link") or "")
        return entries, urljoin(address, following[1]) if following else ""

    def size_of(self, answer: Answer) -> int:
        return int(answer.headers.get("X-Linked-Size") or super().size_of(answer))

    def upload(self) -> FileUpload:
        """One commit, made when the file is complete."""
        return FileUpload(self.url, functools.partial(_commit, self, _hub_package(self.url)))

    def delete(self) -> None:
        """One commit."""
        place, hub = self.place, _hub_package(self.url)
        with _as_storage_error(self, "remove"):
            _api(self, hub).delete_file(
                path_in_repo=place.path,
                repo_id=place.repository,
                repo_type=place.kind.removesuffix("s"),
                revision=place.revision,
                commit_message=f"Remove {place.path}",
            )

    def error_of(self, answer: Answer) -> tuple[str, str]:
        code = answer.headers.get("X-Error-Code") or ""
        return code, answer.headers.get("X-Error-Message") or ""


def place_of(url: str) -> Place:
    """The parts of an hf: url.

    >>> place_of("hf://datasets/owner/name@main/a/b.tar").path
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
    return Place(root, kind, repository, revision or "main", path)


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


def _hub_package(url: str) -> Any:
    import importlib

    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise MissingPackageError(
            "writing to the hub needs the package huggingface_hub", url=url, hint="pip install 'webdataset[hf]'"
        ) from None


def _commit(client: HubClient, hub: Any, file: Any, size: int) -> None:  # noqa: ARG001 - the hub's package finds out itself
    place = client.place
    with _as_storage_error(client, "take"):
        _api(client, hub).upload_file(
            path_or_fileobj=file,
            path_in_repo=place.path,
            repo_id=place.repository,
            repo_type=place.kind.removesuffix("s"),
            revision=place.revision,
            commit_message=f"Add {place.path}",
        )


def _api(client: HubClient, hub: Any) -> Any:
    return hub.HfApi(endpoint=client.endpoint, token=client.token() or False)


@contextlib.contextmanager
def _as_storage_error(client: HubClient, verb: str) -> Iterator[None]:
    """What the hub's package raises, in one line."""
    try:
        yield
    except Exception as exn:
        status = getattr(getattr(exn, "response", None), "status_code", None)
        line = f"the hub did not {verb} the file ({type(exn).__name__}{f', {status}' if status else ''})"
        kind = MissingShardError if status == NOT_FOUND else StorageError
        raise kind(line, url=client.url, hint=_LOGIN) from None


STORE = ClientStore(HubClient)
