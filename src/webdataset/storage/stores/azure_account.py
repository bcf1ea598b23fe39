"""Credentials for Azure Blob Storage: an account and its key, a SAS token, a login, or none.

In this order: AZURE_STORAGE_CONNECTION_STRING; AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or
AZURE_STORAGE_SAS_TOKEN; the login that the package azure-identity finds. Else requests carry nothing, which
public containers accept.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote, urlsplit

from webdataset.base.settings import settings
from webdataset.errors import StorageError

from .credentials import Lease, RenewableSecret

SCOPE = "https://storage.azure.com/.default"
SUFFIX = "core.windows.net"
SUFFIXES = tuple(
    f".blob.{suffix}"
    for suffix in (SUFFIX, "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de")
    + ("fabric.microsoft.com", "storage.azure.net")
)
"""What the names of Microsoft's own hosts end in: the public cloud, the sovereign ones, OneLake, DNS zones."""
HINT = "set AZURE_STORAGE_ACCOUNT, or write abfs://container@account.dfs.core.windows.net/path"
_HOST = re.compile(r"[a-z0-9]{3,24}(\.[A-Za-z0-9-]+)*")
EMULATOR_ACCOUNT = "devstoreaccount1"
# Published by Microsoft: the same for everybody's emulator.
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_STANDARD = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


@dataclass(frozen=True)
class Account:
    """Where the blobs of an account are, and its credentials."""

    name: str
    endpoint: str
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    login: bool = False
    is_elsewhere: bool = False
    """Whether only the url names its host, and it is none of Microsoft's."""

    def token(self) -> str | None:
        return _login().get() if self.login else None

    @property
    def is_anonymous(self) -> bool:
        return not self.key and not self.sas and self.token() is None


def account_for(host: str, endpoint: str | None, *, anonymous: bool, url: str) -> Account:
    """The account of a url; `host` is the one in an abfs: url, `endpoint` the address that the program gave."""
    from_string = _connection_string(settings.cloud("AZURE_STORAGE_CONNECTION_STRING") or "", url)
    if host and _HOST.fullmatch(host) is None:
        raise StorageError("this url names no account", url=url, hint=HINT)
    default_name = settings.cloud("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    name = host.partition(".")[0] or default_name
    if from_string is not None and (not host or name == from_string.name) and endpoint is None:
        return Account(from_string.name, from_string.endpoint) if anonymous else from_string
    if not name:
        raise StorageError("this url names no account", url=url, hint=HINT)
    trusted = endpoint or settings.cloud("AZURE_STORAGE_ENDPOINT")
    endpoint = trusted or _blob_endpoint(name, host)
    is_elsewhere = not trusted and not _is_azure(endpoint)
    anonymous = anonymous or is_elsewhere  # such a host gets no credentials
    # the key in the environment is the key of the account in the environment
    keyless = anonymous or (default_name or name) != name
    key = "" if keyless else settings.cloud("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY") or ""
    sas = "" if keyless or key else (settings.cloud("AZURE_STORAGE_SAS_TOKEN") or "").lstrip("?")
    login = not anonymous and not key and not sas
    return Account(name, endpoint.rstrip("/"), _checked(key, url), sas, login, is_elsewhere)


def shared_key(method: str, url: str, headers: dict[str, str], account: Account, length: int) -> dict[str, str]:
    """The headers with the signature of the account's key."""
    headers = headers | {"x-ms-date": formatdate(usegmt=True)}
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    lower["content-length"] = str(length) if length else ""
    own = sorted((name, " ".join(value.split())) for name, value in lower.items() if name.startswith("x-ms-"))
    parts = urlsplit(url)
    lines = [method, *(lower.get(name, "") for name in _STANDARD), *(f"{name}:{value}" for name, value in own)]
    lines.append(f"/{account.name}{parts.path}")
    query = sorted(pair.partition("=")[::2] for pair in parts.query.split("&") if pair)
    lines += [f"{unquote(name).lower()}:{unquote(value)}" for name, value in query]
    digest = hmac.new(base64.b64decode(account.key), "\n".join(lines).encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account.name}:{base64.b64encode(digest).decode()}"
    return headers


def _connection_string(text: str, url: str) -> Account | None:
    """`AccountName=...;AccountKey=...;BlobEndpoint=...`, as the portal shows it."""
    if not text.strip():
        return None
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    found = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if found.get("usedevelopmentstorage", "").lower() == "true":
        endpoint = f"http://127.0.0.1:10000/{EMULATOR_ACCOUNT}"
        return Account(EMULATOR_ACCOUNT, found.get("blobendpoint", endpoint).rstrip("/"), EMULATOR_KEY)
    endpoint = found.get("blobendpoint", "")
    name = found.get("accountname") or urlsplit(endpoint).netloc.partition(".")[0]
    if not name:
        hint = "copy it from the account's page, under access keys"
        raise StorageError("AZURE_STORAGE_CONNECTION_STRING names no account", url=url, hint=hint)
    protocol, suffix = found.get("defaultendpointsprotocol", "https"), found.get("endpointsuffix", SUFFIX)
    endpoint = endpoint or f"{protocol}://{name}.blob.{suffix}"
    key, sas = _checked(found.get("accountkey", ""), url), found.get("sharedaccesssignature", "").lstrip("?")
    return Account(name, endpoint.rstrip("/"), key, "" if key else sas)


def _blob_endpoint(name: str, host: str) -> str:
    """
    >>> _blob_endpoint("me", "me.dfs.core.windows.net"), _blob_endpoint("me", "")
    ('https://me.blob.core.windows.net', 'https://me.blob.core.windows.net')
    """
    zone, rest = re.fullmatch(r"[^.]*\.?(z\d+\.)?(?:(?:dfs|blob)\.)?(.*)", host).groups()  # type: ignore[union-attr]
    return f"https://{name}.{zone or ''}blob.{rest or SUFFIX}"


def _is_azure(endpoint: str) -> bool:
    """Whether an endpoint is one of Microsoft's clouds.

    >>> _is_azure("https://me.blob.core.windows.net"), _is_azure("https://me.blob.evil.com")
    (True, False)
    """
    return endpoint.partition("://")[2].endswith(SUFFIXES)


def _checked(key: str, url: str) -> str:
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise StorageError("the account's key is not base64", url=url, hint="check AZURE_STORAGE_KEY") from None
    return key


@functools.lru_cache(maxsize=1)
def _login() -> RenewableSecret[str | None]:
    """Managed identities, service principals, `az login`: as the package azure-identity finds them."""

    def fetch() -> Lease[str | None]:
        try:
            import azure.identity
        except ImportError:
            return Lease(None)
        programs = ("cli", "powershell", "developer_cli")
        excluded = {f"exclude_{name}_credential": True for name in programs} if settings.secure else {}
        try:
            found: Any = azure.identity.DefaultAzureCredential(**excluded).get_token(SCOPE)
        except Exception:  # a public container needs no token
            return Lease(None)
        return Lease(str(found.token), float(found.expires_on))

    return RenewableSecret(fetch)
