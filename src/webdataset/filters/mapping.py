"""Mapping: apply functions to samples and fields."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from webdataset.base.context import current_pass
from webdataset.base.stages import pipelinefilter
from webdataset.errors import DecodingError
from webdataset.handlers import Handler, handled, reraise_exception

from .closing import closing
from .mistakes import OptionError

if TYPE_CHECKING:
    from _typeshed import SupportsRead


@pipelinefilter(kind="each", eager=True)
def map(data: Iterable[Any], f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Iterator[Any]:
    """Apply a function to every sample; None drops the sample, a new dict keeps the old `__key__`.

    Args:
        f: a function of the sample
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> list(map(lambda sample: {"n": len(sample["txt"])})([{"__key__": "a", "txt": b"hello"}]))
    [{'n': 5, '__key__': 'a'}]
    """
    _check_callable("map", f)
    f = _in_pass(f)

    def mapped(sample: object) -> Any:
        result = f(sample)
        if result is sample or not isinstance(result, dict) or "__key__" in result:
            return result
        return _with_key_of(sample, result)

    return handled(data, mapped, handler)


@pipelinefilter(kind="each", eager=True)
def map_dict(
    data: Iterable[dict[str, Any]], /, handler: Handler = reraise_exception, **kw: Callable[[Any], Any]
) -> Iterator[dict[str, Any]]:
    """Apply a function to each of the named fields.

    Args:
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        **kw: `field=function`

    >>> list(map_dict(cls=int)([{"cls": "7", "txt": "seven"}]))
    [{'cls': 7, 'txt': 'seven'}]
    """
    if not kw:
        raise OptionError("map_dict needs a function for at least one field: map_dict(jpg=f)")
    for field, f in kw.items():
        _check_callable(f"map_dict({field}=...)", f)

    def mapped(sample: dict[str, Any]) -> dict[str, Any]:
        changed = sample.copy()
        for field, f in kw.items():
            changed[field] = f(sample[field])
        return changed

    return handled(data, mapped, handler)


@pipelinefilter(kind="each", eager=True)
def map_tuple(
    data: Iterable[Sequence[Any]], *args: Callable[[Any], Any] | None, handler: Handler = reraise_exception
) -> Iterator[tuple[Any, ...]]:
    """Apply the n-th function to the n-th value; None, or no function, keeps the value.

    Args:
        *args: a function, or None, for each of the first values
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> list(map_tuple(int, None)([("7", "seven", b"VII")]))
    [(7, 'seven', b'VII')]
    """
    changes = [(n, f) for n, f in enumerate(args) if f is not None]
    for _, f in changes:
        _check_callable("map_tuple", f)

    def mapped(sample: Sequence[Any]) -> tuple[Any, ...]:
        if not isinstance(sample, (tuple, list)):
            raise TypeError(f"map_tuple takes tuples or lists, got {_type(sample)}; to_tuple makes tuples of dicts")
        values = list(sample)
        for n, f in changes:
            if n < len(values):
                values[n] = f(values[n])
        return tuple(values)

    return handled(data, mapped, handler)


@pipelinefilter(kind="selects", eager=True)
def select(
    data: Iterable[Any], predicate: Callable[[Any], Any], *, handler: Handler = reraise_exception
) -> Iterator[Any]:
    """Keep the samples for which the predicate is true.

    Args:
        predicate: a function of the sample
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> list(select(str.isdigit)(["1", "x", "3"]))
    ['1', '3']
    """
    _check_callable("select", predicate)
    return handled(data, lambda sample: sample if predicate(sample) else None, handler)


@pipelinefilter
def pipe(data: Iterable[Any], f: Callable[..., Iterable[Any]], *args: Any, **kw: Any) -> Iterator[Any]:
    """Put a function of the whole stream into the pipeline.

    Args:
        f: a function from an iterator to an iterable
        *args: passed on to `f`
        **kw: passed on to `f`

    >>> list(pipe(sorted, reverse=True)([1, 3, 2]))
    [3, 2, 1]
    """
    _check_callable("pipe", f)
    source = iter(data)
    return closing(source, iter(f(source, *args, **kw)))


@pipelinefilter
def then(data: Iterable[Any], f: Callable[..., Iterable[Any]], *args: Any, **kw: Any) -> Iterator[Any]:
    """`pipe`, under its name in the 0.1 API.

    Args:
        f: a function from an iterator to an iterable
        *args: passed on to `f`
        **kw: passed on to `f`
    """
    piped: Iterator[Any] = pipe.function(data, f, *args, **kw)
    return piped


@pipelinefilter(kind="each", eager=True)
def decode(
    data: Iterable[dict[str, Any]],
    /,
    *args: object,
    handler: Handler = reraise_exception,
    pre: Sequence[Any] | None = None,
    post: Sequence[Any] | None = None,
    only: Any = None,
    partial: bool = False,
    allow_pickle: bool = False,
    fields: Mapping[str, Any] | None = None,
    **kw: object,
) -> Iterator[dict[str, Any]]:
    """Decode fields by their extension; a string such as "pil" or "rgb8" says how images are decoded.

    Other keywords are fields that are decoded in another way: `decode("rgb8", mask="pixels")` means `mask.png`, too;
    `fields={"mask.png": "pixels"}` takes any name.

    Args:
        *args: image specs, functions of (key, data), or `wds.images` pipelines, asked in this order
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        pre: functions that are asked first, instead of the default `gzfilter`
        post: functions that are asked last, instead of decoding by extension
        only: the fields to decode, if not all
        partial: pass on values that are not bytes
        allow_pickle: let pickles build any object, that is, run any code
        fields: field -> how it is decoded
        **kw: the same, for names that are identifiers

    >>> list(decode()([{"__key__": "a", "cls": b"7", "json": b"[1, 2]"}]))
    [{'__key__': 'a', 'cls': 7, 'json': [1, 2]}]
    >>> list(decode(size=len)([{"__key__": "a", "cls": b"7", "size.bin": b"abc"}]))
    [{'__key__': 'a', 'cls': 7, 'size.bin': 3}]
    """
    from webdataset.autodecode import Decoder

    fields = {name: _in_pass(how) for name, how in {**(fields or {}), **kw}.items()}
    decoder = Decoder(
        [_in_pass(how) for how in args],
        pre=pre,
        post=post,
        only=only,
        partial=partial,
        allow_pickle=allow_pickle,
        fields=fields,
    )

    def decoded(sample: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(sample, dict):
            raise TypeError(f"decode takes samples that are dicts, got {_type(sample)}; it comes before to_tuple")
        return decoder.decode(sample)

    return handled(data, decoded, handler, stage="decode")


def decode_bin(stream: SupportsRead[bytes]) -> Any:
    """The bytes as they are."""
    return stream.read()


def decode_text(stream: SupportsRead[bytes]) -> str:
    """Text in utf-8."""
    text: str = stream.read().decode("utf-8")
    return text


def decode_pickle(stream: SupportsRead[bytes]) -> Any:
    """A pickle of plain data; anything else is refused, as in `decode`."""
    from webdataset.codecs import pickles

    return pickles.loads(stream.read())


default_decoders: list[tuple[str, Any]] = [("*.bin", decode_bin), ("*.txt", decode_text), ("*.pyd", decode_pickle)]


@pipelinefilter(kind="each")
def xdecode(
    data: Iterable[dict[str, Any]],
    /,
    *args: tuple[str, Any],
    must_decode: bool = True,
    defaults: Sequence[tuple[str, Any]] = default_decoders,
    handler: Handler = reraise_exception,
    **kw: object,
) -> Iterator[dict[str, Any]]:
    """Decode by glob patterns: each function gets a stream, later rules win, False leaves the bytes.

    Args:
        *args: pairs of a pattern and a function of a stream
        must_decode: raise an error if a field has no rule; else it keeps its bytes
        defaults: the rules that come first
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        **kw: `extension=function`

    >>> list(xdecode(("*.raw", False), n=lambda stream: len(stream.read()))([{"txt": b"a", "n": b"xyz", "raw": b"r"}]))
    [{'txt': 'a', 'n': 3, 'raw': b'r'}]
    """
    rules = [*defaults, *args, *((f"*.{field}", decoder) for field, decoder in kw.items())]

    def decoded(sample: dict[str, Any]) -> dict[str, Any]:
        return {
            field: value if field.startswith("__") else _xdecoded(rules, field, value, must_decode)
            for field, value in sample.items()
        }

    return handled(data, decoded, handler)


def find_decoder(decoders: Sequence[tuple[str, Any]], path: str) -> Any:
    """The last decoder whose pattern matches a field or file name, or None.

    >>> find_decoder([("*.txt", "first"), ("*.txt", "second")], "a/b.TXT")
    'second'
    """
    name = path.rpartition("/")[2].lower()
    for pattern, decoder in reversed(decoders):
        if fnmatch(name, pattern) or fnmatch(f".{name}", pattern):
            return decoder
    return None


def _xdecoded(rules: Sequence[tuple[str, Any]], field: str, value: object, must_decode: bool) -> Any:
    decoder = find_decoder(rules, field)
    if decoder is None and must_decode:
        patterns = ", ".join(dict.fromkeys(pattern for pattern, _ in rules))
        hint = "add a rule, or must_decode=False to keep the bytes"
        raise UnknownFieldError(f"xdecode has no rule for this field, only for {patterns}", field=field, hint=hint)
    if decoder is None or decoder is False:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return decoder(io.BytesIO(value))
    if hasattr(value, "read"):
        return decoder(value)
    raise DecodingError(f"xdecode needs bytes, the field holds {_type(value)}", field=field)


class UnknownFieldError(DecodingError, ValueError):
    """xdecode met a field that no rule names."""


def _in_pass(function: object) -> Any:
    """The function, or for one that wants to know in which pass it is used, as repeatable() does, that of this pass."""
    in_pass = getattr(function, "in_pass", None)
    return in_pass(current_pass()) if callable(in_pass) else function


def _with_key_of(sample: object, result: dict[Any, Any]) -> dict[Any, Any]:
    """A copy, because the function may hand out the same dict again."""
    if not isinstance(sample, dict) or "__key__" not in sample:
        return result
    result = {**result} if type(result) is dict else copy.copy(result)
    result["__key__"] = sample["__key__"]
    return result


def _check_callable(name: str, f: object) -> None:
    if not callable(f):
        raise TypeError(f"{name} takes a function, got {f!r}")


def _type(value: object) -> str:
    return type(value).__name__
