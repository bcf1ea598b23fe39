# The names of this package for type checkers: written by tests/filters/test_stubs.py, which compares it.

from collections.abc import Callable
from typing import Any, Self

from .batches import batched as batched
from .batches import BatchError as BatchError
from .batches import Collation as Collation
from .batches import combine_values as combine_values
from .batches import default_collation_fn as default_collation_fn
from .batches import dict2tuple as dict2tuple
from .batches import listed as listed
from .batches import tuple2dict as tuple2dict
from .batches import unbatched as unbatched
from .batches import unlisted as unlisted
from .bucketing import bucketed as bucketed
from .caching import Cached as Cached
from .caching import lmdb_cached as lmdb_cached
from .caching import LMDBCached as LMDBCached
from .caching import mcached as mcached
from .composing import compose as compose
from .composing import compose2 as compose2
from .composing import Curried as Curried
from .composing import FilterFunction as FilterFunction
from .composing import identity as identity
from .composing import pipeline as pipeline
from .composing import RestCurried as RestCurried
from .dbcache import DBCache as DBCache
from .fields import associate as associate
from .fields import extract_keys as extract_keys
from .fields import getfirst as getfirst
from .fields import Names as Names
from .fields import parse_field_spec as parse_field_spec
from .fields import rename as rename
from .fields import rename_keys as rename_keys
from .fields import to_tuple as to_tuple
from .fields import transform_with as transform_with
from .mapping import decode as decode
from .mapping import decode_bin as decode_bin
from .mapping import decode_pickle as decode_pickle
from .mapping import decode_text as decode_text
from .mapping import default_decoders as default_decoders
from .mapping import find_decoder as find_decoder
from .mapping import map as map
from .mapping import map_dict as map_dict
from .mapping import map_tuple as map_tuple
from .mapping import pipe as pipe
from .mapping import select as select
from .mapping import then as then
from .mapping import xdecode as xdecode
from .mistakes import OptionError as OptionError
from .monitoring import info as info
from .monitoring import log_keys as log_keys
from .order import detshuffle as detshuffle
from .order import pick as pick
from .order import rsample as rsample
from .order import shuffle as shuffle
from .order import slice as slice
from .padding import pad as pad
from .seeds import repeatable as repeatable
from .seeds import seeded as seeded
from collections.abc import Iterable as Iterable
from collections.abc import Mapping as Mapping
from collections.abc import Sequence as Sequence
from typing import TextIO as TextIO
from webdataset.base.stages import Filter as Filter
from webdataset.base.stages import fluent as fluent
from webdataset.base.stages import pipelinefilter as pipelinefilter
from webdataset.base.stages import PipelineStage as PipelineStage
from webdataset.handlers import Handler as Handler
from webdataset.handlers import reraise_exception as reraise_exception

_associate: Callable[..., Any]
_batched: Callable[..., Any]
_bucketed: Callable[..., Any]
_decode: Callable[..., Any]
_extract_keys: Callable[..., Any]
_info: Callable[..., Any]
_listed: Callable[..., Any]
_log_keys: Callable[..., Any]
_map: Callable[..., Any]
_map_dict: Callable[..., Any]
_map_tuple: Callable[..., Any]
_pipe: Callable[..., Any]
_rename: Callable[..., Any]
_rename_keys: Callable[..., Any]
_rsample: Callable[..., Any]
_seeded: Callable[..., Any]
_select: Callable[..., Any]
_shuffle: Callable[..., Any]
_slice: Callable[..., Any]
_then: Callable[..., Any]
_to_tuple: Callable[..., Any]
_unbatched: Callable[..., Any]
_unlisted: Callable[..., Any]
_xdecode: Callable[..., Any]

class FilterMethods:
    def associate(self, /, associator: Mapping[str, Mapping[str, Any]] | Callable[[str], Mapping[str, Any] | None], *, handler: Handler=..., **kw: object) -> Self: ...
    def batched(self, batchsize: int=..., collation_fn: Collation | None=..., partial: bool=..., *, handler: Handler=...) -> Self: ...
    def bucketed(self, key: str | Callable[[Any], float], boundaries: Iterable[float] | None=..., *, batchsize: int=..., max_tokens: float | None=..., among: int=..., scale: float=..., lengths: str | None=..., collation_fn: Collation | None=..., handler: Handler=...) -> Self: ...
    def decode(self, /, *args: object, handler: Handler=..., pre: Sequence[Any] | None=..., post: Sequence[Any] | None=..., only: Any=..., partial: bool=..., allow_pickle: bool=..., fields: Mapping[str, Any] | None=..., **kw: object) -> Self: ...
    def extract_keys(self, *patterns: Names, duplicate_is_error: bool=..., ignore_missing: bool=..., handler: Handler=...) -> Self: ...
    def info(self, fmt: str | None=..., n: int=..., every: int=..., width: int=..., stream: TextIO | None=..., name: str=...) -> Self: ...
    def listed(self, batchsize: int, partial: bool=...) -> Self: ...
    def log_keys(self, logfile: str | None=...) -> Self: ...
    def map(self, f: Callable[[Any], Any], handler: Handler=...) -> Self: ...
    def map_dict(self, /, handler: Handler=..., **kw: Callable[[Any], Any]) -> Self: ...
    def map_tuple(self, *args: Callable[[Any], Any] | None, handler: Handler=...) -> Self: ...
    def pipe(self, f: Callable[..., Iterable[Any]], *args: Any, **kw: Any) -> Self: ...
    def rename(self, /, handler: Handler=..., keep: bool=..., **kw: Names) -> Self: ...
    def rename_keys(self, /, *args: tuple[str, str], keep_unselected: bool=..., must_match: bool=..., duplicate_is_error: bool=..., handler: Handler=..., **kw: str) -> Self: ...
    def rsample(self, p: float=..., *, seed: Any=...) -> Self: ...
    def seeded(self, seed: int=...) -> Self: ...
    def select(self, predicate: Callable[[Any], Any], *, handler: Handler=...) -> Self: ...
    def shuffle(self, bufsize: int=..., initial: int=..., rng: Any=..., seed: Any=..., handler: Handler | None=..., *, max_bytes: int | None=...) -> Self: ...
    def slice(self, *args: int | None) -> Self: ...
    def then(self, f: Callable[..., Iterable[Any]], *args: Any, **kw: Any) -> Self: ...
    def to_tuple(self, *args: Names, handler: Handler=..., missing_is_error: bool=..., none_is_error: bool | None=...) -> Self: ...
    def unbatched(self, *, handler: Handler=...) -> Self: ...
    def unlisted(self) -> Self: ...
    def xdecode(self, /, *args: tuple[str, Any], must_decode: bool=..., defaults: Sequence[tuple[str, Any]]=..., handler: Handler=..., **kw: object) -> Self: ...

def declared() -> dict[str, Filter[...]]: ...
