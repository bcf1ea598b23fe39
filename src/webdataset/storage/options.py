"""Storage options: how the servers and stores of a dataset are reached, one table for all schemes.

>>> options = StorageOptions.of({"endpoint": "http://localhost:9000", "headers": {"X-Api-Key": "hush"}, "patience": 5})
>>> options
StorageOptions(endpoint='http://localhost:9000', headers=***, patience=5.0)
>>> sorted(options.for_url("s3://bucket/a.tar"))
['endpoint', 'headers', 'patience']
>>> sorted(options.for_url("https://host/a.tar")), options.for_url("a.tar")
(['headers', 'patience'], {})
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from webdataset.base.redact import redacted
from webdataset.base.settings import settings

from .urls import FAMILIES, is_local, rewritten_url, scheme_of

READ, WRITE, LIST = "rb", "wb", "list"

STORES = frozenset({"s3", "gs", "az", "hf", "ais"})
WEB = STORES | {"http"}

# Fields that every request sets itself; other values would return other bytes than were requested.
_OWN_FIELDS = frozenset({"range", "if-range", "content-length", "transfer-encoding", "accept-encoding", "connection"})
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CREDENTIAL = re.compile(r"(?i)auth|token|key|secret|passw|cookie|credential|session|signature")


@dataclass(frozen=True)
class Option:
    """One row of the table."""

    about: str
    checked: Callable[[Any], Any]
    """Returns the value as it is used; ValueError with what it should be."""
    families: frozenset[str]
    parsed: Callable[[str], Any] = str
    """Returns the value of a text on a command line."""
    is_secret: bool = False


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or any(character < " " for character in value):
        raise ValueError("a text")
    return value


def _web_address(value: object) -> str:
    text = _text(value)
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("a web address such as http://host:9000")
    return text.rstrip("/")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError("a number of seconds, at least 0")
    return float(value)


def _times(value: object) -> tuple[float, float]:
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    times = [time for time in pair if isinstance(time, (int, float)) and not isinstance(time, bool) and 0 < time < 1e6]
    if len(times) != 2 or len(pair) != 2:
        raise ValueError("a number of seconds above 0, or two of them: to connect, and without a byte")
    return float(times[0]), float(times[1])


def _count(least: int) -> Callable[[object], int]:
    def checked(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number, at least {least}")
        return value

    return checked


def _fields(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ValueError("a dict of names and texts")
    for name, text in value.items():
        if not _FIELD_NAME.fullmatch(name) or any(character < " " and character != "\t" for character in text):
            raise ValueError(f"a dict of header fields, which {name!r} cannot be")
        if name.lower() in _OWN_FIELDS:
            raise ValueError(f"a dict without {name!r}, which every request sets itself")
    return dict(value)


def _flag_in(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError("true or false")
    return words[text.lower()]


def _times_in(text: str) -> float | tuple[float, ...]:
    return tuple(map(float, text.split(","))) if "," in text else float(text)


OPTIONS = {
    "endpoint": Option("the address of the store", _web_address, STORES),
    "profile": Option("whose keys, by the name of a profile in ~/.aws", _text, frozenset({"s3"})),
    "region": Option("where the bucket is", _text, frozenset({"s3"})),
    "anonymous": Option("send no credentials, also where there are some", _flag, WEB, _flag_in),
    "token": Option("who you are, instead of the environment's token", _text, frozenset({"hf", "ais"}), is_secret=True),
    "headers": Option("more header fields, for the host of the url alone", _fields, WEB - {"ais"}, is_secret=True),
    "patience": Option("seconds for which a server that is down is waited for", _number, WEB | {"ssh"}, float),
    "retries": Option("most tries in a row for a server that is down", _count(0), WEB - {"ais"} | {"ssh"}, int),
    "timeout": Option("seconds to connect, and without a byte", _times, WEB | {"ssh"}, _times_in),
    "cafile": Option("a file with the certificates to trust", _text, WEB),
    "proxy": Option("the web proxy to go through", _text, WEB, is_secret=True),
    "connections": Option("most requests at a time for one object", _count(1), WEB, int),
}


class StorageOptions(Mapping[str, Any]):
    """Checked options; each has the families of schemes that it applies to."""

    def __init__(self, given: Mapping[str, Any], named_by: tuple[str, str, int] | None = None) -> None:
        self._values = {name: _checked(name, value) for name, value in given.items()}
        self._named_by = named_by  # the server of the list that names the urls

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> StorageOptions:
        """The options, checked; for None those of the running command."""
        if isinstance(given, cls):
            return given
        if given is None:
            return _default[-1]
        if not isinstance(given, Mapping):
            raise TypeError(f"storage_options must be a dict, got {type(given).__name__}; {_known()}")
        return cls(given)

    @classmethod
    def parsed(cls, words: list[tuple[str, str]]) -> StorageOptions:
        """The options of pairs of name and text, as on a command line; `headers.NAME` is one header field.

        >>> StorageOptions.parsed([("anonymous", "yes"), ("timeout", "5,60"), ("headers.X-Group", "a")])["timeout"]
        (5.0, 60.0)
        """
        given: dict[str, Any] = {}
        for name, text in words:
            first, _, field = name.partition(".")
            if first == "headers" and field:
                given.setdefault(first, {})[field] = text
            else:
                given[name] = _parsed(name, text)
        return cls(given)

    def for_url(self, url: str, mode: str = READ) -> dict[str, Any]:
        """The arguments for opening this url; options that do not apply to its scheme are left out."""
        family = _family(url)
        if family is None or (family == "ais" and not (self.get("endpoint") or settings.ais_endpoint)):
            return {}  # the ais command has a configuration of its own
        found = {name: value for name, value in self._values.items() if family in OPTIONS[name].families}
        if mode != READ:
            found.pop("connections", None)
        if self._is_foreign(url, family):
            found.pop("headers", None)
            found["foreign"] = True
        if self._named_by is not None and family == "az":
            found["named_by"] = self._named_by
        if "timeout" in found:
            found["connect_timeout"], stall = found.pop("timeout")
            found |= {} if family == "ssh" else {"read_timeout": stall}
        if family == "http" and found.pop("anonymous", False):
            found["prepare"] = without_credentials
        return found

    def identity(self, url: str) -> str:
        """A digest of what chooses the object behind this url, for names of copies of it: options and GOPEN_REWRITE.

        Credentials are not among them: they say who may read an object, and they change.

        >>> StorageOptions({"patience": 5}).identity("s3://b/a.tar")
        ''
        >>> one, two = StorageOptions({"endpoint": "http://one"}), StorageOptions({"endpoint": "http://two"})
        >>> one.identity("s3://b/a.tar") == two.identity("s3://b/a.tar"), one.identity("https://host/a.tar")
        (False, '')
        """
        address = rewritten_url(url)
        family = _family(address)
        choosing = [
            (name, _without_user(str(self[name])))
            for name in ("endpoint", "profile", "region")
            if name in self and family in OPTIONS[name].families
        ]
        if address != url:
            choosing.append(("address", _without_user(address)))
        if family in OPTIONS["headers"].families and not self._is_foreign(address, family):
            fields = self.get("headers", {})
            choosing += sorted((name.lower(), text) for name, text in fields.items() if not _CREDENTIAL.search(name))
        if not choosing:
            return ""
        import hashlib

        return hashlib.blake2b(repr(choosing).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()

    def changed(self, **changes: object) -> StorageOptions:
        """The same options with others; None leaves one as it is."""
        given = {name: value for name, value in changes.items() if value is not None}
        return StorageOptions({**self._values, **given}, self._named_by) if given else self

    def for_list(self, origin: object) -> StorageOptions:
        """The options for urls in a list from `origin`, which is trusted only if it is a local file.

        Headers go to no server that only the list names, other than its own; and in secure mode none of a private
        network is asked for what a list from elsewhere names.
        """
        if not isinstance(origin, str) or is_local(origin):
            return self
        return StorageOptions(self._values, place_of(origin) or ("", "", 0))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = (f"{name}={_shown(name, value)}" for name, value in self._values.items())
        return f"StorageOptions({', '.join(shown)})"

    def _is_foreign(self, url: str, family: str | None) -> bool:
        return self._named_by is not None and family == "http" and place_of(url) != self._named_by


def without_credentials(_method: str, _url: str, headers: dict[str, str]) -> dict[str, str]:
    """The headers as they are, without the url's user or .netrc."""
    return headers


@contextmanager
def as_default(options: StorageOptions) -> Iterator[None]:
    """Use these options wherever none are given, in the whole process: for commands."""
    _default.append(options)
    try:
        yield
    finally:
        _default.pop()


_default = [StorageOptions({})]


def _family(url: str) -> str | None:
    scheme = scheme_of(url)
    return "ais" if scheme in settings.use_ais_for else FAMILIES.get(scheme)


def place_of(url: str) -> tuple[str, str, int] | None:
    """The server of a web address: scheme, host and port."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None


def _without_user(address: str) -> str:
    return re.sub(r"(?<=://)[^/@]*@", "", address)


def _checked(name: str, value: object) -> Any:
    if name not in OPTIONS:
        raise _unknown(name)
    try:
        return OPTIONS[name].checked(value)
    except ValueError as error:
        got = "another value" if OPTIONS[name].is_secret else repr(value)
        raise ValueError(f"the storage option {name} must be {error}, got {redacted(got)}") from None


def _parsed(name: str, text: str) -> Any:
    if name not in OPTIONS:
        raise _unknown(name)
    if name == "headers":
        raise ValueError("a header field is given by its name: headers.NAME=VALUE")
    try:
        return OPTIONS[name].parsed(text)
    except ValueError:
        kinds = {bool: "true or false", int: "a whole number"}
        kind = kinds.get(type(OPTIONS[name].parsed("1")), "a number of seconds")
        raise ValueError(f"the storage option {name} must be {kind}, got {redacted(text)!r}") from None


def _unknown(name: str) -> ValueError:
    import difflib

    close = difflib.get_close_matches(str(name), OPTIONS, n=1)
    return ValueError(
        f"there is no storage option {name!r}{f' (did you mean {close[0]!r}?)' if close else ''}; {_known()}"
    )


def _known() -> str:
    return f"the options are {', '.join(OPTIONS)}"


def _shown(name: str, value: object) -> str:
    return "***" if OPTIONS[name].is_secret and not settings.show_secrets else redacted(repr(value))
