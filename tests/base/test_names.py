"""Every name that programs written for older versions import, replace or add to."""

from __future__ import annotations

import ast
import copy
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import webdataset as wds

NAMES = {
    "webdataset": """
        Cached Continue DataPipeline Decoder DecodingError FluidInterface FluidWrapper LMDBCached LRUCleanup MockDataset
        MultiShardSample PipelineStage RandomMix ResampledShards RoundRobin ShardWriter SimpleShardList TarWriter
        WebDataset WebLoader associate autodecode batched cache compat decode detshuffle extract_keys extradatasets
        filters getfirst gopen gopen_schemes gzfilter handle_extension handlers ignore_and_continue ignore_and_stop
        imagehandler info map map_dict map_tuple mix non_empty numpy_dumps pipe_cleaner pipeline pipelinefilter pytorch
        pytorch_weights_only rename rename_keys repeatedly reraise_exception resampled rsample select shardlists
        shardspec shuffle single_node_only slice split_by_node split_by_worker tarfile_samples tarfile_to_samples
        tariterators tenbin to_tuple torch_audio torch_dumps torch_loads torch_video transform_with unbatched utils
        warn_and_continue warn_and_stop with_epoch with_length writer xdecode
        Dataset ShardList PytorchShardList Composable Shorthands Processor ChoppedDataset ResizedDataset DBCache Curried
        stage worker_urls url_opener tar_file_iterator tar_file_expander group_by_keys register_safe_global""",
    "webdataset.utils": """
        ObsoleteException PipelineStage compute_sample_weights deprecated enforce_security fnmatch_with_braces
        glob_with_braces guess_batchsize identity is_iterable lookup_sym make_seed obsolete pytorch_worker_info
        pytorch_worker_seed repeatedly repeatedly0 safe_eval""",
    "webdataset.pipeline": "DataPipeline PipelineStage add_length_method",
    "webdataset.compat": """
        DataPipeline FluidInterface FluidWrapper WebDataset WebLoader check_empty group_by_keys tar_file_expander
        reraise_exception""",
    "webdataset.filters": """
        Cached FilterFunction LMDBCached PipelineStage RestCurried _associate _batched _decode _extract_keys _info
        _log_keys _map _map_dict _map_tuple _rename _rename_keys _rsample _select _shuffle _to_tuple _unbatched
        _unlisted _xdecode associate batched combine_values compose compose2 decode decode_bin decode_pickle decode_text
        default_collation_fn default_decoders detshuffle dict2tuple extract_keys find_decoder getfirst identity info
        log_keys map map_dict map_tuple parse_field_spec pick pipelinefilter rename rename_keys reraise_exception
        rsample select shuffle slice to_tuple transform_with tuple2dict unbatched unlisted xdecode""",
    "webdataset.tariterators": """
        base_plus_ext group_by_keys meta_prefix meta_suffix reraise_exception tar_file_expander tar_file_iterator
        tarfile_samples tarfile_to_samples trace url_opener valid_sample gopen""",
    "webdataset.autodecode": """
        Continue Decoder DecodingError IMAGE_EXTENSIONS ImageHandler basichandlers call_extension_handler cbor_loads
        decoders default_decoder default_post_handlers default_pre_handlers gzfilter handle_extension imagehandler
        imagespecs msgpack_loads npy_loads npz_loads pytorch_weights_only tenbin_loads torch_audio torch_loads
        torch_video unpickle_loads""",
    "webdataset.writer": """
        ShardWriter TarWriter add_handlers bytestr cbor_dumps default_handlers encode_based_on_extension
        encode_based_on_extension1 gopen imageencoder make_encoder make_handlers mp_dumps numpy_dumps numpy_npz_dumps
        tenbin_dumps torch_dumps""",
    "webdataset.gopen": """
        Pipe gopen gopen_ais gopen_curl gopen_error gopen_file gopen_gsutil gopen_hf gopen_htgs gopen_pipe gopen_schemes
        info reader rewrite_url set_options""",
    "webdataset.cache": """
        FileCache LRUCleanup StreamingOpen check_tar_format default_cache_dir default_cache_size download get_filetype
        islocal magic_filetype pipe_cleaner url_to_cache_name verbose_cache cached_tarfile_to_samples
        cached_tarfile_samples cached_url_opener lru_cleanup get_file_cached cbors_to_samples cbors2_to_samples""",
    "webdataset.shardlists": """
        DirectoryShardList MSSource MultiShardSample ResampledShardList ResampledShards SimpleShardList
        check_pid_is_running envlookup envsubst expand expand_source expand_urls get_pid_from_filename non_empty
        resampled resampled_ shardspec single_node_only split_by_node split_by_worker without_last_extension""",
    "webdataset.mix": "RandomMix RoundRobin random_samples round_robin_longest round_robin_shortest",
    "webdataset.extradatasets": "MockDataset with_epoch with_length repeatedly",
    "webdataset.handlers": """
        ignore_and_continue ignore_and_stop reraise_exception warn_and_continue warn_and_stop""",
    "webdataset.iterators": "identity map unbatched",
    "webdataset.pytorch": "DataLoader IterableDataset TorchTensor",
    "webdataset.multi": "MultiLoader",
    "webdataset.tenbin": """
        bytedata bytelen check_acceptable_input_type check_infos decode_buffer decode_chunks decode_header decode_list
        encode_buffer encode_chunks encode_header encode_list load long_to_short magic magic_bytes magic_str read
        read_chunk roundup save short_to_long str64 unstr64 write write_chunk""",
}


@pytest.mark.parametrize("module", NAMES)
def test_the_names_are_there(module):
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_gopen_is_a_function_and_a_module():
    import webdataset.gopen as function
    from webdataset.gopen import gopen, gopen_schemes

    assert function is gopen is wds.gopen is wds.gopen.gopen
    assert wds.gopen_schemes is gopen_schemes is wds.gopen.gopen_schemes
    assert wds.gopen.Pipe
    assert wds.gopen.info == function.info


def test_compat_is_the_module_that_the_dataset_is_in():
    import webdataset.compat
    from webdataset import dataset

    assert webdataset.compat is dataset is sys.modules["webdataset.compat"]


def test_importing_is_quick_and_imports_no_heavy_package():
    program = (
        "import webdataset, sys, time; print(time.process_time(), *sorted({m.split('.')[0] for m in sys.modules}))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    _, *modules = out.stdout.split()
    assert not {"torch", "PIL", "numpy", "yaml", "av", "zmq", "lmdb", "sqlite3", "asyncio"} & set(modules)


def test_it_works_without_torch_numpy_and_pillow(make_shard):
    program = """
import sys
from pathlib import Path
for name in ("torch", "PIL", "numpy", "simplejpeg", "isal", "msgpack"):
    sys.modules[name] = None
import webdataset as wds
samples = list(wds.WebDataset(sys.argv[1]).shuffle(10).decode().to_tuple("cls", "txt"))
print(sorted(samples)[:2])
"""
    out = subprocess.run([sys.executable, "-c", program, make_shard()], capture_output=True, text=True, check=True)
    assert out.stdout == "[(0, 'txt0'), (1, 'txt1')]\n"


# -- names that are imported when they are asked for ------------------------------------------------


def run(program: str) -> str:
    """What a fresh Python prints."""
    out = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (out.returncode, out.stderr) == (0, "")
    return out.stdout


def test_importing_the_package_imports_none_of_its_parts():
    program = "import webdataset, sys; print(*(name for name in sys.modules if name.startswith('webdataset.')))"
    assert [name for name in run(program).split() if not name.startswith("webdataset.base")] == []


def test_the_stub_has_every_public_name_and_nothing_else():
    stub = ast.parse(Path(str(wds.__file__) + "i").read_text(encoding="utf-8"))
    imported = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assigned = {ast.unparse(node.targets[0]) for node in stub.body if isinstance(node, ast.Assign)}
    assert sorted((imported - {None}) | assigned | {"__version__"}) == wds.__all__
    assert all(hasattr(wds, name) for name in wds.__all__)


def test_every_name_is_what_the_submodule_has_that_the_stub_names():
    stub = ast.parse(Path(str(wds.__file__) + "i").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module]
    places = [(each.asname, node.module, each.name) for node in imports for each in node.names if each.asname]
    assert len(places) > 100
    for name, submodule, original in places:
        assert getattr(wds, name) is getattr(importlib.import_module(f"webdataset.{submodule}"), original), name


def test_a_star_imports_all():
    program = (
        "from webdataset import *; import webdataset; print([n for n in webdataset.__all__ if n not in globals()])"
    )
    assert run(program) == "[]\n"


def test_submodules_need_no_import_of_their_own():
    program = "import webdataset as wds; print(wds.{0}.__name__)"
    for name in ["filters", "tariterators", "errors", "base", "storage", "multi", "compat", "version1"]:
        expected = {"compat": "webdataset.dataset"}.get(name, f"webdataset.{name}")
        assert run(program.format(name)) == f"{expected}\n"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import webdataset.gopen",
        "import webdataset.gopen as g; assert g is wds.gopen",
        "import importlib; importlib.import_module('webdataset.gopen')",
        "from webdataset import gopen",
        "from webdataset.gopen import gopen_schemes",
        "wds.WebDataset",
        "wds.gopen; import importlib; importlib.reload(wds)",
        "import importlib, sys; wds.gopen; importlib.reload(sys.modules['webdataset.gopen'])",
        "from unittest import mock\nwith mock.patch('webdataset.gopen'): pass",
    ],
)
def test_gopen_is_the_function_whatever_was_imported_before(before):
    program = f"import webdataset as wds\n{before}\nprint(type(wds.gopen).__name__, wds.gopen.gopen_schemes['pipe'])"
    assert run(program).startswith("function <function gopen_pipe")


def test_a_name_means_what_its_submodule_had_when_it_was_imported():
    program = """
import webdataset as wds
original = wds.tariterators.url_opener
wds.tariterators.url_opener = None
assert wds.url_opener is original
"""
    run(program)


def test_what_a_program_puts_into_the_package_stays():
    program = """
import webdataset as wds
wds.WebDataset, wds.gopen, wds.cache, wds.mine = 1, None, 3, 4
import webdataset.compat, webdataset.gopen, webdataset.dataset
assert (wds.WebDataset, wds.gopen, wds.mine) == (1, None, 4)
del wds.WebDataset
assert wds.WebDataset is wds.compat.WebDataset
"""
    run(program)


def test_a_function_that_uses_the_package_can_be_pickled_with_it():
    assert pickle.loads(pickle.dumps(wds)) is wds
    assert copy.deepcopy(wds) is wds


def test_names_can_be_listed_before_they_are_there():
    assert run("import webdataset as wds; print({'WebDataset', 'filters', 'gopen', '__version__'} <= {*dir(wds)})") == (
        "True\n"
    )


def test_a_name_that_is_not_there_is_an_attribute_error_with_a_suggestion():
    assert not hasattr(wds, "WebDatasets")
    assert not hasattr(wds, "__wrapped__")
    assert not hasattr(wds, "no such.name")
    with pytest.raises(AttributeError, match="WebDatasat") as caught:
        _ = wds.WebDatasat
    assert (caught.value.name, caught.value.obj) == ("WebDatasat", wds)  # from which Python makes its suggestion
    with pytest.raises(ImportError, match="Nothing"):
        from webdataset import Nothing  # noqa: F401


def test_a_package_that_a_submodule_misses_is_an_import_error():
    program = """
import sys
from pathlib import Path
sys.modules["subprocess"] = None
import webdataset as wds
try:
    wds.gopen
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run(program) == "subprocess\n"


def test_threads_that_ask_for_names_at_once_all_get_them():
    program = """
import threading, webdataset as wds
found, start = [], threading.Barrier(8)
def ask(names):
    start.wait()
    found.append([getattr(wds, name) for name in names])
threads = [threading.Thread(target=ask, args=(wds.__all__[n:] + wds.__all__[:n],)) for n in range(0, 96, 12)]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
print(len(found), len({len(values) for values in found}))
"""
    assert run(program) == "8 1\n"


def test_modules_do_not_ask_the_package_for_names_while_they_are_imported():
    # they would hold the lock of a module and wait for that of the names, whose holder may wait for the module
    source = Path(wds.__file__).parent
    asking = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in source.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module == "webdataset"
    ]
    assert asking == []


def test_a_process_that_is_forked_while_a_name_is_imported_can_import_it_too():
    program = """
import importlib.machinery, os, sys, threading
import webdataset as wds
begun, go_on = threading.Event(), threading.Event()
class Slow(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        begun.set()
        go_on.wait()
        super().exec_module(module)
class Finder:
    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if name == "webdataset.writer":
            spec.loader = Slow(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder())
thread = threading.Thread(target=lambda: wds.ShardWriter)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    os._exit(wds.WebDataset.__name__ != "WebDataset")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go_on.set()
thread.join()
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert out.stdout == "0\n", out.stderr
