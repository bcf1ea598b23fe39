"""What every object store does, on a real server or a double of it: one suite for all."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import re
import threading

import pytest

import webdataset as wds
from servers import ceph
from servers.faults import Cut, Fine, Reset, Stall
from tests_support import numbered, tar_bytes
from webdataset import cli
from webdataset.errors import ExistingShardsError, MissingShardError, ShardWarning, StorageError
from webdataset.gopen import gopen
from webdataset.shardlists import expand_urls
from webdataset.storage import removing
from webdataset.storage.stores import lookup, uploads
from webdataset.storage.stores.lookup import is_pattern, matching, stored_object

# one process of the tests has the cluster, which takes long to start
CEPH = pytest.param("ceph", marks=[pytest.mark.slow, pytest.mark.xdist_group("ceph")])
WRITABLE = ["moto", CEPH, "azurite", "gcs"]
ALL = [*WRITABLE, "hub"]
# letters that addresses, signatures and lists each treat in their own way
STRANGE = "a b/c+d%20e/ü~!$&'()=@,;:/x.tar"


def started(request, nobody, monkeypatch):
    server = request.getfixturevalue(f"{request.param}_server")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(params=ALL)
def server(request, nobody, monkeypatch):
    return started(request, nobody, monkeypatch)


@pytest.fixture(params=WRITABLE)
def writable(request, nobody, monkeypatch):
    return started(request, nobody, monkeypatch)


@pytest.fixture(params=[CEPH, "azurite"])
def guarded(request, nobody, monkeypatch):
    """Those that check signatures; the others have tests of their own for tokens."""
    return started(request, nobody, monkeypatch)


@pytest.fixture
def breaking(monkeypatch, make_fault_proxy):
    """Put a way that breaks as told between us and the server."""

    def put_between(server, faults, **options):
        proxy = make_fault_proxy(server.data_port, faults, **options)
        for name, value in server.environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        return proxy

    return put_between


def read(url, **options):
    with gopen(url, **options) as stream:
        return stream.read()


def put(url, data):
    with gopen(url, "wb") as stream:
        stream.write(data)


def write_one_good_and_one_bad_sample(url):
    with wds.TarWriter(url) as sink:
        sink.write({"__key__": "a", "bin": bytes(2 * uploads.FIRST_PART_BYTES)})
        sink.write({"no": b"key"})


# -- reading ---------------------------------------------------------------------------------------


def test_an_object_is_read_whole(server):
    url = f"{server.bucket()}/train/a.tar"
    server.store(url, b"hello" * 100_000)
    assert read(url) == b"hello" * 100_000
    assert stored_object(url).size() == 500_000


def test_an_empty_object_is_empty(server):
    url = f"{server.bucket()}/empty"
    server.store(url, b"")
    assert read(url) == b""
    assert stored_object(url).size() == 0


def test_a_name_may_hold_any_letters(server):
    bucket = server.bucket()
    server.store(f"{bucket}/{STRANGE}", b"strange")
    assert read(f"{bucket}/{STRANGE}") == b"strange"
    assert list(stored_object(f"{bucket}/a b/").list()) == [(f"{bucket}/{STRANGE}", 7)]


def test_a_broken_connection_is_taken_up_where_it_broke(server, breaking):
    data = os.urandom(3_000_000)
    url = f"{server.bucket()}/a.tar"
    server.store(url, data)
    proxy = breaking(server, [Cut(1_000_000), Reset(500_000), Stall(1_200_000)])
    assert read(url, first_pause=0.01, read_timeout=1.0) == data
    assert proxy.connections == 4


def test_a_store_that_is_down_is_waited_for(server, breaking, patient):
    url = f"{server.bucket()}/a.tar"
    server.store(url, b"hello" * 1000)
    proxy = breaking(server, [])
    for ask in (lambda: read(url) == b"hello" * 1000, lambda: stored_object(url).size() == 5000):
        proxy.down()
        patient.began.clear()
        patient.then(proxy.up)
        assert ask()
    assert len(patient.begun) == len(patient.over) == 2
    assert url in patient.begun[0]


def test_a_list_of_a_store_that_is_down_is_waited_for(writable, breaking, patient):
    bucket = writable.bucket()
    put(f"{bucket}/a.tar", b"hello")
    proxy = breaking(writable, [])
    proxy.down()
    patient.then(proxy.up)
    assert expand_urls(f"{bucket}/*.tar") == [f"{bucket}/a.tar"]


def test_a_large_object_is_read_over_several_connections(server, breaking):
    data = os.urandom(20 << 20)
    url = f"{server.bucket()}/a.tar"
    server.store(url, data)
    proxy = breaking(server, [Fine(), Cut(1_000_000)], delay=0.01)
    assert read(url, first_pause=0.01, connections=3) == data
    assert proxy.connections >= 3


def test_an_object_that_changes_under_a_broken_connection_is_an_error(server, breaking):
    url = f"{server.bucket()}/a.tar"
    server.store(url, os.urandom(3_000_000))
    breaking(server, [Cut(1_000_000)])
    with gopen(url, first_pause=0.01) as stream:
        start = stream.read(1000)
        server.store(url, os.urandom(3_000_000))
        with pytest.raises(StorageError) as caught:
            stream.read()
    assert len(start) == 1000
    assert caught.value.url == url


def test_a_dataset_is_read_from_a_store(server):
    bucket = server.bucket()
    for i in range(3):
        server.store(f"{bucket}/train-{i}.tar", tar_bytes(numbered(10, start=10 * i)))
    server.store(f"{bucket}/other.tar", tar_bytes(numbered(10, start=90)))
    keys = [sample["__key__"] for sample in wds.WebDataset(f"{bucket}/train-*.tar", shardshuffle=False)]
    assert keys == [f"{i:06d}" for i in range(30)]


def _keys_in_process(url, queue):
    queue.put([sample["__key__"] for sample in wds.WebDataset(url, shardshuffle=False)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_reads_after_its_parent_has_read(server, method):
    url = f"{server.bucket()}/a.tar"
    server.store(url, tar_bytes(numbered(5)))
    assert len(matching(url.replace("a.tar", "*.tar"))) == 1
    assert len(read(url)) > 0
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=_keys_in_process, args=(url, queue))
    child.start()
    assert queue.get() == [f"{i:06d}" for i in range(5)]
    child.join()


def test_threads_share_a_store(server):
    bucket = server.bucket()
    for i in range(8):
        server.store(f"{bucket}/{i}", bytes([i]) * 100_000)
    found = {}

    def one(i):
        found[i] = read(f"{bucket}/{i}")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: bytes([i]) * 100_000 for i in range(8)}


# -- lists and patterns ----------------------------------------------------------------------------


def test_a_list_has_all_pages(server, monkeypatch):
    for module in ("s3", "gcs", "azure"):
        monkeypatch.setattr(f"webdataset.storage.stores.{module}.LIST_PAGE", 2)
    server.page = 2
    bucket = server.bucket()
    for i in range(5):
        server.store(f"{bucket}/d/{i}.tar", b"x" * i)
    server.store(f"{bucket}/e.tar", b"")
    assert sorted(stored_object(f"{bucket}/d/").list()) == [(f"{bucket}/d/{i}.tar", i) for i in range(5)]
    assert len(list(stored_object(f"{bucket}/").list())) == 6


def test_patterns_expand_as_in_a_shell(server):
    bucket = server.bucket()
    names = ["a-0.tar", "a-1.tar", "b-0.tar", "a-x.txt", "sub/a-0.tar", "sub/deep/a-1.tar"]
    for name in names:
        server.store(f"{bucket}/{name}", b"x")
    assert expand_urls(f"{bucket}/*.tar") == [f"{bucket}/{name}" for name in ("a-0.tar", "a-1.tar", "b-0.tar")]
    assert expand_urls(f"{bucket}/a-?.tar") == [f"{bucket}/a-0.tar", f"{bucket}/a-1.tar"]
    assert expand_urls(f"{bucket}/[!a]-0.tar") == [f"{bucket}/b-0.tar"]
    assert expand_urls(f"{bucket}/**/a-1.tar") == [f"{bucket}/a-1.tar", f"{bucket}/sub/deep/a-1.tar"]
    assert expand_urls(f"{bucket}/{{b,a}}-*.tar") == [f"{bucket}/{name}" for name in ("b-0.tar", "a-0.tar", "a-1.tar")]
    assert expand_urls(f"{bucket}/sub/*::x.tar") == [f"{bucket}/sub/a-0.tar", "x.tar"]


def test_a_pattern_that_matches_nothing_is_an_error(server):
    bucket = server.bucket()
    server.store(f"{bucket}/a.tar", b"x")
    with pytest.raises(MissingShardError) as caught:
        wds.WebDataset(f"{bucket}/none-*.tar", shardshuffle=False)
    assert caught.value.url == f"{bucket}/none-*.tar"


def test_an_object_that_looks_like_a_pattern_stands_for_itself(server):
    bucket = server.bucket()
    server.store(f"{bucket}/a[1].tar", b"itself")
    server.store(f"{bucket}/a1.tar", b"other")
    assert expand_urls(f"{bucket}/a[1].tar") == [f"{bucket}/a[1].tar"]
    assert read(f"{bucket}/a[1].tar") == b"itself"


# -- errors ----------------------------------------------------------------------------------------


def test_a_missing_object_is_one_line_at_once(server, breaking):
    url = f"{server.bucket()}/none.tar"
    proxy = breaking(server, [])
    with pytest.raises(MissingShardError) as caught:
        read(url)
    assert (caught.value.url, caught.value.status, "name" in caught.value.hint) == (url, 404, True)
    with pytest.raises(MissingShardError):
        stored_object(url).size()
    assert proxy.requests <= 4  # what is tried again is asked for six times
    assert "\n" not in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).url == url


def test_a_missing_bucket_is_one_line_at_once(server, breaking):
    bucket = server.bucket()[:-1] + "none"
    proxy = breaking(server, [])
    for job in (lambda: read(f"{bucket}/a.tar"), lambda: expand_urls(f"{bucket}/*.tar")):
        with pytest.raises(StorageError, match=r"bucket|container|repository") as caught:
            job()
        assert caught.value.hint
    assert proxy.requests <= 4


def test_a_wrong_key_is_one_line_at_once_without_the_key(guarded, monkeypatch, make_fault_proxy):
    url = f"{guarded.bucket()}/a.tar"
    guarded.store(url, b"x")
    proxy = make_fault_proxy(guarded.port)
    for name, value in guarded.wrong_key(proxy.port).items():
        monkeypatch.setenv(name, value)
    for job in (lambda: read(url), lambda: put(url, b"y"), lambda: expand_urls(url + "*")):
        with pytest.raises(StorageError) as caught:
            job()
        assert (caught.value.status in (401, 403), "check" in caught.value.hint) == (True, True)
        assert not re.search(r"wrong\b(?! \()|d3Jvbmc|Signature=", str(caught.value).replace("key is wrong", ""))
    assert proxy.requests <= 6


# -- writing ---------------------------------------------------------------------------------------


def test_a_shard_written_to_a_store_is_read_from_it(writable):
    bucket = writable.bucket()
    done = []
    with wds.ShardWriter(f"{bucket}/out-%06d.tar", maxcount=3, post=done.append, verbose=0) as sink:
        for i in range(7):
            sink.write({"__key__": f"{i:04d}", "txt": f"text{i}", "cls": i})
    assert done == [f"{bucket}/out-{i:06d}.tar" for i in range(3)]
    samples = list(wds.WebDataset(f"{bucket}/out-*.tar", shardshuffle=False).decode())
    assert [(sample["__key__"], sample["txt"], sample["cls"]) for sample in samples] == [
        (f"{i:04d}", f"text{i}", i) for i in range(7)
    ]


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_an_object_in_parts_is_the_same_bytes(writable, extra):
    url = f"{writable.bucket()}/big"
    data = os.urandom(3 * uploads.FIRST_PART_BYTES + extra)
    with gopen(url, "wb") as stream:
        for start in range(0, len(data), 1_000_003):
            stream.write(memoryview(data)[start : start + 1_000_003])
    assert read(url) == data
    assert writable.unfinished(url.rpartition("/")[0]) == 0


def test_nothing_is_visible_before_the_end(writable):
    bucket = writable.bucket()
    stream = gopen(f"{bucket}/a.tar", "wb")
    stream.write(bytes(2 * uploads.FIRST_PART_BYTES + 1))
    assert list(stored_object(f"{bucket}/").list()) == []
    stream.close()
    assert [size for _, size in stored_object(f"{bucket}/").list()] == [2 * uploads.FIRST_PART_BYTES + 1]


def test_an_exception_leaves_no_object_no_part_and_the_old_one_as_it_was(writable):
    bucket = writable.bucket()
    put(f"{bucket}/old.tar", b"old")
    for name in ("old.tar", "new.tar"):
        with pytest.raises(ValueError, match="key"):
            write_one_good_and_one_bad_sample(f"{bucket}/{name}")
    assert list(stored_object(f"{bucket}/").list()) == [(f"{bucket}/old.tar", 3)]
    assert writable.unfinished(bucket) == 0


def test_a_writer_that_is_forgotten_leaves_nothing(writable):
    bucket = writable.bucket()
    sink = wds.TarWriter(f"{bucket}/a.tar")
    sink.write({"__key__": "a", "bin": bytes(2 * uploads.FIRST_PART_BYTES)})
    with pytest.warns(ShardWarning, match="closed"):
        del sink
    assert list(stored_object(f"{bucket}/").list()) == []
    assert writable.unfinished(bucket) == 0


def test_a_part_is_sent_again_after_a_broken_connection(writable, breaking, monkeypatch):
    url = f"{writable.bucket()}/a.tar"
    data = os.urandom(3 * uploads.FIRST_PART_BYTES + 5)
    # the answer to the first request comes through, those to the next two do not
    breaking(writable, [Fine(), Cut(1), Reset(1)])
    with gopen(url, "wb", first_pause=0.01) as stream:
        stream.write(data)
    for name, value in writable.environment().items():
        monkeypatch.setenv(name, value)
    assert read(url) == data
    assert writable.unfinished(url.rpartition("/")[0]) == 0


def test_shards_are_written_while_the_store_goes_down_and_comes_back(writable, breaking, patient, monkeypatch):
    bucket = writable.bucket()
    proxy = breaking(writable, [])
    with wds.ShardWriter(f"{bucket}/w-%06d.tar", maxcount=2, verbose=0) as sink:
        for number in range(4):
            # shards of two parts and a small one: in the middle, and before it is complete
            if number in (1, 3):
                proxy.down()
                patient.began.clear()
                patient.then(proxy.up)
            sink.write({"__key__": f"{number}", "bin": bytes([number]) * uploads.FIRST_PART_BYTES})
    for name, value in writable.environment().items():
        monkeypatch.setenv(name, value)
    shards = [f"{bucket}/w-{number:06d}.tar" for number in range(2)]
    assert [url for url, _ in stored_object(f"{bucket}/").list()] == shards
    samples = list(wds.WebDataset(shards, shardshuffle=False))
    assert [(sample["__key__"], sample["bin"][:1], len(set(sample["bin"]))) for sample in samples] == [
        (f"{number}", bytes([number]), 1) for number in range(4)
    ]
    assert writable.unfinished(bucket) == 0
    assert len(patient.begun) >= 2


def test_a_small_shard_is_written_when_the_store_comes_back(writable, breaking, patient, monkeypatch):
    url = f"{writable.bucket()}/small.tar"
    proxy = breaking(writable, [])
    proxy.down()
    patient.then(proxy.up)
    put(url, b"hello")
    assert read(url) == b"hello"


def test_giving_up_a_shard_does_not_wait_for_a_store_that_is_down(writable, breaking, patient, monkeypatch):
    monkeypatch.setenv("WDS_PATIENCE", "1000000")
    url = f"{writable.bucket()}/a.tar"
    proxy = breaking(writable, [])
    stream = gopen(url, "wb")
    stream.write(bytes(uploads.FIRST_PART_BYTES + 1))  # the first part is on its way, or there
    proxy.down()
    stream.write(bytes(uploads.FIRST_PART_BYTES + 1))
    assert patient.began.wait(60)
    stream.abort()
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"x")


def test_writing_to_a_missing_bucket_is_an_error_and_ends_at_once(writable):
    bucket = writable.bucket()[:-1] + "none"
    for size in (10, 2 * uploads.FIRST_PART_BYTES):
        with pytest.raises(MissingShardError) as caught:
            put(f"{bucket}/a.tar", bytes(size))
        assert (caught.value.url, caught.value.status) == (f"{bucket}/a.tar", 404)


# -- removing, and shards that are there already ---------------------------------------------------


def test_an_object_can_be_removed(server):
    bucket = server.bucket()
    for name in ("a.tar", f"{STRANGE}"):
        server.store(f"{bucket}/{name}", b"hello")
        stored_object(f"{bucket}/{name}").delete()
        with pytest.raises(MissingShardError):
            read(f"{bucket}/{name}")


def test_removing_what_is_not_there_is_no_error(server):
    removing.remove(f"{server.bucket()}/a.tar")


def write_shards(pattern, shards, **options):
    with wds.ShardWriter(pattern, maxcount=1, verbose=0, **options) as sink:
        for i in range(shards):
            sink.write({"__key__": str(i), "cls": shards})


def names_in(bucket):
    return [url.rpartition("/")[2] for url, _ in stored_object(f"{bucket}/").list()]


def test_shards_of_an_earlier_set_are_told_refused_or_removed(writable):
    bucket = writable.bucket()
    pattern = f"{bucket}/a-%d.tar"
    write_shards(pattern, 12)
    put(f"{bucket}/a-5.tar.wdx", b"index")
    put(f"{bucket}/a-x.tar", b"other")
    with pytest.raises(ExistingShardsError, match="12 shards"):
        write_shards(pattern, 1, overwrite=False)
    with pytest.warns(ShardWarning, match=r"10 shards.*/a-2\.tar.*/a-11\.tar"):
        write_shards(pattern, 2)
    write_shards(pattern, 3, overwrite=True)
    assert sorted(names_in(bucket)) == ["a-0.tar", "a-1.tar", "a-2.tar", "a-x.tar"]


def test_an_object_that_another_writer_replaced_is_not_removed(writable):
    pattern = f"{writable.bucket()}/a-%d.tar"
    write_shards(pattern, 3)
    with wds.ShardWriter(pattern, maxcount=1, verbose=0, overwrite=True) as sink:
        sink.write({"__key__": "a", "cls": 1})
        put(pattern % 1, b"of somebody else")
    assert read(pattern % 1) == b"of somebody else"


# -- without a server ------------------------------------------------------------------------------


def test_only_stores_have_patterns():
    assert is_pattern("s3://bucket/a*.tar")
    assert is_pattern("abfs://c@account.dfs.core.windows.net/a?.tar")
    assert not is_pattern("http://host/a*.tar")
    assert not is_pattern("s3://bucket[1]/a.tar")
    assert not is_pattern("pipe:cat *.tar")
    assert expand_urls("http://[::1]:80/a?x=*") == ["http://[::1]:80/a?x=*"]


def test_a_scheme_without_a_store_is_an_error():
    with pytest.raises(StorageError, match="store"):
        stored_object("http://host/a.tar")


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [("*.tar", "a.tar", True), ("*.tar", "d/a.tar", False), ("**.tar", "d/a.tar", True), ("[a-c]", "b", True),
     ("[!a-c]", "b", False), ("[!a]", "/", False), ("[]x]", "]", True), ("[z-a]", "m", False), ("[", "[", True),
     ("a.tar", "aXtar", False), ("[\\d]", "5", False), ("[[]", "[", True), ("[a&&b]", "&", True), ("?", "ü", True),
     ("**/x", "x", True), ("a/**/x", "a/b/c/x", True), ("[^a]", "^", True), ("*", "", True)],
)  # fmt: skip
def test_patterns_match_as_in_a_shell(pattern, name, matches):
    assert bool(lookup._regex(f"s3://b/{pattern}", 7).fullmatch(f"s3://b/{name}")) == matches


# -- folders ---------------------------------------------------------------------------------------


def test_a_folder_of_a_store_is_its_shards(server, capsys):
    folder = f"{server.bucket()}/folder/"
    for name in ("b.tar", "a.tar", "notes.txt", "deeper/c.tar"):
        server.store(folder + name, tar_bytes(numbered(2)))
    assert expand_urls(folder) == [f"{folder}a.tar", f"{folder}b.tar"]
    assert sum(1 for _ in wds.WebDataset(folder)) == 4
    assert len(wds.WebDataset(folder, exact=True)) == 4
    assert cli.main(["ls", folder]) == 0
    told = capsys.readouterr().out.split()
    assert told == [f"{folder}{name}" for name in ("a.tar", "b.tar", "deeper/c.tar", "notes.txt")]
    assert cli.main(["ls", "-l", "-c", "1", folder]) == 0
    assert re.fullmatch(rf" *5\.1 kB  {re.escape(folder)}a\.tar\n", capsys.readouterr().out)
    with pytest.raises(MissingShardError, match=r"folder|file"):
        wds.WebDataset(f"{server.bucket()}/none/")


@pytest.fixture(params=[*ALL, "ais"])
def folder(request, nobody, monkeypatch):
    """A folder of a store with two shards, and one in a folder of its own."""
    if request.param == "ais":
        bucket, store = request.getfixturevalue("ais_bucket").url("").rstrip("/"), put
    else:
        server = started(request, nobody, monkeypatch)
        bucket, store = server.bucket(), server.store
    for name in ("a.tar", "b.tar", "deeper/c.tar"):
        store(f"{bucket}/folder/{name}", tar_bytes(numbered(2)))
    store(f"{bucket}/folder.txt", b"hello")
    return f"{bucket}/folder"


def test_a_bucket_and_a_folder_are_listed_without_a_slash_at_the_end(folder, capsys):
    bucket = folder.rpartition("/")[0]
    inside = [f"{folder}/{name}" for name in ("a.tar", "b.tar", "deeper/c.tar")]
    assert cli.main(["ls", folder]) == 0
    assert capsys.readouterr().out.split() == inside
    assert cli.main(["ls", bucket]) == 0
    assert capsys.readouterr().out.split() == [f"{folder}.txt", *inside]
    assert cli.main(["ls", "--samples", folder]) == 0
    assert capsys.readouterr().out.count("cls txt\n") == 4


def test_a_folder_is_listed_by_the_name_that_is_rewritten_to_it(folder, monkeypatch, capsys):
    monkeypatch.setenv("GOPEN_REWRITE", f"mine:={folder}/;my-folder={folder}")
    for name, prefix in [("mine:", "mine:"), ("my-folder", "my-folder/"), ("my-folder/", "my-folder/")]:
        assert cli.main(["ls", name]) == 0
        assert capsys.readouterr().out.split() == [prefix + found for found in ("a.tar", "b.tar", "deeper/c.tar")]


def test_a_name_of_neither_an_object_nor_a_folder_is_one_clear_error(folder, capsys):
    assert cli.main(["ls", f"{folder}/dee"]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert f"[url {folder}/dee]" in told.err


def test_a_bucket_that_is_not_there_is_one_clear_error(server, capsys):
    missing = f"{server.bucket()}-not-there"
    for name in ("", "/", "/folder"):
        assert cli.main(["ls", missing + name]) == 1
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n")) == ("", 1)
        assert re.search("bucket|container|repository", told.err.replace(missing, ""))


def test_an_object_goes_before_a_folder_of_its_name(writable, capsys):
    bucket = writable.bucket()
    put(f"{bucket}/both", tar_bytes(numbered(1)))
    put(f"{bucket}/both/a.tar", tar_bytes(numbered(2)))
    assert cli.main(["ls", f"{bucket}/both"]) == 0
    assert capsys.readouterr().out.split() == ["000000.cls", "000000.txt"]
    assert cli.main(["ls", f"{bucket}/both/"]) == 0
    assert capsys.readouterr().out.split() == [f"{bucket}/both/a.tar"]


def test_an_index_is_written_beside_an_object(writable):
    pattern = f"{writable.bucket()}/indexed/a-%d.tar"
    with wds.ShardWriter(pattern, maxcount=3, verbose=0, index=True) as sink:
        for n in range(5):
            sink.write({"__key__": f"{n}", "txt": str(n)})
    first = pattern % 0
    assert read(f"{first}.wdx")
    assert read(first.replace(".tar", ".idx")).startswith(b"v1.")
    dataset = wds.WebDataset([pattern % n for n in range(2)], exact=True)
    assert (len(dataset), dataset.samples["4"]["txt"]) == (5, b"4")


# -- last, as the cluster waits half a minute for a gateway that is gone before it makes another bucket ----------------


@pytest.mark.slow
@pytest.mark.xdist_group("ceph")
def test_a_gateway_that_is_killed_while_a_shard_is_written_is_waited_for(
    ceph_server, nobody, monkeypatch, make_fault_proxy, patient
):
    folder = ceph_server.extra["folder"]
    for name, value in ceph_server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"{ceph_server.bucket()}/a.tar"
    with contextlib.ExitStack() as gateways:
        port, process = gateways.enter_context(ceph.gateway(folder))
        proxy = make_fault_proxy(port)
        options = {"endpoint": proxy.url("")}

        def start_again():
            proxy.target_port, _ = gateways.enter_context(ceph.gateway(folder))

        with wds.TarWriter(url, storage_options=options) as sink:
            for number in range(4):
                if number == 2:
                    process.kill()
                    process.wait()
                    patient.then(start_again)
                sink.write({"__key__": f"{number}", "bin": os.urandom(uploads.FIRST_PART_BYTES)})
        assert len(list(wds.WebDataset(url, shardshuffle=False))) == 4
    assert ceph_server.unfinished(url.rpartition("/")[0]) == 0
    assert patient.begun
