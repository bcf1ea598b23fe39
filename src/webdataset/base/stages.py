"""One declaration gives a curried function, a pipeline stage and a fluent method.

@pipelinefilter
def every(data, n):              # a stage: data first, then options
    return islice(data, 0, None, n)

every(2)                         # a picklable callable that takes the source
every.function(source, 2)        # the plain function
every_method = fluent(every)     # in a class body: dataset.every(2) -> a new dataset
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from webdataset.handlers import HANDLERS, checked_handler, reraise_exception

from .behaviour import PER_SAMPLE, UNDECLARED, Behaviour, Kind
from .printing import did_you_mean

if TYPE_CHECKING:
    from inspect import Signature

P = ParamSpec("P")
Pipeline = TypeVar("Pipeline")
T = TypeVar("T")


class PipelineStage:
    """Base class for stages that are objects: subclass it and define `run(self, src)`."""

    def invoke(self, *args: Any, **kw: Any) -> Any:
        """Run the stage, under its old name.

        Args:
            *args: the source
            **kw: passed on to `run`
        """
        return self.run(*args, **kw)

    def run(self, src: Any) -> Any:
        """Give an iterator over what becomes of the items of `src`."""
        raise NotImplementedError(f"{type(self).__name__} must define run(self, src)")


def start(stage: Any, *args: Any, **kw: Any) -> Any:
    """Start a stage on its source; the first stage of a pipeline has none.

    >>> list(start(lambda data: data, [1, 2]))
    [1, 2]
    """
    if isinstance(stage, PipelineStage) and not (not args and hasattr(stage, "__iter__")):
        return stage.run(*args, **kw)
    if isinstance(stage, list) or (not args and hasattr(stage, "__iter__") and not isinstance(stage, (str, bytes))):
        return iter(stage)
    if callable(stage):
        return stage(*args, **kw)
    raise ValueError(f"{stage!r} is no pipeline stage: a stage is a function from iterator to iterator")


class Stage:
    """A filter with its options: call it with the source.

    >>> from webdataset.filters import batched
    >>> batched(2)
    <_batched (2,) {}>
    """

    def __init__(self, filter: Filter[Any], args: tuple[Any, ...], kw: dict[str, Any]) -> None:
        self.filter = filter
        self.args = args
        self.kw = kw

    @property
    def f(self) -> Callable[..., Any]:
        """The function behind the stage."""
        return self.filter.function

    @property
    def behaviour(self) -> Behaviour:
        """What the stage does to the stream."""
        return self.filter.behaviour

    def options(self) -> dict[str, Any]:
        """The options by name, with those that were not given.

        >>> from webdataset.filters import listed
        >>> listed(2).options()
        {'batchsize': 2, 'partial': True}
        """
        import inspect  # takes as long to import as all of this package's ground

        bound = inspect.signature(self.filter.function).bind(None, *self.args, **self.kw)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])

    def __call__(self, data: Iterable[Any]) -> Iterator[Any]:
        result: Iterator[Any] = self.filter.function(data, *self.args, **self.kw)
        return result

    def __repr__(self) -> str:
        return f"<{self.f.__name__} {self.args} {self.kw}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Stage, (self.filter, self.args, self.kw)


class Filter(Generic[P]):
    """A stage function, curried: its call takes the options, the result takes the source.

    Args:
        function: the function, whose first argument is the source
        behaviour: what the stage does to the stream
        eager: start it once without data when it is given its options
    """

    __name__: str
    __qualname__: str

    def __init__(
        self, function: Callable[Concatenate[Any, P], Any], behaviour: Behaviour = UNDECLARED, eager: bool = False
    ) -> None:
        self.function = function
        self.behaviour = behaviour
        self.eager = eager
        self._handler = _handler_of(function)
        self._parameters = _Parameters.of(function)
        update_wrapper(self, function)

    @property
    def f(self) -> Callable[..., Any]:
        """The function, under its old name."""
        return self.function

    @property
    def per_sample(self) -> bool:
        """Whether each sample is treated on its own, so that several threads may run it."""
        return self.behaviour.in_pool

    @property
    def __signature__(self) -> Signature:
        """What it takes: the function's parameters without the data, for editors and `help()`.

        >>> import inspect
        >>> from webdataset.filters import listed
        >>> str(inspect.signature(listed))
        "(batchsize: 'int', partial: 'bool' = True)"
        """
        import inspect  # takes as long to import as all of this package's ground

        signature = inspect.signature(self.function)
        parameters = list(signature.parameters.values())
        taken = parameters if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL else parameters[1:]
        return signature.replace(parameters=taken, return_annotation=inspect.Signature.empty)

    def __call__(self, *args: P.args, **kw: P.kwargs) -> Stage:
        if self._handler is not None:
            self._handler.check(args, kw)
        if self._parameters is not None:
            self._parameters.check(self.__name__.lstrip("_"), args, kw)
        if self.eager:  # a stage checks its options before it asks for data
            self.function((), *args, **kw)
        return Stage(self, args, kw)

    def __repr__(self) -> str:
        return f"<filter {self.__name__}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name where the name leads back here, as a decorated function's does; else by its function."""
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        return self.__qualname__ if found is self else (Filter, (self.function, self.behaviour, self.eager))


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a Python function's parameters, without `*args` and `**kw`.

    >>> argument_names(lambda data, n, *rest, seed=0, **more: 0)
    ('data', 'n', 'seed')
    """
    code = getattr(function, "__wrapped__", function).__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


class _Parameters(NamedTuple):
    """The options that a function takes after its data, to refuse wrong ones where they are written."""

    positional: tuple[str, ...]
    by_name: frozenset[str]
    needed: frozenset[str]
    any_position: bool
    any_name: bool

    @classmethod
    def of(cls, function: Callable[..., Any], *, after: int = 1) -> _Parameters | None:
        """Those of a function written in Python, after its first one or none; of other functions nothing is known."""
        code = getattr(function, "__code__", None)
        if code is None or code.co_argcount < after:
            return None
        every = argument_names(function)
        names, keywords = every[: code.co_argcount], every[code.co_argcount :]
        optional = names[len(names) - len(function.__defaults__ or ()) :]
        defaults = {*optional, *(function.__kwdefaults__ or ())}
        by_name = frozenset(names[max(code.co_posonlyargcount, after) :] + keywords)
        needed = frozenset(names[after:] + keywords) - defaults
        return cls(names[after:], by_name, needed, bool(code.co_flags & VARARGS), bool(code.co_flags & VARKEYWORDS))

    def check(self, name: str, args: tuple[Any, ...], kw: dict[str, Any]) -> None:
        """Raise the TypeError that the call would end in, before there is any data; with the name that was meant."""
        if len(args) > len(self.positional) and not self.any_position:
            takes = f"at most {len(self.positional)} positional arguments" if self.positional else "no arguments"
            raise TypeError(f"{name}() takes {takes}, got {len(args)}")
        given = {*self.positional[: len(args)]}
        for word, value in kw.items():
            if word in self.by_name:
                if word in given:
                    raise TypeError(f"{name}() got multiple values for argument {word!r}")
            elif not self.any_name or _is_switch(value):
                meant = did_you_mean(word, self.by_name)
                if meant or not self.any_name:
                    raise TypeError(f"{name}() got an unexpected keyword argument {word!r}{meant}")
        missing = [word for word in self.positional if word in self.needed - given - kw.keys()]
        missing += sorted(self.needed - given - kw.keys() - {*missing})
        if missing:
            raise TypeError(f"{name}() is missing {' and '.join(map(repr, missing))}")


def suggesting(*, method: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function say which argument was meant when it is called with one that it does not have.

    >>> @suggesting()
    ... def scaled(value, factor=2): return value * factor
    >>> scaled(3, facter=4)
    Traceback (most recent call last):
    TypeError: scaled() got an unexpected keyword argument 'facter'; did you mean 'factor'?
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        parameters = _Parameters.of(function, after=int(method))

        @wraps(function)
        def called(*args: P.args, **kw: P.kwargs) -> T:
            try:
                return function(*args, **kw)
            except TypeError:
                if kw and parameters is not None:
                    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
                    parameters.check(name, args[int(method) :], kw)
                raise

        return called

    return decorated


VARARGS, VARKEYWORDS = 0x04, 0x08  # inspect.CO_VARARGS and CO_VARKEYWORDS


def _is_switch(value: Any) -> bool:
    """Whether a value is that of an option, and never that of a field: a filter may take fields by name, too."""
    return value is None or isinstance(value, bool) or value in HANDLERS


class _HandlerOption:
    """The option of a filter that is a handler: where it stands among the options, and its default."""

    def __init__(self, place: int, default: object) -> None:
        self._place = place
        self._default = default

    def check(self, args: tuple[Any, ...], kw: dict[str, Any]) -> None:
        """Raise if what was given is none."""
        given = args[self._place] if 0 <= self._place < len(args) else kw.get("handler", self._default)
        if given is not self._default:
            checked_handler(given)


def _handler_of(function: Callable[..., Any]) -> _HandlerOption | None:
    """The option named `handler`, if its default says that it is one of ours."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    names = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(names[::-1], (function.__defaults__ or ())[::-1], strict=False))
    defaults |= function.__kwdefaults__ or {}
    default = defaults.get("handler")
    ours = default is reraise_exception or function.__module__.startswith("webdataset.")
    if "handler" not in defaults or not ours:
        return None
    return _HandlerOption(names.index("handler") - 1 if "handler" in names else -1, default)


@overload
def pipelinefilter(function: Callable[Concatenate[Any, P], Any]) -> Filter[P]: ...
@overload
def pipelinefilter(
    *, kind: Kind | None = None, per_sample: bool = False, eager: bool = False, **behaviour: Any
) -> Callable[[Callable[Concatenate[Any, P], Any]], Filter[P]]: ...
def pipelinefilter(
    function: Any = None, *, kind: Kind | None = None, per_sample: bool = False, eager: bool = False, **behaviour: Any
) -> Any:
    """Turn `f(source, *options)` into a filter: `f(*options)` is then a stage of a pipeline.

    `function` is `f`; as a decorator with options, there is none yet. `kind` declares what the stage does to the
    stream, with the other fields of `webdataset.base.behaviour.Behaviour`: `kind="each"` makes one item of each, so
    thread workers run the stage on several samples at a time, and its place can be saved. `per_sample=True` says that
    each sample is treated on its own, and makes any number of items. `eager=True` starts the stage once without data
    when it is given its options, so that wrong ones are refused where they were written, not in the first pass.

    >>> @pipelinefilter
    ... def doubled(data):
    ...     return (2 * x for x in data)
    >>> list(doubled()([1, 2]))
    [2, 4]
    """
    declared = PER_SAMPLE if per_sample else UNDECLARED
    if kind is not None:
        declared = Behaviour(kind, **{"in_pool": kind in {"each", "selects"} or per_sample, **behaviour})
    if function is None:
        return partial(Filter, behaviour=declared, eager=eager)
    return Filter(function, declared, eager)


class FluentMethod(Generic[P]):
    """A filter as a method: `dataset.method(options)` is `dataset.compose(filter(options))`."""

    def __init__(self, filter: Filter[P]) -> None:
        self.filter = filter
        self.__doc__ = filter.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Filter[P]: ...
    @overload
    def __get__(self, instance: Pipeline, owner: type[Pipeline]) -> Callable[P, Pipeline]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.filter

        def method(*args: P.args, **kw: P.kwargs) -> Any:
            return instance.compose(self.filter(*args, **kw))

        return update_wrapper(method, self.filter)


def fluent(filter: Filter[P]) -> FluentMethod[P]:
    """Declare a fluent method in a class body.

    Args:
        filter: a filter, as `pipelinefilter` makes them
    """
    return FluentMethod(filter)
