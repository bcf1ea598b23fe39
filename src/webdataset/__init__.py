"""WebLoader streams training data out of plain tar shards.

import webdataset as wds

dataset = wds.WebDataset("train-{000000..000099}.tar").shuffle(1000).decode("rgb").to_tuple("jpg;png", "cls")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import import_lazily

if TYPE_CHECKING:  # the same once more, for type checkers and editors
    from . import (
        autodecode,
        cache,
        compat,
        extradatasets,
        filters,
        handlers,
        iterators,
        mix,
        pipeline,
        pytorch,
        shardlists,
        tariterators,
        tenbin,
        utils,
        writer,
    )
    from .access import SampleReader
    from .autodecode import (
        Continue,
        Decoder,
        gzfilter,
        handle_extension,
        imagehandler,
        pytorch_weights_only,
        torch_audio,
        torch_loads,
        torch_video,
    )
    from .cache import LRUCleanup, pipe_cleaner
    from .catalogue import Catalogue
    from .codecs.pickles import register_safe_global
    from .dataset import Dataset, WebDataset
    from .errors import (
        CommandError,
        DecodingError,
        EmptyDatasetError,
        EncodingError,
        ExistingShardsError,
        LimitError,
        MissingPackageError,
        MissingShardError,
        ObsoleteError,
        SampleError,
        SecurityError,
        ShardError,
        ShardWarning,
        StorageError,
        UnavailableError,
        UnsafePickleError,
        WebDatasetError,
        WorkerError,
    )
    from .extradatasets import ChoppedDataset, MockDataset, ResizedDataset, with_epoch, with_length
    from .filters import (
        Cached,
        DBCache,
        LMDBCached,
        associate,
        batched,
        bucketed,
        decode,
        default_collation_fn,
        detshuffle,
        extract_keys,
        getfirst,
        info,
        listed,
        log_keys,
        map,
        map_dict,
        map_tuple,
        pipe,
        rename,
        rename_keys,
        repeatable,
        rsample,
        seeded,
        select,
        shuffle,
        slice,
        then,
        to_tuple,
        transform_with,
        unbatched,
        unlisted,
        xdecode,
    )
    from .fluid import FluidInterface, FluidWrapper, Processor
    from .gopen import gopen, gopen_schemes
    from .handlers import (
        CountingHandler,
        ignore_and_continue,
        ignore_and_stop,
        reraise_exception,
        warn_and_continue,
        warn_and_stop,
    )
    from .indexing import index
    from .loader import WebLoader
    from .mix import RandomMix, RoundRobin
    from .pipeline import DataPipeline
    from .plans import Plan, plan
    from .shardlists import (
        DirectoryShardList,
        MultiShardSample,
        PytorchShardList,
        ResampledShards,
        ShardList,
        SimpleShardList,
        non_empty,
        resampled,
        shardspec,
        single_node_only,
        split_by_node,
        split_by_worker,
        worker_urls,
    )
    from .stages import Filter as Curried
    from .stages import PipelineStage, fluent, pipelinefilter
    from .states import StateError, merge_states
    from .tariterators import (
        base_plus_ext,
        group_by_keys,
        tar_file_expander,
        tar_file_iterator,
        tarfile_samples,
        tarfile_to_samples,
        url_opener,
    )
    from .utils import repeatedly
    from .writer import ShardWriter, TarWriter, numpy_dumps, torch_dumps

    Composable = DataPipeline
    Shorthands = FluidInterface
    stage = pipelinefilter

__version__ = "2.0.0.dev0"

_NAMES = {
    "access": "SampleReader",
    "autodecode": """
        Continue Decoder gzfilter handle_extension imagehandler pytorch_weights_only torch_audio torch_loads
        torch_video""",
    "cache": "LRUCleanup pipe_cleaner",
    "catalogue": "Catalogue",
    "codecs.pickles": "register_safe_global",
    "dataset": "Dataset WebDataset",
    "errors": """
        CommandError DecodingError EmptyDatasetError EncodingError ExistingShardsError LimitError MissingPackageError
        MissingShardError ObsoleteError SampleError SecurityError ShardError ShardWarning StorageError UnavailableError
        UnsafePickleError WebDatasetError WorkerError""",
    "extradatasets": "ChoppedDataset MockDataset ResizedDataset with_epoch with_length",
    "filters": """
        Cached DBCache LMDBCached associate batched bucketed decode default_collation_fn detshuffle extract_keys
        getfirst info listed log_keys map map_dict map_tuple pipe rename rename_keys repeatable rsample seeded
        select shuffle slice then to_tuple transform_with unbatched unlisted xdecode""",
    "fluid": "FluidInterface FluidWrapper Processor Shorthands=FluidInterface",
    "gopen": "gopen gopen_schemes",
    "handlers": """
        CountingHandler ignore_and_continue ignore_and_stop reraise_exception warn_and_continue warn_and_stop""",
    "indexing": "index",
    "loader": "WebLoader",
    "mix": "RandomMix RoundRobin",
    "plans": "Plan plan",
    "states": "StateError merge_states",
    "pipeline": "Composable=DataPipeline DataPipeline",
    "shardlists": """
        DirectoryShardList MultiShardSample PytorchShardList ResampledShards ShardList SimpleShardList non_empty
        resampled shardspec single_node_only split_by_node split_by_worker worker_urls""",
    "stages": "Curried=Filter PipelineStage fluent pipelinefilter stage=pipelinefilter",
    "tariterators": """
        base_plus_ext group_by_keys tar_file_expander tar_file_iterator tarfile_samples tarfile_to_samples
        url_opener""",
    "utils": "repeatedly",
    "writer": "ShardWriter TarWriter numpy_dumps torch_dumps",
}
"""Submodule -> what the package has from it; new=old gives a thing another name. Submodules need no entry."""

__all__ = [
    "Cached",
    "Catalogue",
    "ChoppedDataset",
    "CommandError",
    "Composable",
    "Continue",
    "CountingHandler",
    "Curried",
    "DBCache",
    "DataPipeline",
    "Dataset",
    "Decoder",
    "DecodingError",
    "DirectoryShardList",
    "EmptyDatasetError",
    "EncodingError",
    "ExistingShardsError",
    "FluidInterface",
    "FluidWrapper",
    "LMDBCached",
    "LRUCleanup",
    "LimitError",
    "MissingPackageError",
    "MissingShardError",
    "MockDataset",
    "MultiShardSample",
    "ObsoleteError",
    "PipelineStage",
    "Plan",
    "Processor",
    "PytorchShardList",
    "RandomMix",
    "ResampledShards",
    "ResizedDataset",
    "RoundRobin",
    "SampleError",
    "SampleReader",
    "SecurityError",
    "ShardError",
    "ShardList",
    "ShardWarning",
    "ShardWriter",
    "Shorthands",
    "SimpleShardList",
    "StateError",
    "StorageError",
    "TarWriter",
    "UnavailableError",
    "UnsafePickleError",
    "WebDataset",
    "WebDatasetError",
    "WebLoader",
    "WorkerError",
    "__version__",
    "associate",
    "autodecode",
    "base_plus_ext",
    "batched",
    "bucketed",
    "cache",
    "compat",
    "decode",
    "default_collation_fn",
    "detshuffle",
    "extract_keys",
    "extradatasets",
    "filters",
    "fluent",
    "getfirst",
    "gopen",
    "gopen_schemes",
    "group_by_keys",
    "gzfilter",
    "handle_extension",
    "handlers",
    "ignore_and_continue",
    "ignore_and_stop",
    "imagehandler",
    "index",
    "info",
    "iterators",
    "listed",
    "log_keys",
    "map",
    "map_dict",
    "map_tuple",
    "merge_states",
    "mix",
    "non_empty",
    "numpy_dumps",
    "pipe",
    "pipe_cleaner",
    "pipeline",
    "pipelinefilter",
    "plan",
    "pytorch",
    "pytorch_weights_only",
    "register_safe_global",
    "rename",
    "rename_keys",
    "repeatable",
    "repeatedly",
    "reraise_exception",
    "resampled",
    "rsample",
    "seeded",
    "select",
    "shardlists",
    "shardspec",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "stage",
    "tar_file_expander",
    "tar_file_iterator",
    "tarfile_samples",
    "tarfile_to_samples",
    "tariterators",
    "tenbin",
    "then",
    "to_tuple",
    "torch_audio",
    "torch_dumps",
    "torch_loads",
    "torch_video",
    "transform_with",
    "unbatched",
    "unlisted",
    "url_opener",
    "utils",
    "warn_and_continue",
    "warn_and_stop",
    "with_epoch",
    "with_length",
    "worker_urls",
    "writer",
    "xdecode",
]

import_lazily(__name__, _NAMES)
