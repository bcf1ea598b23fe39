"""Credentials for S3, found where Amazon's own tools look.

In this order: the environment, the profile of `~/.aws`, a web identity (EKS), the container's or machine's role.
Without any of them, requests are not signed, which public buckets accept.
"""

from __future__ import annotations

import configparser
import functools
import json
import os
from typing import Any

from webdataset.base.packages import imported
from webdataset.base.settings import settings
from webdataset.errors import MissingPackageError, SecurityError, StorageError

from .credentials import Lease, RenewableSecret, metadata, moment
from .markup import parsed, text_of
from .sigv4 import Keys

IMDS = "http://169.254.169.254"
CONTAINER = "http://169.254.170.2"
DEFAULT_REGION = "us-east-1"
# Profiles with one of these settings need boto3.
_NEED_BOTO3 = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file")
_BOTO_SECONDS = 600.0


def aws_keys(profile: str | None = None) -> Keys | None:
    """The keys to sign with, or None to send requests without a signature."""
    variable = settings.cloud
    if settings.aws_no_sign_request:
        return None
    access, secret = variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")
    if access and secret and profile is None:
        return Keys(access, secret, variable("AWS_SESSION_TOKEN"))
    if bool(access) != bool(secret) and profile is None:
        missing = "AWS_SECRET_ACCESS_KEY" if access else "AWS_ACCESS_KEY_ID"
        raise StorageError(f"the credentials are incomplete: {missing} is not set")
    named = profile or variable("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
    section = aws_profile(named)
    if named and not section:
        raise StorageError(f"there is no profile {named!r} in ~/.aws", hint="check AWS_PROFILE, or run aws configure")
    if section.get("aws_access_key_id") and "role_arn" not in section:
        return Keys(section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token"))
    if settings.secure and "credential_process" in section:
        raise SecurityError("a profile's credential_process is not run in secure mode")
    if any(name in section for name in _NEED_BOTO3):
        return _from_boto3(named).get()
    return _from_role(_role_variables()).get()


def aws_profile(name: str | None = None) -> dict[str, str]:
    """The settings of a profile in `~/.aws/config` and `~/.aws/credentials`."""
    name = name or settings.cloud("AWS_PROFILE", "AWS_DEFAULT_PROFILE") or "default"
    config = settings.cloud("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config")
    shared = settings.cloud("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")
    found = _sections(config, _changed(config))
    section = found.get(f"profile {name}") or (found.get(name, {}) if name == "default" else {})
    return section | _sections(shared, _changed(shared)).get(name, {})


def aws_region(profile: str | None = None) -> str:
    """The region that the environment or the profile names."""
    return settings.cloud("AWS_REGION", "AWS_DEFAULT_REGION") or aws_profile(profile).get("region") or DEFAULT_REGION


def aws_endpoint(profile: str | None = None) -> str | None:
    """The address of a store that is not Amazon's, if there is one."""
    return settings.cloud("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or aws_profile(profile).get("endpoint_url")


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=8)
def _sections(path: str, changed: int) -> dict[str, dict[str, str]]:
    if not changed:
        return {}
    parser = configparser.RawConfigParser(strict=False)
    try:
        with open(path, encoding="utf-8") as stream:
            parser.read_file(stream)
    except (OSError, UnicodeError, configparser.Error) as exn:
        # the parser's own message quotes lines, and lines hold secrets
        raise StorageError(f"{path} cannot be read ({type(exn).__name__})", hint="check its lines") from None
    return {" ".join(name.split()): dict(parser.items(name)) for name in parser.sections()}


@functools.lru_cache(maxsize=8)
def _from_boto3(profile: str | None) -> RenewableSecret[Keys]:
    """Keys from roles, single sign-on and credential processes, which boto3 implements."""
    try:
        boto3 = imported("boto3")
    except ImportError:
        raise MissingPackageError(
            f"the profile {profile or 'default'!r} gets its keys from a role, single sign-on or a process, "
            "which needs boto3",
            hint="pip install 'webdataset[s3]'",
        ) from None
    session = boto3.Session(profile_name=profile)

    def fetch() -> Lease[Keys]:
        import time

        try:
            found = session.get_credentials().get_frozen_credentials()
        except Exception as exn:
            raise StorageError(
                f"boto3 could not get keys for the profile {profile or 'default'!r} ({type(exn).__name__})",
                hint="log in again (aws sso login), or check ~/.aws/config",
            ) from exn
        # boto3 renews them itself; asking it again is cheap
        return Lease(Keys(found.access_key, found.secret_key, found.token), time.time() + _BOTO_SECONDS)

    return RenewableSecret(fetch)


def _role_variables() -> tuple[tuple[str, str], ...]:
    """The variables that name the role of a container or machine."""
    names = (
        "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL_STS",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    )  # fmt: skip
    return tuple((name, settings.cloud(name) or "") for name in names)


@functools.lru_cache(maxsize=8)
def _from_role(variables: tuple[tuple[str, str], ...]) -> RenewableSecret[Keys | None]:
    known = dict(variables)

    def fetch() -> Lease[Keys | None]:
        if known["AWS_WEB_IDENTITY_TOKEN_FILE"] and known["AWS_ROLE_ARN"]:
            return _web_identity(known)
        if known["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] or known["AWS_CONTAINER_CREDENTIALS_FULL_URI"]:
            return _container(known)
        if known["AWS_EC2_METADATA_DISABLED"].lower() == "true":
            return Lease(None)
        return _machine(known["AWS_EC2_METADATA_SERVICE_ENDPOINT"] or IMDS)

    return RenewableSecret(fetch)


def _web_identity(known: dict[str, str]) -> Lease[Keys | None]:
    from webdataset.storage.http.requests import request

    from .client import query_text

    with open(known["AWS_WEB_IDENTITY_TOKEN_FILE"], encoding="utf-8") as stream:
        token = stream.read().strip()
    endpoint = known["AWS_ENDPOINT_URL_STS"] or f"https://sts.{aws_region()}.amazonaws.com"
    form = query_text(
        [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", known["AWS_ROLE_ARN"]),
            ("RoleSessionName", known["AWS_ROLE_SESSION_NAME"] or "webdataset"),
            ("WebIdentityToken", token),
        ]
    )
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = request("POST", f"{endpoint}/", headers=headers, body=form[1:].encode())
    found = parsed(response.body).find("AssumeRoleWithWebIdentityResult/Credentials")
    if found is None:
        raise StorageError("the token service returned no keys", url=endpoint)
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
    return Lease(Keys(*(text_of(found, name) for name in names)), moment(text_of(found, "Expiration")))


def _container(known: dict[str, str]) -> Lease[Keys | None]:
    relative = known["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]
    url = f"{CONTAINER}{relative}" if relative else known["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    token = known["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
    if file := known["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]:
        with open(file, encoding="utf-8") as stream:
            token = stream.read().strip()
    text = metadata(url, {"Authorization": token} if token else {}, seconds=5.0)
    lease = _keys_in(text)
    if lease is None:
        raise StorageError(
            "the container's credential service returned no keys", hint="check the role of the task or pod"
        )
    return lease


def _machine(endpoint: str) -> Lease[Keys | None]:
    """The keys of an EC2 machine's role; on other machines there is no such service."""
    base = f"{endpoint.rstrip('/')}/latest"
    token = metadata(f"{base}/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}, method="PUT")
    headers = {"X-aws-ec2-metadata-token": token} if token else {}
    roles = f"{base}/meta-data/iam/security-credentials/"
    name = metadata(roles, headers) if token else None
    lease = _keys_in(metadata(roles + name.split()[0], headers)) if name and name.strip() else None
    return lease or Lease(None)


def _keys_in(text: str | None) -> Lease[Keys | None] | None:
    try:
        found: dict[str, Any] = json.loads(text or "null") or {}
        keys = Keys(found["AccessKeyId"], found["SecretAccessKey"], found.get("Token"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Lease(keys, moment(found.get("Expiration")))
