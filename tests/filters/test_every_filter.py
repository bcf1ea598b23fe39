"""What every filter promises, whatever it does."""

import copy
import multiprocessing
import operator
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset import filters
from webdataset.base.reports import Report
from webdataset.base.stages import Filter
from webdataset.errors import WebDatasetError
from webdataset.filters import Cached, DBCache, LMDBCached, detshuffle
from webdataset.handlers import ignore_and_continue, ignore_and_stop, reraise_exception, warn_and_continue


def dicts(n=6):
    return [{"__key__": f"k{i}", "__url__": "a.tar", "txt": f"{i}", "cls": str(i)} for i in range(n)]


def tuples(n=6):
    return [(f"{i}", i) for i in range(n)]


# filter -> (its stage with options, items to feed it)
CASES = {
    "associate": (filters.associate({"k1": {"new": 1}}), dicts()),
    "batched": (filters.batched(2), tuples()),
    "bucketed": (filters.bucketed("txt", [5], batchsize=2), dicts()),
    "decode": (filters.decode(), [{"__key__": "a", "txt": b"x", "cls": b"1"}] * 3),
    "extract_keys": (filters.extract_keys("*.txt", "cls"), dicts()),
    "info": (filters.info(n=0), dicts()),
    "listed": (filters.listed(2), tuples()),
    "log_keys": (filters.log_keys(), dicts()),
    "map": (filters.map(operator.itemgetter("txt")), dicts()),
    "map_dict": (filters.map_dict(txt=int), dicts()),
    "map_tuple": (filters.map_tuple(int, None), tuples()),
    "pipe": (filters.pipe(filters.map(str)), tuples()),
    "rename": (filters.rename(label="cls"), dicts()),
    "rename_keys": (filters.rename_keys(label="cls", keep_unselected=True), dicts()),
    "rsample": (filters.rsample(0.5, seed=4), dicts()),
    "seeded": (filters.seeded(3), dicts()),
    "select": (filters.select(operator.itemgetter("txt")), dicts()),
    "shuffle": (filters.shuffle(3, initial=2, seed=1), dicts()),
    "slice": (filters.slice(1, 4), dicts()),
    "then": (filters.then(filters.map(str)), tuples()),
    "to_tuple": (filters.to_tuple("txt", "png;cls"), dicts()),
    "unbatched": (filters.unbatched(), [(["a", "b"], [1, 2]), (["c"], [3])]),
    "unlisted": (filters.unlisted(), [["a", "b"], ["c"]]),
    "xdecode": (filters.xdecode(), [{"__key__": "a", "txt": b"x", "a.bin": b"1"}] * 3),
}
every_filter = pytest.mark.parametrize(("stage", "items"), CASES.values(), ids=CASES)


def text(items):
    return [repr(item) for item in items]


def test_no_filter_is_left_out_here():
    assert {name for name, value in vars(filters).items() if isinstance(value, Filter)} == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_underscore_name_is_the_plain_function(name):
    function = getattr(filters, f"_{name}")
    assert function is getattr(filters, name).function
    assert pickle.loads(pickle.dumps(function)) is function


@every_filter
def test_it_pickles_and_works_afterwards(stage, items):
    again = pickle.loads(pickle.dumps(stage))
    assert repr(again) == repr(stage)
    assert text(again(iter(items))) == text(stage(iter(items)))


def test_all_of_them_work_in_a_spawned_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for stage, items in CASES.values():
            assert text(pool.apply(filters.pipeline, (items, stage, list))) == text(stage(items))


@every_filter
def test_it_takes_empty_input(stage, items):
    assert list(stage([])) == []


@every_filter
def test_it_takes_a_list_as_well_as_an_iterator(stage, items):
    assert text(stage(items)) == text(stage(iter(items)))


class Source:
    """An iterator that knows whether it was closed; it does not end by itself."""

    def __init__(self, items):
        self.items = items
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        if self.closed:
            raise StopIteration
        self.items = [*self.items[1:], self.items[0]]
        return self.items[-1]

    def close(self):
        self.closed = True


@every_filter
def test_it_closes_its_source_when_the_consumer_stops_early(stage, items):
    source = Source(items)
    results = iter(stage(source))
    next(results)
    results.close()
    assert source.closed


@pytest.mark.parametrize("make", [Cached, detshuffle], ids=["Cached", "detshuffle"])
def test_a_stage_object_closes_its_source_too(make):
    source = Source([1, 2])
    results = make().run(source)
    next(results)
    results.close()
    assert source.closed


def test_a_cache_on_disk_closes_its_source_too(tmp_path):
    for stage in (LMDBCached(tmp_path / "l", map_size=1e8), DBCache(tmp_path / "d", 10**6)):
        source = Source([1, 2])
        results = stage.run(source)
        next(results)
        results.close()
        assert source.closed


@every_filter
def test_it_leaves_its_input_as_it_was(stage, items):
    before = copy.deepcopy(items)
    list(stage(items))
    assert items == before


@every_filter
def test_an_error_of_the_source_passes_through(stage, items):
    def source():
        yield items[0]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        list(stage(source()))


def failing(value):
    if value == "bad":
        raise ZeroDivisionError("the function failed")
    return value


def failing_key(key):
    failing(key)
    return {}


def failing_sample(sample):
    return failing(sample["txt"])


def failing_field(name, data):
    return failing(data.decode())


def failing_stream(stream):
    return failing(stream.read().decode())


def failing_batch(samples):
    return [failing(sample["txt"]) for sample in samples]


# filters that call a function of the user, or have errors of their own: item "bad" fails
HANDLED = {
    "associate": (filters.associate, (failing_key,), {}),
    "batched": (filters.batched, (1, failing_batch), {}),
    "decode": (filters.decode, (failing_field,), {}),
    "extract_keys": (filters.extract_keys, ("good",), {}),
    "map": (filters.map, (failing_sample,), {}),
    "map_dict": (filters.map_dict, (), {"txt": failing}),
    "rename": (filters.rename, (), {"better": "good"}),
    "rename_keys": (filters.rename_keys, (), {"better": "good"}),
    "select": (filters.select, (failing_sample,), {}),
    "to_tuple": (filters.to_tuple, ("good",), {}),
    "xdecode": (filters.xdecode, (("*.txt", failing_stream), ("good", False)), {}),
}
every_handled = pytest.mark.parametrize("name", HANDLED)


def samples_with_bad(flags):
    return [
        {"__key__": "bad", "__url__": "a.tar", "txt": "bad"}
        if bad
        else {"__key__": f"k{i}", "__url__": "a.tar", "txt": f"{i}", "good": f"{i}"}
        for i, bad in enumerate(flags)
    ]


def delivered(name, flags, handler):
    filter, args, kw = HANDLED[name]
    samples = samples_with_bad(flags)
    if name in ("decode", "xdecode"):
        samples = [
            {field: text if field.startswith("__") else text.encode() for field, text in sample.items()}
            for sample in samples
        ]
    got = []
    try:
        for item in filter(*args, **kw, handler=handler)(samples):
            got.append(repr(item))  # noqa: PERF401 - what came before the error counts
    except (ZeroDivisionError, WebDatasetError) as exn:
        return got, exn
    return got, None


@every_handled
def test_reraise_stops_with_the_error_of_its_own_type_and_the_place(name):
    got, exn = delivered(name, [False, True, False], reraise_exception)
    assert len(got) == 1
    told = str(exn) + "".join(getattr(exn, "__notes__", []))
    if isinstance(exn, ZeroDivisionError) and name == "batched":
        return
    assert "bad" in told
    assert "a.tar" in told


@every_handled
def test_continue_skips_and_stop_ends(name):
    assert [
        len(delivered(name, [False, True, False, True, False], h)[0]) for h in (ignore_and_stop, ignore_and_continue)
    ] == [1, 3]


@every_handled
@given(flags=st.lists(st.booleans(), max_size=8))
def test_handlers_nest_in_what_they_deliver(name, flags):
    raised, _ = delivered(name, flags, reraise_exception)
    stopped, _ = delivered(name, flags, ignore_and_stop)
    continued, _ = delivered(name, flags, ignore_and_continue)
    assert raised == stopped == continued[: len(stopped)]
    assert len(continued) == flags.count(False)


@every_handled
def test_what_is_skipped_is_counted_with_its_reason(name):
    report = Report(strict=False)
    with report.in_force():
        delivered(name, [False, True, True], ignore_and_continue)
    assert report.as_dict()["samples_dropped"] == 2
    assert sum(report.as_dict()["reasons"].values()) == 2


@every_handled
def test_strict_mode_has_no_skips(name):
    report = Report(strict=True)
    with report.in_force():
        assert delivered(name, [True], ignore_and_continue)[1] is not None


def test_a_handler_that_raises_is_heard():
    def refusing(exn):
        raise RuntimeError("no") from exn

    with pytest.raises(RuntimeError, match="no"):
        list(filters.map(int, handler=refusing)(["x"]))


def test_a_warning_handler_warns():
    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        assert list(filters.map(failing, handler=warn_and_continue)(["bad", "good"])) == ["good"]


def test_the_filters_import_neither_numpy_nor_torch():
    code = "import sys, webdataset.filters; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
