"""Fields: choose, rename and add the fields of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import Any

from webdataset.base.stages import pipelinefilter
from webdataset.errors import SampleError
from webdataset.handlers import Handler, handled, reraise_exception

from .mistakes import OptionError

Sample = dict[str, Any]
Names = str | Sequence[str]


@pipelinefilter(kind="each", eager=True, moves_fields=True)
def to_tuple(
    data: Iterable[Sample],
    *args: Names,
    handler: Handler = reraise_exception,
    missing_is_error: bool = True,
    none_is_error: bool | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Make tuples of fields; "jpg;png" takes the first that is there, "jpg cls" is two fields.

    Args:
        *args: the fields; alternatives are joined by `;`
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        missing_is_error: raise an error if a field is missing; else its value is None
        none_is_error: raise an error if a value is None; if not given, as `missing_is_error`

    >>> list(to_tuple("jpg;png", "cls")([{"__key__": "a", "png": b"...", "cls": 7}]))
    [(b'...', 7)]
    """
    specs = tuple_fields(args)
    if none_is_error is None:
        none_is_error = missing_is_error
    slowly = _tuple_maker(specs, missing_is_error, none_is_error)
    names = [alternatives[0] for alternatives in specs if len(alternatives) == 1]
    if len(names) < 2 or len(names) != len(specs):
        return handled(data, slowly, handler)
    return handled(data, _quick_tuple_maker(names, slowly, none_is_error), handler)


@pipelinefilter(kind="each", eager=True, moves_fields=True)
def rename(
    data: Iterable[Sample], /, handler: Handler = reraise_exception, keep: bool = True, **kw: Names
) -> Iterator[Sample]:
    """Rename fields, `new="old1;old2"`; the others stay, unless `keep=False`.

    Args:
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        keep: keep the other fields
        **kw: `new="old"`, or several old names joined by `;`, of which the first that is there counts

    >>> list(rename(image="jpg;png")([{"__key__": "a", "png": b"...", "cls": 7}]))
    [{'__key__': 'a', 'cls': 7, 'image': b'...'}]
    """
    specs = {new: _alternatives(old) for new, old in kw.items()}
    gone = {name for names in specs.values() for name in names}

    def renamed(sample: Sample) -> Sample:
        kept = {name: value for name, value in sample.items() if name not in gone} if keep else {}
        return kept | {new: getfirst(sample, names) for new, names in specs.items()}

    return handled(data, renamed, handler)


@pipelinefilter(kind="each", eager=True, moves_fields=True)
def rename_keys(
    data: Iterable[Sample],
    /,
    *args: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    handler: Handler = reraise_exception,
    **kw: str,
) -> Iterator[Sample]:
    """Rename fields by glob patterns, `(new, pattern)`, matched against the lower-cased last path component.

    Args:
        *args: pairs of a new name and a pattern
        keep_unselected: keep fields that no pattern matches
        must_match: raise an error if a pattern matches no field
        duplicate_is_error: raise an error if two fields get one name; else the first stays
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        **kw: `new=pattern`

    >>> list(rename_keys(("image", "*.jpg"), label="cls")([{"a/b.JPG": b"...", "cls": 7}]))
    [{'image': b'...', 'label': 7}]
    """
    rules = [(pattern, new) for new, pattern in (*args, *kw.items())]

    def renamed(sample: Sample) -> Sample:
        result: Sample = {}
        matched = set()
        for name, value in sample.items():
            rule = _last_match(rules, name)
            if rule is None and not keep_unselected:
                continue
            new = name
            if rule is not None:
                matched.add(rule[0])
                new = rule[1]
            if new not in result:
                result[new] = value
            elif duplicate_is_error:
                hint = "duplicate_is_error=False keeps the first"
                raise SampleError(f"two fields would both be {new!r}", field=name, hint=hint)
        if must_match and (unmatched := [pattern for pattern, _ in rules if pattern not in matched]):
            hint = "must_match=False allows that"
            raise SampleError(f"no field matches {_listed(unmatched)}; {_there(sample)}", hint=hint)
        return result

    return handled(data, renamed, handler)


@pipelinefilter(kind="each", eager=True, moves_fields=True)
def extract_keys(
    data: Iterable[Sample],
    *patterns: Names,
    duplicate_is_error: bool = True,
    ignore_missing: bool = False,
    handler: Handler = reraise_exception,
) -> Iterator[tuple[Any, ...]]:
    """Make tuples of the fields that match glob patterns; "*.jpg;*.png" matches either.

    Args:
        *patterns: one pattern, or several joined by `;`, for each value
        duplicate_is_error: raise an error if two fields match one pattern; else the first counts
        ignore_missing: leave out what no field matches, instead of raising an error
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> list(extract_keys("*.jpg;*.png", "cls")([{"png": b"...", "cls": 7}]))
    [(b'...', 7)]
    """
    specs = [_alternatives(pattern) for pattern in patterns]

    def extracted(sample: Sample) -> tuple[Any, ...]:
        values = []
        for globs in specs:
            found = [name for name in sample if any(_matches(name, glob) for glob in globs)]
            if len(found) > 1 and duplicate_is_error:
                hint = "duplicate_is_error=False takes the first"
                raise SampleError(f"{_listed(found, 'and')} all match {_listed(globs)}", hint=hint)
            if found:
                values.append(sample[found[0]])
            elif not ignore_missing:
                raise SampleError(f"no field matches {_listed(globs)}; {_there(sample)}")
        return tuple(values)

    return handled(data, extracted, handler)


@pipelinefilter(kind="each", eager=True)
def associate(
    data: Iterable[Sample],
    /,
    associator: Mapping[str, Mapping[str, Any]] | Callable[[str], Mapping[str, Any] | None],
    *,
    handler: Handler = reraise_exception,
    **kw: object,  # noqa: ARG001 - taken and never used, as programs may pass it
) -> Iterator[Sample]:
    """Add fields to each sample, found by its key in a dict or by a function of the key.

    Args:
        associator: a dict from key to fields, or a function of the key
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`
        **kw: accepted, and without effect

    >>> list(associate({"a": {"cls": 7}})([{"__key__": "a"}, {"__key__": "b"}]))
    [{'__key__': 'a', 'cls': 7}, {'__key__': 'b'}]
    """
    find: Any = associator if callable(associator) else getattr(associator, "get", None)
    if find is None:
        raise TypeError(f"associate takes a dict or a function of the key, got {associator!r}")

    def associated(sample: Sample) -> Sample:
        extra = find(sample["__key__"])
        return {**sample, **extra} if extra else sample

    return handled(data, associated, handler)


def getfirst(a: Mapping[str, Any], keys: Names, default: object = None, missing_is_error: bool = True) -> Any:
    """The value of the first of several fields that is there.

    Args:
        a: the sample
        keys: names, as a list or joined by `;`
        default: the value if there is none of them
        missing_is_error: raise an error instead

    >>> getfirst({"png": b"...", "cls": 7}, "jpg;png")
    b'...'
    """
    names = _alternatives(keys)
    for name in names:
        if name in a:
            return a[name]
    if missing_is_error:
        raise SampleError(f"the sample has no field {_listed(names)}; {_there(a)}")
    return default


def parse_field_spec(fields: Names | Sequence[Names]) -> list[list[str]]:
    """A field specification as a list of alternatives per field.

    >>> parse_field_spec("jpg;png cls")
    [['jpg', 'png'], ['cls']]
    """
    parts = fields.split() if isinstance(fields, str) else fields
    return [part.split(";") if isinstance(part, str) else list(part) for part in parts]


def transform_with(sample: Sequence[Any], transformers: Sequence[Callable[[Any], Any] | None] | None) -> Sequence[Any]:
    """Apply the n-th function to the n-th value.

    Args:
        sample: the values
        transformers: a function, or None, for each of the first values

    >>> transform_with(["7", "seven"], [int])
    [7, 'seven']
    """
    if not transformers:
        return sample
    if len(transformers) > len(sample):
        raise OptionError(f"{len(transformers)} functions for a sample of {len(sample)} values")
    values = list(sample)
    for n, f in enumerate(transformers):
        if f is not None:
            values[n] = f(values[n])
    return values


def tuple_fields(args: tuple[Names, ...]) -> list[list[str]]:
    """The fields that the arguments of `to_tuple` stand for, each with its alternatives.

    >>> tuple_fields(("jpg;png", "cls")), tuple_fields(("jpg;png cls",))
    ([['jpg', 'png'], ['cls']], [['jpg', 'png'], ['cls']])
    """
    if len(args) == 1 and isinstance(args[0], str):
        return parse_field_spec(args[0])
    return [_alternatives(arg) for arg in args]


def _alternatives(names: Names) -> list[str]:
    if not isinstance(names, str):
        return list(names)
    if " " in names:
        raise OptionError(f"{names!r} is one field of several: separate alternatives by ';', not by spaces")
    return names.split(";")


def _tuple_maker(
    specs: list[list[str]], missing_is_error: bool, none_is_error: bool
) -> Callable[[Sample], tuple[Any, ...]]:
    def made(sample: Sample) -> tuple[Any, ...]:
        if not isinstance(sample, (dict, Mapping)):  # dict first: asking the ABC costs more than the rest
            raise TypeError(f"to_tuple takes samples that are dicts, got {type(sample).__name__}")
        values = []
        for names in specs:
            for name in names:
                if name in sample:
                    values.append(sample[name])
                    break
            else:
                values.append(getfirst(sample, names, missing_is_error=missing_is_error))
        if none_is_error:
            _check_for_none(values, specs)
        return tuple(values)

    return made


def _quick_tuple_maker(
    names: list[str], slowly: Callable[[Sample], tuple[Any, ...]], none_is_error: bool
) -> Callable[[Sample], tuple[Any, ...]]:
    """For fields without alternatives: one C call; anything unusual is left to the slow way and its messages."""
    get: Callable[[Sample], tuple[Any, ...]] = itemgetter(*names)

    def made(sample: Sample) -> tuple[Any, ...]:
        try:
            values = get(sample)
        except (KeyError, TypeError):
            return slowly(sample)
        if none_is_error:
            for value in values:
                if value is None:
                    return slowly(sample)
        return values

    return made


def _check_for_none(values: Sequence[Any], specs: list[list[str]]) -> None:
    for value, names in zip(values, specs, strict=True):
        if value is None:
            raise SampleError("the field is None", field=";".join(names), hint="none_is_error=False allows that")


def _last_match(rules: list[tuple[str, str]], name: str) -> tuple[str, str] | None:
    component = name.rpartition("/")[2].lower()
    for rule in reversed(rules):
        if fnmatchcase(component, rule[0]):
            return rule
    return None


def _matches(name: str, glob: str) -> bool:
    return fnmatchcase(name, glob) or fnmatchcase(f".{name}", glob)


def _listed(names: Iterable[str], conjunction: str = "or") -> str:
    return f" {conjunction} ".join(repr(name) for name in names)


def _there(sample: Mapping[str, Any]) -> str:
    names = [str(name) for name in sample if not str(name).startswith("__")]
    return f"it has {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}" if names else "it has no fields"
