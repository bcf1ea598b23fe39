"""Requests to an AIStore cluster: the proxy redirects to the target that has the data.

Objects move when targets come and go, so every request and every retry goes to the proxy again and follows its redirect
to the letter (it may be signed). The token goes to the proxy only. A target that died stays in the cluster's map for
half a minute and more; so the cluster is given `patience` seconds. That an object is missing, and that a list is
complete, is believed only of a cluster that was settled (`Cluster.doubt`). What another try may change is decided in
`AisConnector` alone.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from webdataset.base.redact import redacted
from webdataset.base.settings import settings
from webdataset.errors import StorageError, UnavailableError
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

if TYPE_CHECKING:
    from .objects import ObjectName

QUESTION_SECONDS = 10.0
NOT_FOUND = 404
WAITED_STATUS = RETRIED_STATUS | {409}
NO_MAP = "Smap v0"
WAITED_KINDS = frozenset({(400, "ErrFailedTo"), (400, NO_MAP)})
"""Errors of a node that needs another one, which is down, or that has not heard from the others."""
BAD_CHECKSUM = (500, "ErrBadCksum")
REFUSED = (401, 403)
EXPLAINED = (*REFUSED, BAD_CHECKSUM[0])
"""Statuses whose hint is about AIStore."""
JSON = {"Content-Type": "application/json"}
REBALANCING = 1
"""Among the flags of a page of a list: it lacks what is moving."""
CHECK_TARGETS = "check its targets, and whether it rebalances; if targets left for good, start the program again"

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

    def doubt(self, name: ObjectName, asked: float, flags: int | None = None) -> str:
        """Why what the cluster was asked at that time may lack objects that it has; empty if it was settled then.

        It was if it had started, had lost no target, had not just changed, and does not rebalance: `flags` are those of
        the page of a list, if it is one that was asked for. What a token may not see is taken to be in order.
        """
        try:
            self._answer(self.address("v1", "health", readiness="true"))
            self.look()
            if doubt := smap.CLUSTERS[self.endpoint].doubt(asked):
                return doubt
            flags = self._page_flags(name) if flags is None else flags
        except TRANSIENT_ERRORS:
            return "the cluster is not ready"
        return "the cluster rebalances" if flags & REBALANCING else ""

    def look(self) -> None:
        """Take in the cluster's map; one that is not shown is not known."""
        found = smap.ClusterMap.parsed(self._answer(self.address("v1", "daemon", what="smap")))
        cluster = smap.CLUSTERS[self.endpoint]
        if found is not None:
            cluster.observe(found, time.monotonic())

    def _page_flags(self, name: ObjectName) -> int:
        """The flags of a list of this object alone."""
        address, body = name.list_request(self, pagesize=1, cached=not name.is_here)
        page = self._answer(address, body)
        return int(page.get("flags") or 0) if isinstance(page, dict) else 0

    def _answer(self, address: str, body: bytes | None = None) -> Any:
        """The answer to a small question, asked once; None if it is refused, an OSError if there may be one later."""
        seconds = min(QUESTION_SECONDS, self.options.read_timeout)
        connect = min(seconds, self.options.connect_timeout)
        options = replace(self.options, prepare=self.with_token, connect_timeout=connect, read_timeout=seconds)
        response = Connector(address, options).send("GET", JSON, body)
        try:
            if may_pass(response):
                raise ConnectionError(f"the cluster answers {response.status}")
            return json.loads(response.raw.read()) if response.status == 200 else None
        except ValueError:
            return None
        finally:
            response.drain()

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
        name: ObjectName,
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
        connector = AisConnector(self, name, address, url, headers=headers, upload=upload)
        with contextlib.closing(self.retry_state(url)) as retries:
            while True:
                response = connector.send(method, None, body)
                try:
                    if response.status not in ok:
                        raise failure(response, url)
                    return WholeResponse(response.status, response.raw.headers, response.raw.read(), url)
                except TRANSIENT_ERRORS as exn:
                    pause_after(retries, exn, self)
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
        name: ObjectName,
        address: str,
        shown: str,
        *,
        headers: Mapping[str, str] | None = None,
        upload: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(address, replace(cluster.options, headers=headers or {}, prepare=cluster.with_token))
        self._cluster = cluster
        self._name = name
        self._shown = shown
        self._upload = upload
        self._retries = cluster.retry_state(shown)  # here, since another thread may be the one that sends
        self._target: Connector | None = None

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
        if self._cluster.endpoint not in smap.CLUSTERS:  # all targets must be known before one is lost
            with contextlib.suppress(*TRANSIENT_ERRORS):
                self._cluster.look()
        while True:
            asked = time.monotonic()
            try:
                response = self._send_to_both(method, headers, body, follow=follow, reuse=reuse)
            except TRANSIENT_ERRORS as exn:
                self._retries.check_open()
                pause_after(self._retries, exn, self._cluster)
                continue
            doubt = self._cluster.doubt(self._name, asked) if response.status == NOT_FOUND else ""
            if not doubt and not may_pass(response):
                self._retries.answered()
                self._retries.renew()
                return response
            error = failure(response, self._shown)
            response.close()
            if doubt:
                pause_to_settle(self._retries, f"{error.message}, but {doubt}", status=error.status)
            else:
                pause(self._retries, error.message, response.retry_after, status=error.status)

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


def pause(retries: RetryState, reason: str, retry_after: float = 0.0, *, status: int | None = None) -> None:
    """Wait for a cluster that is down, longer each time; an error when the patience is used up."""
    try:
        retries.pause(reason, retry_after, status=status)
    except RetriesExhaustedError as exn:
        raise UnavailableError(str(exn), url=retries.url, hint=exn.hint, status=exn.status) from None


def pause_to_settle(retries: RetryState, reason: str, *, status: int | None = None) -> None:
    """Wait for a cluster whose word is doubtful; an error when the patience is used up."""
    try:
        retries.pause(reason, status=status)
    except RetriesExhaustedError as exn:
        raise StorageError(str(exn), url=retries.url, hint=CHECK_TARGETS, status=exn.status, retryable=True) from None


def pause_after(retries: RetryState, error: BaseException, cluster: Cluster) -> None:
    """Wait after a connection that failed, if another one may succeed."""
    try:
        wait_after(retries, error, cluster.options.read_timeout)
    except RetriesExhaustedError as exn:
        hint = exn.hint if cluster.endpoint in smap.CLUSTERS else "check AIS_ENDPOINT"
        raise UnavailableError(f"cannot reach the cluster: {exn}", url=retries.url, hint=hint) from None
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
    if _kind(response) == BAD_CHECKSUM:
        error.hint = "these are not the bytes that were written: write the object again"
    return error


def may_pass(response: OpenResponse) -> bool:
    """Whether another try may be answered otherwise."""
    kind = _kind(response)
    return kind in WAITED_KINDS or (response.status in WAITED_STATUS and kind != BAD_CHECKSUM)


def _kind(response: OpenResponse) -> tuple[int, str]:
    """The status of a response, and AIStore's code of the error."""
    if response.status < 400:
        return response.status, ""
    text = (response.header("Hdr-Error") or "").encode() or error_body(response)
    code = NO_MAP if NO_MAP.encode() in text else b"".join(_CODE.findall(text)[:1]).decode()
    return response.status, code


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
