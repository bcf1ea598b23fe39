"""Filters: what a pipeline does with samples, one curried function each.

Every filter exists as `name(options)`, a picklable stage that takes the source, as `_name(source, options)`, the plain
function behind it, and as a method of every dataset. A function that is declared with `@pipelinefilter` in a module
of this folder is all of that; `__init__.pyi` shows it to type checkers, and docs/filters.md to people.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from webdataset.base.stages import Filter, PipelineStage, fluent, pipelinefilter
from webdataset.handlers import reraise_exception

from .batches import BatchError, combine_values, default_collation_fn, dict2tuple, tuple2dict
from .caching import Cached, LMDBCached, lmdb_cached, mcached
from .composing import Curried, FilterFunction, RestCurried, compose, compose2, identity, pipeline
from .dbcache import DBCache
from .fields import getfirst, parse_field_spec, transform_with
from .mapping import decode_bin, decode_pickle, decode_text, default_decoders, find_decoder
from .mistakes import OptionError
from .order import detshuffle, pick
from .padding import pad
from .seeds import repeatable

__all__ = ["PipelineStage", "pipelinefilter", "reraise_exception"]
__all__ += ["BatchError", "combine_values", "default_collation_fn", "dict2tuple", "tuple2dict"]
__all__ += ["Cached", "DBCache", "LMDBCached", "OptionError", "detshuffle", "lmdb_cached", "mcached", "pad", "pick"]
__all__ += ["Curried", "FilterFunction", "RestCurried", "compose", "compose2", "identity", "pipeline", "repeatable"]
__all__ += ["getfirst", "parse_field_spec", "transform_with"]
__all__ += ["decode_bin", "decode_pickle", "decode_text", "default_decoders", "find_decoder"]


class FilterMethods:
    """The filters as methods: `dataset.name(options)` is `dataset.compose(name(options))`."""


def declared() -> dict[str, Filter[...]]:
    """The filters that the modules of this folder declare, by name.

    >>> list(declared())[:3]
    ['associate', 'batched', 'bucketed']
    """
    found = {}
    for module in _modules():
        names = {name: value for name, value in vars(module).items() if isinstance(value, Filter) and name[0] != "_"}
        found |= {name: value for name, value in names.items() if value.__module__ == module.__name__}
    return dict(sorted(found.items()))


def _modules() -> list[ModuleType]:
    return [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]


def _export() -> None:
    """Put the filters into this package: as stages, as plain functions and as methods."""
    for name, filter in declared().items():
        function = filter.function
        function.__name__ = function.__qualname__ = f"_{name}"  # by which programs import and pickle it
        setattr(import_module(filter.__module__), f"_{name}", function)
        globals().update({name: filter, f"_{name}": function})
        __all__.extend([name, f"_{name}"])
        setattr(FilterMethods, name, fluent(filter))


_export()
