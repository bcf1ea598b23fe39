"""Requests to an AIStore cluster: the proxy is asked, the target that it names has the data.

Where an object lies changes when targets come and go, so every request and every repetition asks the proxy again and
follows its redirect to the letter (it may be signed). The token goes to the proxy only. A target that died stays in the
cluster's map for half a minute and more; so the cluster is given `patience` seconds. That an object is not there is
believed only of a cluster that has all its targets.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from webdataset.base.redact import redacted
from webdataset.base.settings import settings
from webdataset.errors import StorageError
from webdataset.storage.http import addresses
from webdataset.storage.http.connect import CONNECT_SECONDS, REDIRECTS, STALL_SECONDS, Connector, Reply
from webdataset.storage.http.faults import BROKEN, RETRIED_STATUS, beginning, printable, status_error, wait_after
from webdataset.storage.patience import FIRST_PAUSE, GaveUpError, Patience, Waiting

from . import smap

MAP_SECONDS = 10.0
NOT_FOUND = 404
WAITED_STATUS = RETRIED_STATUS | {409}
WAITED_CODES = frozenset({(400, "ErrFailedTo")})
"""What a node says while another one, that it needs for the answer, is down."""
FINAL_CODES = frozenset({(500, "ErrBadCksum")})
REFUSED = (401, 403)
CHECK_TARGETS = "check its targets; if some left for good, start the program again"

_CODE = re.compile(rb"\"tcode\"\s*:\s*\"(\w+)\"")


@dataclass(frozen=True)
class Cluster:
    """One cluster, and how to speak to it; small, and the same in every process it is sent to."""

    endpoint: str
    token: str | None = field(default=None, repr=False)
    patience: float | None = None
    retries: int | None = None
    connect_timeout: float = CONNECT_SECONDS
    read_timeout: float = STALL_SECONDS
    first_pause: float = FIRST_PAUSE
    proxy: str | None = None
    cafile: str | None = None
    anonymous: bool = False

    @property
    def seconds(self) -> float:
        """For how long a cluster in trouble is waited for."""
        return settings.ais_patience if self.patience is None else self.patience

    def waiting(self, url: str) -> Waiting:
        """The tries of one request."""
        return Waiting(Patience(self.seconds, self.retries, self.first_pause), url, self.endpoint)

    def with_token(self, _method: str, _url: str, headers: dict[str, str]) -> dict[str, str]:
        """The headers for a request to the proxy."""
        token = None if self.anonymous else self.token or _token()
        return headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def missing_targets(self) -> list[str] | None:
        """The targets that the cluster had and lacks now; None while it does not answer.

        A cluster that keeps its map to itself is taken to be whole.
        """
        seconds = min(MAP_SECONDS, self.read_timeout)
        connector = Connector(
            self.address("v1", "daemon", what="smap"),
            prepare=self.with_token,
            connect_timeout=min(seconds, self.connect_timeout),
            read_timeout=seconds,
            proxy=self.proxy,
            cafile=self.cafile,
        )
        try:
            reply = connector.send("GET")
            data = reply.response.read() if reply.status == 200 else b"null"
        except BROKEN:
            return None
        reply.release()
        cluster = smap.CLUSTERS[self.endpoint]
        with contextlib.suppress(ValueError):
            if (found := smap.ClusterMap.parsed(json.loads(data))) is not None:
                return cluster.missing(found)
        return []

    def map_version(self) -> str | None:
        """The number of the map as it was seen last; it is looked at before the first request of the process."""
        if self.endpoint not in smap.CLUSTERS and self.missing_targets() is None:
            return None
        return smap.CLUSTERS[self.endpoint].version

    def check_whole(self, url: str) -> None:
        """Wait for targets that are missing; an error that names them when patience is at its end."""
        with contextlib.closing(self.waiting(url)) as waiting:
            while missing := self.missing_targets():
                _pause(waiting, incomplete(missing, url))
            waiting.renew()

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
        body: Any = None,
        upload: Mapping[str, str] | None = None,
        ok: tuple[int, ...] = (200,),
    ) -> Said:
        """One request and its whole answer; another status than these is an error.

        `upload` are the headers of a body to be stored.
        """
        connector = AisConnector(self, address, url, headers=headers, upload=upload)
        with contextlib.closing(self.waiting(url)) as waiting:
            while True:
                reply = connector.send(method, None, body)
                try:
                    if reply.status not in ok:
                        raise failure(reply, url)
                    heads = {name.lower(): value for name, value in reply.response.getheaders()}
                    return Said(reply.status, heads, reply.response.read())
                except BROKEN as exn:
                    _pause_after(waiting, exn, self)
                finally:
                    reply.close()


@dataclass(frozen=True)
class Said:
    """A whole answer; the names of the headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self, url: str) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise StorageError("the cluster's answer is no JSON", url=url, hint="check AIS_ENDPOINT") from None


def cluster_of(url: str, endpoint: str | None = None, token: str | None = None, **options: Any) -> Cluster:
    """The cluster that the arguments or the environment name."""
    found = endpoint or settings.ais_endpoint
    if not found:
        hint = "set AIS_ENDPOINT to the address of the cluster's proxy, such as http://host:51080"
        raise StorageError("no AIStore cluster is named", url=url, hint=hint)
    if "://" not in found:
        found = f"http://{found}"
    return Cluster(found, token, cafile=options.pop("cafile", None) or settings.ais_client_ca, **options)


class AisConnector(Connector):
    """Asks the proxy, then the target it names; waits for a cluster that is in trouble."""

    def __init__(
        self,
        cluster: Cluster,
        address: str,
        shown: str,
        *,
        headers: Mapping[str, str] | None = None,
        upload: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            address,
            headers=headers,
            prepare=cluster.with_token,
            connect_timeout=cluster.connect_timeout,
            read_timeout=cluster.read_timeout,
            proxy=cluster.proxy,
            cafile=cluster.cafile,
        )
        self._cluster = cluster
        self._shown = shown
        self._upload = upload
        self._waiting = cluster.waiting(shown)  # here, since another thread may be the one that sends
        self._target: Connector | None = None
        self._known = False  # the object was there
        self._doubt = ""  # why an object that was not found may be there

    def send(
        self,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        follow: bool = True,
        reuse: bool = True,
    ) -> Reply:
        """The answer of the target, or of the proxy where that says no; StorageError when patience is at its end."""
        while True:
            version = self._cluster.map_version()  # all targets must be known before one is lost
            try:
                reply = self._ask_both(method, headers, body, follow=follow, reuse=reuse)
            except BROKEN as exn:
                self._check_open()
                _pause_after(self._waiting, exn, self._cluster)
                continue
            if not self._is_trouble(reply, version):
                self._known = self._known or reply.status < 300
                self._waiting.answered()
                self._waiting.renew()
                return reply
            error = self._explained(reply)
            reply.close()
            _pause(self._waiting, error, reply.retry_after)

    def abort(self) -> None:
        self._waiting.stopped.set()
        super().abort()
        if self._target is not None:
            self._target.abort()

    def _ask_both(self, method: str, headers: Any, body: Any, *, follow: bool, reuse: bool) -> Reply:
        upload = self._upload
        # The proxy never gets a body that is to be stored: it does not wait for its end.
        reply = super().send(method, headers, body if upload is None else b"", follow=False, reuse=reuse)
        headers = {**(headers or {}), **(upload or {})}
        location = reply.header("Location")
        if follow and reply.status in REDIRECTS and location is not None:
            reply.drain()
            self._target = self._connector_to(location)
            return self._target.send(method, headers, body, follow=method == "GET", reuse=reuse and upload is None)
        if upload is None or reply.status >= 300:
            return reply
        reply.drain()  # no proxy but a node that stores by itself
        return super().send(method, headers, body, follow=False, reuse=False)

    def _connector_to(self, location: str) -> Connector:
        source = addresses.parts_of(self.url, self._shown)
        addresses.redirected(source, location, self._shown)  # refused where it must not lead
        return self._plain(location if urlsplit(location).netloc else urljoin(self.url, location))

    def _plain(self, address: str) -> Connector:
        """A way to another node, without the token."""
        cluster = self._cluster
        return Connector(
            address,
            headers=self._headers,
            prepare=_as_they_are,
            connect_timeout=cluster.connect_timeout,
            read_timeout=cluster.read_timeout,
            proxy=cluster.proxy,
            cafile=cluster.cafile,
        )

    def _check_open(self) -> None:
        """Another thread may have closed the connection under this one."""
        if self._waiting.stopped.is_set():
            raise ValueError("I/O operation on closed file")

    def _explained(self, reply: Reply) -> StorageError:
        error = failure(reply, self._shown)
        if reply.status == NOT_FOUND and self._doubt:
            return StorageError(f"{error.message}, but {self._doubt}", url=self._shown, hint=CHECK_TARGETS)
        return error

    def _is_trouble(self, reply: Reply, version: str | None) -> bool:
        """Whether another answer may come later; the version is that of the map when the question was asked."""
        if reply.status == NOT_FOUND:
            self._doubt = self._doubt_since(version)
            return self._known or bool(self._doubt)
        kind = (reply.status, code_of(reply) if reply.status >= 400 else "")
        return kind in WAITED_CODES or (reply.status in WAITED_STATUS and kind not in FINAL_CODES)

    def _doubt_since(self, version: str | None) -> str:
        """Why the cluster may know later what it did not know, in words; nothing if it was whole."""
        if not self._is_ready():
            return "the cluster is not ready"
        missing = self._cluster.missing_targets()
        if missing is None:
            return "the cluster does not tell which targets it has"
        if missing:
            return lacks(missing)
        # a target may have come back since
        return "" if self._cluster.map_version() == version else "the cluster has just changed"

    def _is_ready(self) -> bool:
        """Whether a cluster that knows no such object has started at all."""
        try:
            reply = self._plain(self._cluster.address("v1", "health", readiness="true")).send("GET")
        except BROKEN:
            return False
        reply.drain()
        return reply.status not in WAITED_STATUS


def _pause(waiting: Waiting, error: StorageError, retry_after: float = 0.0) -> None:
    """Wait a little longer each time; the error itself when the patience is used up."""
    try:
        waiting.pause(error.message, retry_after, hint=error.hint)
    except GaveUpError as exn:
        error.message = str(exn)
        raise error from None


def _pause_after(waiting: Waiting, error: BaseException, cluster: Cluster) -> None:
    """Wait after a connection that failed, if another one may not."""
    try:
        wait_after(waiting, error, cluster.read_timeout)
    except GaveUpError as exn:
        hint = exn.hint if cluster.endpoint in smap.CLUSTERS else "check AIS_ENDPOINT"
        raise StorageError(f"cannot reach the cluster: {exn}", url=waiting.url, hint=hint) from None
    except StorageError as exn:
        if isinstance(error, ssl.SSLCertVerificationError):
            exn.hint = "set AIS_CLIENT_CA to a file with your authority's certificate"
        raise


def failure(reply: Reply, url: str) -> StorageError:
    """One line with the cure for an answer that is an error."""
    error = status_error(reply, url)
    told = reply.header("Hdr-Error")  # HEAD has no body
    if told:
        with contextlib.suppress(ValueError, AttributeError):
            error.message += f" ({redacted(printable(str(json.loads(told).get('message'))))})"
    if reply.status in REFUSED:
        error.hint = "check the token in AIS_AUTHN_TOKEN, when it ends, and what it allows"
    return error


def code_of(reply: Reply) -> str:
    """AIStore's name for the kind of an error."""
    found = _CODE.search((reply.header("Hdr-Error") or "").encode() or beginning(reply))
    return found[1].decode() if found else ""


def lacks(targets: Sequence[str]) -> str:
    return f"the cluster lacks targets that it had: {', '.join(targets)}"


def incomplete(targets: Sequence[str], url: str) -> StorageError:
    """Refuses a list without what these targets hold."""
    return StorageError(f"this list is not complete: {lacks(targets)}", url=url, hint=CHECK_TARGETS)


def _token() -> str | None:
    """The token of the environment, or of a file, read each time: tokens end and are renewed."""
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


def _as_they_are(_method: str, _url: str, headers: dict[str, str]) -> dict[str, str]:
    return headers
