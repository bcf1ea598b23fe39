"""Requests to an AIStore cluster: the proxy redirects to the target that has the data.

Objects move when targets come and go, so every request and every retry goes to the proxy again and follows its redirect
to the letter (it may be signed). The token goes to the proxy only. A target that died stays in the cluster's map for
half a minute and more; so the cluster is given `patience` seconds. That an object is missing is believed only of a
cluster that has all its targets.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from webdataset.base.redact import redacted
from webdataset.base.settings import settings
from webdataset.errors import StorageError
from webdataset.storage.http import addresses
from webdataset.storage.http.connect import REDIRECTS, Body, ConnectionOptions, Connector, OpenResponse
from webdataset.storage.http.faults import (
    RETRIED_STATUS,
    TRANSIENT_ERRORS,
    error_body,
    printable,
    status_error,
    wait_after,
)
from webdataset.storage.http.requests import WholeResponse
from webdataset.storage.options import without_credentials
from webdataset.storage.patience import RetriesExhaustedError, RetryState

from . import smap

MAP_SECONDS = 10.0
NOT_FOUND = 404
WAITED_STATUS = RETRIED_STATUS | {409}
WAITED_CODES = frozenset({(400, "ErrFailedTo")})
"""Errors of a node that needs another one, which is down."""
FINAL_CODES = frozenset({(500, "ErrBadCksum")})
REFUSED = (401, 403)
CHECK_TARGETS = "check its targets; if some left for good, start the program again"

_CODE = re.compile(rb"\"tcode\"\s*:\s*\"(\w+)\"")


@dataclass(frozen=True)
class Cluster:
    """One cluster and how it is reached; pickles."""

    endpoint: str
    token: str | None = field(default=None, repr=False)
    anonymous: bool = False
    options: ConnectionOptions = field(default_factory=ConnectionOptions)

    def retry_state(self, url: str) -> RetryState:
        """The tries of one request."""
        return self.options.retry_state(url, self.endpoint)

    def with_token(self, _method: str, _url: str, headers: dict[str, str]) -> dict[str, str]:
        """The headers of a request to the proxy."""
        token = None if self.anonymous else self.token or _token()
        return headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def missing_targets(self) -> list[str] | None:
        """The targets that the cluster had and lacks now; None while it does not answer.

        A cluster that does not show its map is taken to be complete.
        """
        seconds = min(MAP_SECONDS, self.options.read_timeout)
        connect = min(seconds, self.options.connect_timeout)
        options = replace(self.options, prepare=self.with_token, connect_timeout=connect, read_timeout=seconds)
        try:
            response = Connector(self.address("v1", "daemon", what="smap"), options).send("GET")
            data = response.raw.read() if response.status == 200 else b"null"
        except TRANSIENT_ERRORS:
            return None
        response.release()
        cluster = smap.CLUSTERS[self.endpoint]
        with contextlib.suppress(ValueError):
            if (found := smap.ClusterMap.parsed(json.loads(data))) is not None:
                return cluster.missing(found)
        return []

    def map_version(self) -> str | None:
        """The version of the map as it was seen last; it is fetched before the first request of the process."""
        if self.endpoint not in smap.CLUSTERS and self.missing_targets() is None:
            return None
        return smap.CLUSTERS[self.endpoint].version

    def check_whole(self, url: str) -> None:
        """Wait for targets that are missing; an error that names them when the patience is used up."""
        with contextlib.closing(self.retry_state(url)) as retries:
            while missing := self.missing_targets():
                _pause(retries, incomplete(missing, url))
            retries.renew()

    def address(self, *path: str, **query: str | None) -> str:
        """The web address of something in the cluster; names are taken as they are.

        >>> Cluster("http://host:51080/").address("v1", "objects", "b", "a b/ä?.tar", provider="ais")
        'http://host:51080/v1/objects/b/a%20b/%C3%A4%3F.tar?provider=ais'
        """
        words = "&".join(f"{name}={addresses.quoted(text, '')}" for name, text in query.items() if text is not None)
        place = "/".join(addresses.quoted(word) for word in path)
        return f"{self.endpoint.rstrip('/')}/{place}" + (f"?{words}" if words else "")

    def ask(
        self,
        method: str,
        address: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        upload: Mapping[str, str] | None = None,
        ok: tuple[int, ...] = (200,),
    ) -> WholeResponse:
        """One request and its whole response; another status than these is an error.

        `upload` are the headers of a body to be stored.
        """
        connector = AisConnector(self, address, url, headers=headers, upload=upload)
        with contextlib.closing(self.retry_state(url)) as retries:
            while True:
                response = connector.send(method, None, body)
                try:
                    if response.status not in ok:
                        raise failure(response, url)
                    return WholeResponse(response.status, response.raw.headers, response.raw.read(), url)
                except TRANSIENT_ERRORS as exn:
                    _pause_after(retries, exn, self)
                finally:
                    response.close()


def cluster_of(
    url: str, endpoint: str | None = None, token: str | None = None, *, anonymous: bool = False, **options: Any
) -> Cluster:
    """The cluster that the arguments or the environment name; `options` are those of ConnectionOptions."""
    found = endpoint or settings.ais_endpoint
    if not found:
        hint = "set AIS_ENDPOINT to the address of the cluster's proxy, such as http://host:51080"
        raise StorageError("no AIStore cluster is named", url=url, hint=hint)
    if "://" not in found:
        found = f"http://{found}"
    if options.get("patience") is None:
        options["patience"] = settings.ais_patience
    options["cafile"] = options.get("cafile") or settings.ais_client_ca
    return Cluster(found, token, anonymous, ConnectionOptions(**options))


class AisConnector(Connector):
    """Sends a request to the proxy, then to the target that it names; waits for a cluster that is in trouble."""

    def __init__(
        self,
        cluster: Cluster,
        address: str,
        shown: str,
        *,
        headers: Mapping[str, str] | None = None,
        upload: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(address, replace(cluster.options, headers=headers or {}, prepare=cluster.with_token))
        self._cluster = cluster
        self._shown = shown
        self._upload = upload
        self._retries = cluster.retry_state(shown)  # here, since another thread may be the one that sends
        self._target: Connector | None = None
        self._known = False  # the object was there
        self._doubt = ""  # why an object that was not found may be there

    def send(
        self,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        *,
        follow: bool = True,
        reuse: bool = True,
    ) -> OpenResponse:
        """The response of the target, or of a proxy that refuses; StorageError when the patience is used up."""
        while True:
            version = self._cluster.map_version()  # all targets must be known before one is lost
            try:
                response = self._send_to_both(method, headers, body, follow=follow, reuse=reuse)
            except TRANSIENT_ERRORS as exn:
                self._retries.check_open()
                _pause_after(self._retries, exn, self._cluster)
                continue
            if not self._is_trouble(response, version):
                self._known = self._known or response.status < 300
                self._retries.answered()
                self._retries.renew()
                return response
            error = self._failure(response)
            response.close()
            _pause(self._retries, error, response.retry_after)

    def abort(self) -> None:
        self._retries.stopped.set()
        super().abort()
        if self._target is not None:
            self._target.abort()

    def _send_to_both(
        self, method: str, headers: Mapping[str, str] | None, body: Body, *, follow: bool, reuse: bool
    ) -> OpenResponse:
        upload = self._upload
        # The proxy never gets a body that is to be stored: it does not wait for its end.
        response = super().send(method, headers, body if upload is None else b"", follow=False, reuse=reuse)
        headers = {**(headers or {}), **(upload or {})}
        location = response.header("Location")
        if follow and response.status in REDIRECTS and location is not None:
            response.drain()
            self._target = self._connector_to(location)
            return self._target.send(method, headers, body, follow=method == "GET", reuse=reuse and upload is None)
        if upload is None or response.status >= 300:
            return response
        response.drain()  # no proxy but a node that stores by itself
        return super().send(method, headers, body, follow=False, reuse=False)

    def _connector_to(self, location: str) -> Connector:
        source = addresses.url_parts(self.url, self._shown)
        addresses.redirect_target(source, location, self._shown)  # refused where it must not lead
        return self._plain(location if urlsplit(location).netloc else urljoin(self.url, location))

    def _plain(self, address: str) -> Connector:
        """A connector to another node, which does not get the token."""
        return Connector(address, replace(self.options, prepare=without_credentials))

    def _failure(self, response: OpenResponse) -> StorageError:
        error = failure(response, self._shown)
        if response.status == NOT_FOUND and self._doubt:
            return StorageError(f"{error.message}, but {self._doubt}", url=self._shown, hint=CHECK_TARGETS)
        return error

    def _is_trouble(self, response: OpenResponse, version: str | None) -> bool:
        """Whether another try may succeed; the version is that of the map before the request."""
        if response.status == NOT_FOUND:
            self._doubt = self._doubt_since(version)
            return self._known or bool(self._doubt)
        kind = (response.status, code_of(response) if response.status >= 400 else "")
        return kind in WAITED_CODES or (response.status in WAITED_STATUS and kind not in FINAL_CODES)

    def _doubt_since(self, version: str | None) -> str:
        """Why the object may be there nevertheless; empty if the cluster was complete."""
        if not self._is_ready():
            return "the cluster is not ready"
        missing = self._cluster.missing_targets()
        if missing is None:
            return "the cluster does not say which targets it has"
        if missing:
            return lacks(missing)
        # a target may have come back since
        return "" if self._cluster.map_version() == version else "the cluster has just changed"

    def _is_ready(self) -> bool:
        """Whether the cluster has started at all."""
        try:
            response = self._plain(self._cluster.address("v1", "health", readiness="true")).send("GET")
        except TRANSIENT_ERRORS:
            return False
        response.drain()
        return response.status not in WAITED_STATUS


def _pause(retries: RetryState, error: StorageError, retry_after: float = 0.0) -> None:
    """Wait, longer each time; raise the error when the patience is used up."""
    try:
        retries.pause(error.message, retry_after, hint=error.hint)
    except RetriesExhaustedError as exn:
        error.message = str(exn)
        raise error from None


def _pause_after(retries: RetryState, error: BaseException, cluster: Cluster) -> None:
    """Wait after a connection that failed, if another one may succeed."""
    try:
        wait_after(retries, error, cluster.options.read_timeout)
    except RetriesExhaustedError as exn:
        hint = exn.hint if cluster.endpoint in smap.CLUSTERS else "check AIS_ENDPOINT"
        raise StorageError(f"cannot reach the cluster: {exn}", url=retries.url, hint=hint) from None
    except StorageError as exn:
        if isinstance(error, ssl.SSLCertVerificationError):
            exn.hint = "set AIS_CLIENT_CA to a file with your authority's certificate"
        raise


def failure(response: OpenResponse, url: str) -> StorageError:
    """The error that a response stands for, in one line with a hint."""
    error = status_error(response, url)
    detail = response.header("Hdr-Error")  # HEAD has no body
    if detail:
        with contextlib.suppress(ValueError, AttributeError):
            error.message += f" ({redacted(printable(str(json.loads(detail).get('message'))))})"
    if response.status in REFUSED:
        error.hint = "check the token in AIS_AUTHN_TOKEN, when it ends, and what it allows"
    return error


def code_of(response: OpenResponse) -> str:
    """AIStore's code of an error."""
    found = _CODE.search((response.header("Hdr-Error") or "").encode() or error_body(response))
    return found[1].decode() if found else ""


def lacks(targets: Sequence[str]) -> str:
    return f"the cluster lacks targets that it had: {', '.join(targets)}"


def incomplete(targets: Sequence[str], url: str) -> StorageError:
    """The error of a list that lacks what these targets hold."""
    return StorageError(f"this list is not complete: {lacks(targets)}", url=url, hint=CHECK_TARGETS)


def _token() -> str | None:
    """The token of the environment, or of a file, read each time: tokens expire and are renewed."""
    if settings.ais_token or not settings.ais_token_file:
        return settings.ais_token
    try:
        with open(settings.ais_token_file, encoding="utf-8") as file:
            text = file.read().strip()
    except OSError as exn:
        raise StorageError(f"cannot read AIS_AUTHN_TOKEN_FILE: {exn.strerror}") from None
    if text.startswith("{"):  # as the ais command writes it
        with contextlib.suppress(ValueError, AttributeError):
            return str(json.loads(text)["token"])
    return text
