"""What any AIStore cluster must give: run against the one of AIS_ENDPOINT, else against the double."""

from __future__ import annotations

import os

import pytest

import webdataset as wds
from tests_support import numbered, tar_bytes
from webdataset.errors import MissingShardError, StorageError
from webdataset.shardlists import expand_urls
from webdataset.storage.ais.objects import AisObject, object_name, open_ais
from webdataset.storage.stores.lookup import matching

DATA = os.urandom(300_000)
NAMES = [
    "a.tar",
    "sub/dir/a.tar",
    "a b.tar",
    "100%.tar",
    "%41.tar",
    "what?.tar",
    "ä-日本.tar",
    "a+b&c=d#e;f.tar",
    "~x.tar",
]


@pytest.mark.parametrize(
    ("url", "bucket", "key", "provider"),
    [
        ("ais://b/a.tar", "b", "a.tar", "ais"),
        ("s3://b/x/a.tar", "b", "x/a.tar", "aws"),
        ("gs://b/a?b.tar", "b", "a?b.tar", "gcp"),
        ("ais://b/a.tar?archpath=x%2F1.jpg", "b", "a.tar", "ais"),
        ("ais://@uuid#ns/b/a.tar", "b", "a.tar", "ais"),
        ("ais://b/a.tar?provider=aws", "b", "a.tar", "aws"),
    ],
)
def test_a_url_names_bucket_and_object(url, bucket, key, provider):
    name = object_name(url)
    assert (name.bucket, name.key, name.provider) == (bucket, key, provider)


@pytest.mark.parametrize("url", ["ais:", "ais://", "ais:///a", "hf://b/a"])
def test_a_url_without_a_bucket_is_an_error(url):
    with pytest.raises(StorageError):
        object_name(url)


def test_without_a_cluster_the_error_says_how_to_name_one(monkeypatch):
    monkeypatch.delenv("AIS_ENDPOINT", raising=False)
    monkeypatch.setenv("PATH", "")  # nor with the ais command
    for read in (lambda url, **options: AisObject(url, **options).stream(), open_ais):
        with pytest.raises(StorageError, match="AIS_ENDPOINT"):
            read("ais://b/a.tar")


# -- reading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_an_object_of_any_name_arrives_whole(ais_bucket, name):
    url = ais_bucket.put(name, DATA)
    with wds.gopen(url) as stream:
        assert stream.read() == DATA
        assert stream.read() == b""
    assert AisObject(url).size() == len(DATA)


def test_reads_of_any_size_give_the_same_bytes(ais_bucket):
    url = ais_bucket.put("a", DATA[:5000])
    for size in (7, 4096, 5000, 9000):
        with open_ais(url) as stream:
            parts = list(iter(lambda: stream.read(size), b""))  # noqa: B023
        assert b"".join(parts) == DATA[:5000]
        assert all(len(part) == size for part in parts[:-1])


def test_an_empty_object_is_empty(ais_bucket):
    url = ais_bucket.put("a", b"")
    with open_ais(url) as stream:
        assert stream.read() == b""
    assert AisObject(url).size() == 0
    assert AisObject(url).head().length == 0


def test_a_part_of_an_object_can_be_read(ais_bucket):
    with open_ais(ais_bucket.put("a", DATA)) as stream, stream.source.part(1000, 2000) as part:
        assert part.read() == DATA[1000:2000]


def test_a_large_object_can_come_over_several_connections(ais_bucket):
    data = os.urandom(20_000_000)
    with open_ais(ais_bucket.put("a", data), connections=3) as stream:
        assert stream.read() == data


def test_an_object_that_does_not_exist_is_missing(ais_bucket):
    for ask in (open_ais, lambda url: AisObject(url).size()):
        with pytest.raises(MissingShardError) as caught:
            ask(ais_bucket.url("none.tar"))
        assert (caught.value.url, caught.value.status) == (ais_bucket.url("none.tar"), 404)
        assert "name" in caught.value.hint


def test_a_bucket_that_does_not_exist_is_missing(ais_bucket):
    with pytest.raises(MissingShardError, match="404"):
        open_ais("ais://no-such-bucket-here/a.tar")
    with pytest.raises(MissingShardError, match="404"):
        list(AisObject("ais://no-such-bucket-here/").list())


def test_the_s3_path_reads_the_same_bytes(ais_bucket):
    with open_ais(ais_bucket.put("x/a b.tar", DATA), api="s3") as stream:
        assert stream.read() == DATA


def test_a_dataset_is_read_from_the_cluster(ais_bucket):
    for number in range(3):
        ais_bucket.put(f"a-{number}.tar", tar_bytes(numbered(5, 5 * number)))
    samples = list(wds.WebDataset(ais_bucket.url("a-{0..2}.tar"), shardshuffle=False))
    assert len(samples) == 15
    assert samples[0]["__url__"] == ais_bucket.url("a-0.tar")


# -- members -------------------------------------------------------------------------------------------


def test_one_member_of_a_shard_is_read_alone(ais_bucket):
    url = ais_bucket.put("a.tar", tar_bytes([("x/1.txt", b"one"), ("2.txt", b"two")]))
    with open_ais(url, archpath="x/1.txt") as stream:
        assert stream.read() == b"one"
    with wds.gopen(f"{url}?archpath=2.txt") as stream:
        assert stream.read() == b"two"


def test_a_member_that_is_not_there_is_missing(ais_bucket):
    url = ais_bucket.put("a.tar", tar_bytes([("1.txt", b"one")]))
    with pytest.raises(MissingShardError):
        open_ais(url, archpath="2.txt")


def test_a_url_with_a_member_is_no_pattern():
    assert expand_urls("ais://b/a.tar?archpath=1.txt") == ["ais://b/a.tar?archpath=1.txt"]


# -- lists ---------------------------------------------------------------------------------------------


def test_a_list_has_names_and_sizes_page_after_page(ais_bucket):
    for number in range(7):
        ais_bucket.put(f"train/{number}.tar", bytes(number))
    ais_bucket.put("val.tar", b"x")
    found = list(AisObject(ais_bucket.url("train/")).list(pagesize=2))
    assert sorted(found) == [(ais_bucket.url(f"train/{number}.tar"), number) for number in range(7)]
    assert len(list(AisObject(ais_bucket.url("")).list())) == 8


def test_an_empty_list_is_empty(ais_bucket):
    assert list(AisObject(ais_bucket.url("none")).list()) == []


def test_a_pattern_stands_for_the_objects_it_matches(ais_bucket):
    for name in ("a-1.tar", "a-2.tar", "b-1.tar", "a-1.idx"):
        ais_bucket.put(name, b"x")
    assert matching(ais_bucket.url("a-*.tar")) == [ais_bucket.url("a-1.tar"), ais_bucket.url("a-2.tar")]
    assert expand_urls(ais_bucket.url("a-[2-9].tar")) == [ais_bucket.url("a-2.tar")]


# -- writing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 300_000, 9_000_000])
def test_an_object_appears_when_it_is_complete(ais_bucket, size):
    data = os.urandom(size)
    sink = wds.gopen(ais_bucket.url("new/a b.tar"), "wb")
    sink.write(data)
    assert ais_bucket.get("new/a b.tar") is None
    sink.close()
    assert ais_bucket.get("new/a b.tar") == data


def test_an_aborted_object_leaves_nothing(ais_bucket):
    sink = AisObject(ais_bucket.url("a.tar")).upload()
    sink.write(DATA)
    sink.abort()
    assert ais_bucket.get("a.tar") is None


def test_an_error_in_the_block_keeps_the_old_object(ais_bucket):
    url = ais_bucket.put("a.tar", b"old")
    with pytest.raises(TypeError), AisObject(url).upload() as sink:
        sink.write("text instead of bytes")
    assert ais_bucket.get("a.tar") == b"old"


def test_a_shard_is_written_and_read_back(ais_bucket):
    url = ais_bucket.url("a.tar")
    with wds.TarWriter(url) as sink:
        for number in range(20):
            sink.write({"__key__": f"{number:04d}", "txt": f"text {number}"})
    samples = list(wds.WebDataset(url, shardshuffle=False).decode())
    assert [sample["txt"] for sample in samples] == [f"text {number}" for number in range(20)]


def test_an_object_can_be_removed(ais_bucket):
    url = ais_bucket.put("a.tar", b"x")
    AisObject(url).delete()
    assert ais_bucket.get("a.tar") is None
    AisObject(url).delete()


def test_shards_of_an_earlier_set_are_removed(ais_bucket):
    for number, shards in ((3, 3), (1, 1)):
        with wds.ShardWriter(ais_bucket.url("a-%d.tar"), maxcount=1, verbose=0, overwrite=number == 1) as sink:
            for i in range(shards):
                sink.write({"__key__": str(i), "cls": i})
    assert ais_bucket.get("a-0.tar") is not None
    assert ais_bucket.get("a-1.tar") is ais_bucket.get("a-2.tar") is None


def test_writing_to_a_bucket_that_does_not_exist_is_an_error(ais_bucket):
    sink = AisObject("ais://no-such-bucket-here/a.tar").upload()
    sink.write(b"x")
    with pytest.raises(StorageError):
        sink.close()
