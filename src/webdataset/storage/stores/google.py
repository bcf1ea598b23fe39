"""Credentials for Google Cloud Storage, found where Google's own tools look.

In this order: the file of GOOGLE_APPLICATION_CREDENTIALS, the logins `gcloud auth application-default login` and
`gcloud auth login`, the metadata server of the machine. Without any of them, requests carry no token, which public
buckets accept.
"""

from __future__ import annotations

import base64
import configparser
import functools
import json
import os
import time
from typing import Any
from urllib.parse import urlencode

from webdataset.base.settings import settings
from webdataset.errors import MissingPackageError, StorageError
from webdataset.storage.http.requests import request

from .credentials import Lease, RenewableSecret, metadata

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
METADATA_HOST = "169.254.169.254"  # its name may take a resolver long where there is no such machine
_ADC = "application_default_credentials.json"


def google_token() -> str | None:
    """The bearer token to send, or None."""
    named = settings.cloud("GOOGLE_APPLICATION_CREDENTIALS")
    path = named or _default_file()
    if path is not None:
        try:
            changed = os.stat(path).st_mtime_ns
        except OSError as exn:
            raise StorageError(
                f"cannot read {path}: {exn.strerror}", hint="check GOOGLE_APPLICATION_CREDENTIALS"
            ) from None
        return _from_file(path, changed).get()
    return _from_machine(settings.cloud("GCE_METADATA_HOST") or METADATA_HOST).get()


def _default_file() -> str | None:
    """The file that `gcloud auth application-default login` wrote, else that of `gcloud auth login`."""
    folder = settings.cloud("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    path = os.path.join(folder, _ADC)
    if os.path.exists(path):
        return path
    account = settings.cloud("CLOUDSDK_CORE_ACCOUNT") or _account_in_use(folder)
    path = os.path.join(folder, "legacy_credentials", account or "", "adc.json")
    return path if account and os.path.exists(path) else None


def _account_in_use(folder: str) -> str | None:
    parser = configparser.RawConfigParser(strict=False)
    try:
        with open(os.path.join(folder, "active_config"), encoding="utf-8") as stream:
            name = settings.cloud("CLOUDSDK_ACTIVE_CONFIG_NAME") or stream.read().strip()
        parser.read(os.path.join(folder, "configurations", f"config_{name}"), encoding="utf-8")
        return parser.get("core", "account", fallback=None)
    except (OSError, UnicodeError, configparser.Error):
        return None


@functools.lru_cache(maxsize=8)
def _from_file(path: str, _changed: int) -> RenewableSecret[str]:
    try:
        with open(path, encoding="utf-8") as stream:
            info = json.load(stream)
        kind = info["type"]
    except (OSError, ValueError, KeyError, TypeError) as exn:
        hint = "it should be the JSON key of a service account"
        raise StorageError(f"{path} holds no credentials ({type(exn).__name__})", hint=hint) from None
    if kind == "service_account":
        return RenewableSecret(lambda: _for_service_account(info, path))
    if kind == "authorized_user":
        return RenewableSecret(lambda: _for_user(info))
    return RenewableSecret(lambda: _by_google_auth(path, kind))


@functools.lru_cache(maxsize=4)
def _from_machine(host: str) -> RenewableSecret[str | None]:
    def fetch() -> Lease[str | None]:
        path = "computeMetadata/v1/instance/service-accounts/default/token"
        text = metadata(f"http://{host}/{path}", {"Metadata-Flavor": "Google"})
        try:
            found = json.loads(text or "null") or {}
            return Lease(str(found["access_token"]), time.time() + float(found.get("expires_in", 0)))
        except (ValueError, KeyError, TypeError):
            return Lease(None)

    return RenewableSecret(fetch)


def _for_service_account(info: dict[str, Any], path: str) -> Lease[str]:
    """A token in exchange for a JWT that is signed with the account's private key."""
    now = int(time.time())
    uri = info.get("token_uri") or TOKEN_URI
    claims = {"iss": info["client_email"], "scope": SCOPE, "aud": uri, "iat": now, "exp": now + 3600}
    header = {"alg": "RS256", "typ": "JWT", "kid": info.get("private_key_id", "")}
    text = b".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    signature = _rs256(info["private_key"], text, path)
    assertion = (text + b"." + _encoded(signature)).decode()
    grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    return _token(uri, {"grant_type": grant, "assertion": assertion})


def _for_user(info: dict[str, Any]) -> Lease[str]:
    names = ("client_id", "client_secret", "refresh_token")
    form = {"grant_type": "refresh_token"} | {name: str(info.get(name, "")) for name in names}
    return _token(info.get("token_uri") or TOKEN_URI, form)


def _token(uri: str, form: dict[str, str]) -> Lease[str]:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = request("POST", uri, headers=headers, body=urlencode(form).encode(), ok=(200, 400, 401, 403))
    try:
        found = json.loads(response.body)
        return Lease(str(found["access_token"]), time.time() + float(found.get("expires_in", 3600)))
    except (ValueError, KeyError, TypeError):
        hint = "check GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"
        line = f"Google returns no token ({response.status}{_error_in(response.body)})"
        raise StorageError(line, url=uri, hint=hint, status=response.status) from None


def _error_in(body: bytes) -> str:
    try:
        found = json.loads(body)
        return f" {found['error']}: {found.get('error_description', '')}"[:200]
    except (ValueError, KeyError, TypeError):
        return ""


def _rs256(pem: str, text: bytes, path: str) -> bytes:
    """Python itself cannot sign with RSA."""
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding
    except ImportError:
        raise MissingPackageError(
            f"the service account of {path} signs with RSA, which needs the package cryptography",
            hint="pip install 'webdataset[gcs]'",
        ) from None
    try:
        key: Any = serialization.load_pem_private_key(pem.encode(), password=None)
        return bytes(key.sign(text, padding.PKCS1v15(), hashes.SHA256()))
    except (ValueError, TypeError, AttributeError) as exn:
        raise StorageError(f"the private key in {path} cannot be used ({type(exn).__name__})") from None


def _by_google_auth(path: str, kind: str) -> Lease[str]:
    """Workload identity and other kinds, as google-auth implements them."""
    try:
        import google.auth
        import google.auth.transport.requests as transport
    except ImportError:
        raise MissingPackageError(
            f"credentials of the kind {kind!r} in {path} need the packages google-auth and requests",
            hint="pip install google-auth requests",
        ) from None
    try:
        found, _ = google.auth.load_credentials_from_file(path, scopes=[SCOPE])
        found.refresh(transport.Request())
    except Exception as exn:
        raise StorageError(f"google-auth returns no token for {path} ({type(exn).__name__})") from exn
    return Lease(str(found.token), time.time() + 1800)


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
