"""Web addresses: which urls may be requested, their proxies, their passwords, and where redirects may lead."""

from __future__ import annotations

import base64
import functools
import ipaddress
import os
import re
import socket
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from webdataset.base.redact import redacted
from webdataset.base.settings import settings
from webdataset.errors import SecurityError, StorageError

if TYPE_CHECKING:
    from http.client import HTTPConnection

# A url is sent unchanged, because a signature may cover every character; only what cannot be sent is encoded.
_UNSENDABLE = re.compile(r"[^\x21-\x7e]")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


@functools.lru_cache(maxsize=256)
def url_parts(url: str, shown: str) -> SplitResult:
    """The parts of a url that may be requested; cached, since an object may be read in many parts."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exn:
        raise StorageError(f"this is not a url: {exn}", url=shown) from None
    if parts.scheme not in ("http", "https"):
        raise SecurityError(f"a redirect to a {parts.scheme or 'relative'}: url is refused", url=shown)
    if not parts.hostname or _CONTROL.search(parts.netloc) or port == 0 or not _is_host_name(parts.hostname):
        raise StorageError("this url names no host", url=shown, hint=f"write {parts.scheme}://host/path")
    return parts


def _is_host_name(host: str) -> bool:
    try:
        return ":" in host or bool(host.encode("idna"))
    except UnicodeError:
        return False


def redirect_target(source: SplitResult, location: str, shown: str) -> SplitResult:
    """The target of a redirect, if it may be followed."""
    try:
        joined = urljoin(sent_url(source), location)
    except ValueError as exn:
        raise StorageError(f"a redirect leads to something that is not a url: {exn}", url=shown) from None
    target = url_parts(joined, shown)
    if source.scheme == "https" and target.scheme == "http" and not settings.allow_downgrade:
        raise SecurityError(
            f"a redirect from https to http (host {target.hostname}) is refused",
            url=shown,
            hint="WDS_ALLOW_DOWNGRADE=1 allows it",
        )
    return target


@functools.lru_cache(maxsize=256)
def origin_of(parts: SplitResult) -> tuple[str, str, int]:
    """Scheme, host and port, which credentials are for."""
    return parts.scheme, parts.hostname or "", port_of(parts)


@functools.lru_cache(maxsize=256)
def host_field(parts: SplitResult) -> str:
    """The value of the field `Host`: with the port only if it is not the default.

    >>> host_field(urlsplit("http://me@Host:80/a")), host_field(urlsplit("https://[::1]:8443/a"))
    ('host', '[::1]:8443')
    """
    scheme, host, port = origin_of(parts)
    host = f"[{host}]" if ":" in host else host if host.isascii() else host.encode("idna").decode()
    return host if port == (443 if scheme == "https" else 80) else f"{host}:{port}"


def port_of(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def netloc_of(parts: SplitResult) -> str:
    """Host and port as written, without the user."""
    return parts.netloc.rpartition("@")[2]


def sent_url(parts: SplitResult) -> str:
    """The url without its user and fragment, as it is sent."""
    return f"{parts.scheme}://{netloc_of(parts)}{request_target(parts)}"


@functools.lru_cache(maxsize=256)
def request_target(parts: SplitResult) -> str:
    """Path and query as they are sent, the request target of HTTP.

    >>> request_target(urlsplit("http://host/a b/%41?x={1}"))
    '/a%20b/%41?x={1}'
    """
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _UNSENDABLE.sub(lambda found: quote(found[0].encode("utf-8", "surrogateescape"), safe=""), target)


def quoted(text: str, safe: str = "/") -> str:
    """A name, percent-encoded for an address.

    >>> quoted("a b/c+d.tar")
    'a%20b/c%2Bd.tar'
    """
    return quote(text.encode("utf-8", "surrogateescape"), safe=safe + "-_.~")


def password_header(parts: SplitResult) -> dict[str, str]:
    """`Authorization` for the user in the url, else for the one that `.netrc` has for exactly this host."""
    if parts.username is not None:
        return {"Authorization": basic(unquote(parts.username), unquote(parts.password or ""))}
    found = _netrc_entry(parts.hostname or "")
    return {"Authorization": basic(*found)} if found else {}


def basic(user: str, password: str) -> str:
    """
    >>> basic("me", "pw")
    'Basic bWU6cHc='
    """
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _netrc_entry(host: str) -> tuple[str, str] | None:
    path = settings.netrc
    try:
        entries = _netrc(path, os.stat(path).st_mtime_ns)
    except OSError:
        return None
    return entries.get(host)


@functools.lru_cache(maxsize=4)
def _netrc(path: str, _changed: int) -> dict[str, tuple[str, str]]:
    """User and password by host; the `default` entry is left out: it would go to every host there is."""
    import netrc

    try:
        hosts = netrc.netrc(path).hosts
    except (netrc.NetrcParseError, UnicodeError) as exn:
        what = exn.msg if isinstance(exn, netrc.NetrcParseError) else "not UTF-8"
        warnings.warn(f"{path} cannot be read ({what}); its passwords are not used", stacklevel=2)
        return {}
    return {host: (entry[0], entry[2] or "") for host, entry in hosts.items() if host != "default"}


def proxy_for(parts: SplitResult, proxy: str | None) -> SplitResult | None:
    """The proxy to go through: the given one ("" for none), else the one the system names (`http_proxy`, ...)."""
    if proxy is None:
        proxy = _system_proxy(parts.scheme, netloc_of(parts), settings.proxies)
    if not proxy:
        return None
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if found.scheme != "http" or not found.hostname:
        # what it would be sent in plain text includes its own password
        hint = "check http_proxy, https_proxy and proxy=; a proxy for https: urls is an http: address, too"
        raise StorageError(f"a proxy is an http: address, got {redacted(proxy)}", hint=hint)
    return found


@functools.lru_cache(maxsize=256)
def _system_proxy(scheme: str, netloc: str, _named: tuple[str | None, ...]) -> str | None:
    """Cached, because looking it up takes longer than sending a request."""
    import urllib.request

    if urllib.request.proxy_bypass(netloc):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    return {"Proxy-Authorization": basic(unquote(proxy.username), unquote(proxy.password or ""))}


def check_public(connection: HTTPConnection, parts: SplitResult, proxied: bool, shown: str, what: str) -> None:
    """In secure mode, refuse a redirect or a list's url that leads to this machine or its private network.

    The address of the open connection is what counts: a name may resolve to something else a moment later.
    """
    if proxied:
        found = socket.getaddrinfo(parts.hostname, port_of(parts), type=socket.SOCK_STREAM)
        addresses = [info[4][0] for info in found]
    else:
        addresses = [connection.sock.getpeername()[0]]
    for text in addresses:
        address: Any = ipaddress.ip_address(str(text).partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        if not address.is_global or address.is_multicast:
            raise SecurityError(
                f"{what} to the private address of {parts.hostname} is refused in secure mode", url=shown
            )
