"""Redaction: passwords, tokens and signatures never reach a log, an error or a file name.

>>> redacted("https://me:pass@host/a.tar?X-Amz-Signature=abc&part=1")
'https://***@host/a.tar?X-Amz-Signature=***&part=1'
"""

from __future__ import annotations

import re

from .settings import settings

_SECRET = r"sig|token|key|secret|passw|pwd|credential|auth|session"  # noqa: S105 - names of secrets, not a secret
_SECRET_NAME = re.compile(rf"(?i){_SECRET}")
# `ais://@cluster#space/bucket` has an @ and no user before it
_USERINFO = re.compile(r"(?<=://)(?!@[^/\s'\"@?#]*(?:[/\s'\"?#]|$))[^/\s'\"@?#]*(?:@[^/\s'\"@?#]*)*@")
_QUERY = re.compile(rf"(?i)([?&;][^=&\s'\"]*(?:{_SECRET})[^=&\s'\"]*=)[^&\s'\"#]+")
_HEADER = re.compile(
    r"(?i)\b((?:authorization|x-[\w-]*(?:token|key)|cookie)\s*:\s*)(?:(?:bearer|basic|token)\s+)?[^\s'\"]+"
)
_OPTION = re.compile(
    r"(?i)((?:^|\s)(?:-u|--user|--[\w-]*(?:password|token|secret|key))[ =])"
    r"(?!(?:first|last)-dot\b)[^\s'\"]+"  # the values of our own --key are advice
)
_VARIABLE = re.compile(r"\b((?:[A-Z0-9]+_)*(?:TOKEN|SECRET|PASSWORD|KEY|SIGNATURE)(?:_[A-Z0-9]+)*=)[^\s'\"&;]+")


def is_secret_name(name: str) -> bool:
    """Whether a parameter of this name holds a secret.

    >>> is_secret_name("access_token"), is_secret_name("part")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def redacted(text: str) -> str:
    """The text with `***` instead of every secret; `WDS_SHOW_SECRETS=1` leaves it as it is."""
    if settings.show_secrets:
        return text
    text = _USERINFO.sub("***@", text)
    text = _QUERY.sub(r"\1***", text)
    text = _HEADER.sub(r"\1***", text)
    text = _OPTION.sub(r"\1***", text)
    return _VARIABLE.sub(r"\1***", text)
