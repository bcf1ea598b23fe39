"""From opened shards to samples."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import tarfile
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from tests_support import numbered, tar_bytes
from webdataset import tariterators
from webdataset.base.reports import Report
from webdataset.errors import CommandError, SampleError, ShardError, ShardWarning
from webdataset.tariterators import (
    base_plus_ext,
    group_by_keys,
    tar_file_expander,
    tar_file_iterator,
    tarfile_samples,
    tarfile_to_samples,
    url_opener,
    valid_sample,
)

ENTRY = 1024  # bytes of a member with up to 512 bytes of content, and its header


def read(*urls, **kw):
    return list(tarfile_samples([{"url": url} for url in urls], **kw))


def fields(sample):
    return {name: value for name, value in sample.items() if not name.startswith("__")}


def keys(samples):
    return [sample["__key__"] for sample in samples]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b.c.d", ("a/b", "c.d")),
        ("d.x/f.jpg", ("d.x/f", "jpg")),
        ("./a.jpg", ("./a", "jpg")),
        ("/abs/a.txt", ("/abs/a", "txt")),
        ("a..b", ("a", ".b")),
        ("a/.x", ("a/", "x")),
        ("a/b.", ("a/b", "")),
        ("A.JPG", ("A", "JPG")),
        ("x", (None, None)),
        ("a/b/c", (None, None)),
        ("a.b/c", (None, None)),
        (".hidden", (None, None)),
        (".a.b", (None, None)),
        ("", (None, None)),
    ],
)
def test_a_name_is_split_at_the_first_dot_of_its_last_component(name, expected):
    assert base_plus_ext(name) == expected


def test_a_sample_is_a_dict_of_its_files_with_key_url_and_path(make_shard):
    shard = make_shard(samples=1)
    assert read(shard) == [
        {"__key__": "000000", "__url__": shard, "__local_path__": shard, "cls": b"0", "txt": b"txt0"}
    ]


def test_extensions_are_lower_cased_and_keys_are_not(make_shard):
    shard = make_shard(files=[("A.JPG", b"1"), ("A.Seg.PNG", b"2")])
    assert [(s["__key__"], fields(s)) for s in read(shard)] == [("A", {"jpg": b"1", "seg.png": b"2"})]


def test_equal_keys_in_neighbouring_shards_are_not_merged(make_shard):
    first = make_shard("a.tar", files=[("x.a", b"1")])
    second = make_shard("b.tar", files=[("x.b", b"2")])
    assert [fields(s) for s in read(first, second)] == [{"a": b"1"}, {"b": b"2"}]


def test_a_shard_read_twice_in_a_row_gives_its_samples_twice(make_shard):
    shard = make_shard(files=[("x.a", b"1")])
    assert [fields(s) for s in read(shard, shard)] == [{"a": b"1"}, {"a": b"1"}]


@pytest.mark.parametrize("name", ["__meta__/x.txt", "__x__"])
def test_members_of_metadata_folders_are_skipped(make_shard, name):
    shard = make_shard(files=[(name, b"?"), ("a.cls", b"1")])
    assert keys(read(shard)) == ["a"]


def test_names_that_only_look_like_metadata_are_kept(make_shard):
    shard = make_shard(files=[("__meta__.json", b"1"), ("__z.txt", b"2"), ("d/__y__/a.txt", b"3")])
    assert keys(read(shard)) == ["__meta__", "__z", "d/__y__/a"]


def test_files_are_renamed_first_and_then_selected(make_shard):
    shard = make_shard(files=[("a.old", b"1"), ("a.txt", b"2"), ("b.old", b"3")])
    renamed = read(
        shard, rename_files=lambda name: name.replace("old", "new"), select_files=lambda name: name.endswith("new")
    )
    assert [fields(s) for s in renamed] == [{"new": b"1"}, {"new": b"3"}]


def test_a_field_that_comes_twice_is_an_error_that_names_its_place(make_shard):
    shard = make_shard(files=[("a.cls", b"1"), ("a.cls", b"2")])
    with pytest.raises(SampleError, match="'cls'") as raised:
        read(shard)
    error = raised.value
    assert (error.url, error.shard, error.offset, error.member, error.key) == (shard, 0, 1024, "a.cls", "a")


def test_a_field_that_comes_twice_keeps_the_first_copy_when_the_handler_goes_on(make_shard):
    shard = make_shard(files=[("a.cls", b"1"), ("a.cls", b"2"), ("b.cls", b"3")])
    assert [fields(s) for s in read(shard, handler=wds.ignore_and_continue)] == [{"cls": b"1"}, {"cls": b"3"}]


def test_a_field_that_comes_twice_ends_the_stream_after_its_sample_when_the_handler_stops(make_shard):
    shard = make_shard(files=[("a.cls", b"1"), ("a.cls", b"2"), ("b.cls", b"3")])
    assert [fields(s) for s in read(shard, handler=wds.ignore_and_stop)] == [{"cls": b"1"}]


def test_members_that_are_not_adjacent_give_one_warning_a_shard(make_shard):
    shard = make_shard(files=[("0.a", b""), ("1.a", b""), ("0.b", b""), ("1.b", b"")])
    with pytest.warns(ShardWarning, match="adjacent") as caught:
        assert len(read(shard)) == 4
    assert len(caught) == 1


def test_members_that_are_not_adjacent_are_an_error_in_strict_mode(make_shard):
    shard = make_shard(files=[("0.a", b""), ("1.a", b""), ("0.b", b""), ("1.b", b"")])
    with Report(strict=True).in_force(), pytest.raises(ShardError, match="adjacent") as raised:
        read(shard)
    assert raised.value.key == "0"


def test_the_same_sample_again_later_in_a_shard_is_no_cause_for_a_warning(make_shard):
    shard = make_shard(files=[("0.a", b"x"), ("1.a", b"y"), ("0.a", b"x")])
    assert keys(read(shard)) == ["0", "1", "0"]


@pytest.mark.parametrize("name", ["a.__url__", "a.__bad__", "a.__key__", "a.__LOCAL_PATH__"])
def test_members_cannot_take_the_place_of_a_samples_own_entries(make_shard, name):
    shard = make_shard(files=[("a.txt", b"1"), (name, b"evil")])
    with pytest.warns(ShardWarning, match="reserved"):
        (sample,) = read(shard)
    assert sample == {"__key__": "a", "__url__": shard, "__local_path__": shard, "txt": b"1"}


def test_names_without_an_extension_are_left_out_and_counted(make_shard):
    report = Report()
    with report.in_force():
        assert keys(read(make_shard(files=[("README", b"?"), ("a.cls", b"1")]))) == ["a"]
    assert report.counts["members_dropped"] == 1


def test_a_name_without_an_extension_does_not_join_the_sample_before_it(make_shard):
    shard = make_shard(files=[("a.cls", b"1"), ("a", b"?"), ("a.", b"2"), ("a.txt", b"3")])
    assert [fields(s) for s in read(shard)] == [{"cls": b"1", "": b"2", "txt": b"3"}]


def test_a_name_of_ten_thousand_characters_is_a_name(tmp_path):
    path = tmp_path / "long.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("x" * 10_000 + ".cls"), io.BytesIO())
    assert keys(read(str(path))) == ["x" * 10_000]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("cut", [ENTRY * 3 + 100, ENTRY * 3 + 512 + 1])
def test_a_cut_shard_gives_its_whole_samples_and_never_half_of_one(make_shard, monkeypatch, cut, fused):
    if not fused:
        monkeypatch.setattr(tariterators, "tar_file_expander", lambda *args, **kw: tar_file_expander(*args, **kw))
    shard = make_shard(samples=5)
    whole = make_shard("b.tar", samples=1)
    with open(shard, "r+b") as file:
        file.truncate(cut)
    errors = []
    samples = read(shard, whole, handler=lambda exn: errors.append(exn) or True)
    assert [(s["__key__"], fields(s)) for s in samples] == [
        ("000000", {"cls": b"0", "txt": b"txt0"}),
        ("000000", {"cls": b"0", "txt": b"txt0"}),
    ]
    assert [(type(error), error.url, error.offset) for error in errors] == [(ShardError, shard, ENTRY * 3)]


def test_a_cut_between_members_delivers_what_is_there_with_one_warning(make_shard):
    shard = make_shard(samples=5)
    with open(shard, "r+b") as file:
        file.truncate(ENTRY * 4)
    with pytest.warns(ShardWarning, match="4096"):
        assert len(read(shard)) == 2


def test_garbage_over_a_header_is_an_error_that_old_handlers_catch(make_shard):
    shard = make_shard(samples=5)
    with open(shard, "r+b") as file:
        file.seek(ENTRY * 4)
        file.write(b"garbage!" * 64)
    with pytest.raises(tarfile.ReadError) as raised:
        read(shard)
    assert raised.value.offset == 4096


def test_a_command_that_fails_after_writing_everything_is_an_error(make_shard):
    shard = make_shard(samples=2)
    with pytest.raises(CommandError) as raised:
        read(f"pipe:cat {shard}; exit 3")
    assert raised.value.status == 3


def test_a_missing_shard_is_skipped_and_counted_when_the_handler_goes_on(make_shard, tmp_path):
    report = Report()
    with report.in_force():
        assert len(read(str(tmp_path / "no.tar"), make_shard(samples=2), handler=wds.ignore_and_continue)) == 2
    assert (report.counts["shards_skipped"], report.counts["shards_read"]) == (1, 1)


def test_a_consumer_that_stops_early_closes_the_shard(make_shard):
    streams = []

    def opener(data, handler):
        for item in url_opener(data, handler):
            streams.append(item["stream"])
            yield item

    samples = tarfile_samples([{"url": make_shard(samples=5)}], opener=opener)
    next(samples)
    samples.close()
    assert streams[0].closed


def test_programs_may_replace_the_opener(monkeypatch):
    content = tar_bytes(numbered(2))
    monkeypatch.setattr(
        tariterators,
        "url_opener",
        lambda data, handler, **kw: ({**item, "stream": io.BytesIO(content)} for item in data),
    )
    assert keys(tarfile_to_samples()([{"url": "memory"}])) == ["000000", "000001"]


def test_programs_may_replace_the_grouping(make_shard, monkeypatch):
    monkeypatch.setattr(
        tariterators, "group_by_keys", lambda files, keys=None, handler=None: ((f["fname"], f["data"]) for f in files)
    )
    assert read(make_shard(samples=1)) == [("000000.cls", b"0"), ("000000.txt", b"txt0")]


def test_the_expander_gives_only_items_that_are_files(make_shard):
    files = list(tar_file_expander(url_opener([{"url": make_shard(samples=1)}, {"url": make_shard("b.tar", 1)}])))
    assert [f["fname"] for f in files] == ["000000.cls", "000000.txt"] * 2
    assert all({"data", "__url__"} <= set(f) for f in files)


def test_a_marker_between_shards_is_understood_by_the_grouping(make_shard):
    streams = url_opener(
        [{"url": make_shard(files=[("x.a", b"")])}, {"url": make_shard("b.tar", files=[("x.b", b"")])}]
    )
    assert [fields(s) for s in group_by_keys(tar_file_expander(streams, eof_value={}))] == [{"a": b""}, {"b": b""}]


def test_grouping_keeps_only_the_wanted_suffixes():
    files = [{"fname": "a.jpg", "data": b"1"}, {"fname": "a.cls", "data": b"2"}]
    assert list(group_by_keys(files, suffixes={"cls"})) == [{"__key__": "a", "cls": b"2"}]


def test_grouping_takes_another_rule_for_names():
    files = [{"fname": "Track 2.0 (Clean).mp3", "data": b"1"}]
    rule = lambda name: tuple(name.rsplit(".", 1))  # noqa: E731
    assert list(group_by_keys(files, keys=rule)) == [{"__key__": "Track 2.0 (Clean)", "mp3": b"1"}]
    whole = list(group_by_keys(files, keys=lambda name: (name, "data")))
    assert whole == [{"__key__": "Track 2.0 (Clean).mp3", "data": b"1"}]


def test_the_iterator_reads_any_binary_stream(make_shard):
    with open(make_shard(samples=1), "rb") as stream:
        assert [(f["fname"], f["data"]) for f in tar_file_iterator(stream)] == [
            ("000000.cls", b"0"),
            ("000000.txt", b"txt0"),
        ]


def test_a_bad_sample_is_not_valid():
    assert not valid_sample({"__key__": "a", "__bad__": True})
    assert not valid_sample(None)
    assert valid_sample({"__key__": "a"})


def test_the_stage_pickles_with_its_handler(make_shard):
    stage = pickle.loads(pickle.dumps(tarfile_to_samples(handler=wds.ignore_and_continue)))
    assert keys(stage([{"url": "none.tar"}, {"url": make_shard(samples=1)}])) == ["000000"]


def test_no_file_is_left_to_the_garbage_collector(make_shard):
    program = "import sys, webdataset as wds\nfor _ in range(3): next(iter(wds.WebDataset(sys.argv[1])))"
    subprocess.run([sys.executable, "-W", "error::ResourceWarning", "-c", program, make_shard()], check=True)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c/d", "e.f/g"]), st.sampled_from(["jpg", "cls", "seg.png"])), max_size=30
    )
)
def test_fused_and_separate_reading_agree(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("agree") / "a.tar"
    path.write_bytes(tar_bytes((f"{key}.{ext}", f"{i}".encode()) for i, (key, ext) in enumerate(names)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fused = read(str(path), handler=wds.ignore_and_continue)
        streams = url_opener([{"url": str(path)}])
        apart = list(group_by_keys(tar_file_expander(streams), handler=wds.ignore_and_continue))
    assert fused == apart


def test_a_shard_that_begins_with_a_name_without_a_key_gives_no_sample_for_it(make_shard):
    shard = make_shard(files=[(".txt", b"hidden"), (".cls", b"1"), ("a.txt", b"x")])
    assert [sample["__key__"] for sample in wds.WebDataset(shard, shardshuffle=False)] == ["a"]
