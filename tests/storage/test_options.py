"""How the stores of one dataset are reached: options that travel with it, for any scheme."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import webdataset as wds
import wids
from servers.object_stores import asked
from tests_support import numbered, tar_bytes
from webdataset.cache import FileCache
from webdataset.cli import main
from webdataset.errors import MissingShardError, StorageError, UnavailableError
from webdataset.gopen import gopen, gopen_schemes, open_ranges
from webdataset.indices.catalogue import Catalogue, Shard
from webdataset.shardlists import expand_urls
from webdataset.storage.http.reader import PART_BYTES
from webdataset.storage.options import OPTIONS, StorageOptions
from webdataset.storage.stores.lookup import stored_object

SHARD = tar_bytes(numbered(50))
SECRET = "hush-hush"
CERTIFICATE = str(Path(__file__).parent / "localhost.pem")
DOCS = Path(__file__).parents[2] / "docs"


def keys_of(samples):
    return [sample["__key__"] for sample in samples]


def texts_of(samples):
    return [sample["txt"].decode() for sample in samples]


# -- what can be given -----------------------------------------------------------------------------


TAKERS = {
    "WebDataset": lambda options: wds.WebDataset("http://host.invalid/a.tar", storage_options=options),
    "exact": lambda options: wds.WebDataset("http://host.invalid/a.tar", exact=True, storage_options=options),
    "TarWriter": lambda options: wds.TarWriter("http://host.invalid/a.tar", storage_options=options),
    "ShardWriter": lambda options: wds.ShardWriter("s3://bucket/a-%06d.tar", storage_options=options),
    "index": lambda options: wds.index("http://host.invalid/a.tar", storage_options=options),
    "gopen": lambda options: gopen("http://host.invalid/a.tar", storage_options=options),
    "open_ranges": lambda options: open_ranges("http://host.invalid/a.tar", storage_options=options),
    "FileCache": lambda options: FileCache("unused", storage_options=options),
    "SimpleShardList": lambda options: wds.SimpleShardList("s3://bucket/*.tar", storage_options=options),
    "Catalogue": lambda options: Catalogue([Shard("a.tar", 1)], storage_options=options),
    "wids": lambda options: wids.ShardListDataset([{"url": "a.tar", "nsamples": 1}], storage_options=options),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_an_unknown_option_is_refused_with_the_list(taker):
    with pytest.raises(ValueError, match="'enpoint'") as caught:
        TAKERS[taker]({"enpoint": "http://host"})
    assert "'endpoint'" in str(caught.value)
    assert all(name in str(caught.value) for name in OPTIONS)


def test_something_else_than_a_dict_is_refused():
    with pytest.raises(TypeError, match="dict"):
        gopen("http://host.invalid/a.tar", storage_options=["endpoint"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("endpoint", "not an address?x"), ("endpoint", "ftp://host"), ("anonymous", "yes"), ("retries", 1.5),
     ("retries", -1), ("connections", 0), ("patience", "90"), ("patience", -1), ("timeout", 0),
     ("timeout", (1, 2, 3)), ("headers", [("a", "b")]), ("headers", {"a": 1}), ("headers", {"a b": "c"}),
     ("headers", {"X": "a\r\nY: b"}), ("headers", {"Range": "bytes=0-1"}), ("region", ""), ("cafile", 7)],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        gopen("http://host.invalid/a.tar", storage_options={name: value})


def test_secrets_are_in_no_message(server):
    given = {"headers": {"Authorization": SECRET}, "token": SECRET, "proxy": f"http://me:{SECRET}@host.invalid"}
    options = StorageOptions(given | {"endpoint": f"http://me:{SECRET}@host"})
    shown = [repr(options), str(options), repr(wds.WebDataset("http://h/a.tar", storage_options=options))]
    for bad in ({"headers": [SECRET]}, {"headers": {"a\n": SECRET}}, {"token": f"\n{SECRET}"}):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - whatever it says
            StorageOptions(bad)
        shown.append(str(caught.value))
    for url in (server.status("/a.tar", 403), server.status("/b.tar", 503)):
        with pytest.raises(StorageError) as failed:
            gopen(url, storage_options={"headers": {"Authorization": SECRET}, "retries": 0})
        shown.append(str(failed.value))
    assert SECRET not in " ".join(shown)
    assert "endpoint='http://***@host'" in shown[0]


def test_options_travel_to_other_processes():
    options = StorageOptions({"endpoint": "http://host", "headers": {"X-Key": SECRET}, "timeout": 5})
    found = pickle.loads(pickle.dumps(options))
    assert found == options
    assert found["headers"] == {"X-Key": SECRET}
    assert found["timeout"] == (5, 5)


def test_options_mean_something_for_some_schemes_only(make_shard):
    options = StorageOptions(EVERY)
    assert options.for_url("a.tar") == options.for_url("pipe:cat a.tar") == options.for_url("ftps://host/a.tar") == {}
    path = make_shard(samples=3)
    for url in (path, f"file:{path}", f"pipe:cat {path}"):
        assert len(list(wds.WebDataset(url, shardshuffle=False, storage_options=EVERY))) == 3


EVERY = {
    "endpoint": "http://host:9000",
    "profile": "me",
    "region": "here",
    "anonymous": True,
    "token": SECRET,
    "headers": {"X": "y"},
    "patience": 1,
    "retries": 2,
    "timeout": (3, 4),
    "cafile": "file.pem",
    "proxy": "http://proxy:3128",
    "connections": 5,
}


def test_the_table_in_the_documentation_is_the_table():
    page = (DOCS / "storage.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([a-z0-9, :]+) \|$", page, re.MULTILINE)
    families = {name: set(schemes.replace(" ", "").split(",")) for name, schemes in rows}
    assert families == {name: set(option.families) for name, option in OPTIONS.items()}


def test_an_opener_of_the_program_is_not_given_them(monkeypatch):
    monkeypatch.setitem(gopen_schemes, "s3", lambda url, mode, bufsize: io.BytesIO(SHARD))
    data = wds.WebDataset("s3://bucket/a.tar", shardshuffle=False, storage_options={"endpoint": "http://host.invalid"})
    assert len(list(data)) == 50


# -- two stores in one program ---------------------------------------------------------------------


@pytest.fixture
def two_stores(moto_server, other_moto_server, nobody, monkeypatch, own_cache):
    """Two stores with a bucket of the same name, which have other samples under the same keys; and their options."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    bucket = f"s3://{moto_server.name()}"
    found = []
    for name, server in (("one", moto_server), ("two", other_moto_server)):
        options = {"endpoint": f"http://127.0.0.1:{server.port}"}
        asked(server.client(bucket), "PUT", server.address(bucket))
        for shard in range(2):
            files = [(f"{shard}{i:03d}.txt", f"{name}-{shard}-{i}".encode()) for i in range(20)]
            with gopen(f"{bucket}/a-{shard}.tar", "wb", storage_options=options) as stream:
                stream.write(tar_bytes(files))
        found.append((name, options))
    return bucket, found


def expected(name):
    return [f"{name}-{shard}-{i}" for shard in range(2) for i in range(20)]


def test_two_endpoints_are_read_side_by_side(two_stores):
    bucket, stores = two_stores
    one, two = (wds.WebDataset(f"{bucket}/a-{{0..1}}.tar", shardshuffle=False, storage_options=o) for _, o in stores)
    pairs = [(first["txt"].decode(), second["txt"].decode()) for first, second in zip(one, two, strict=True)]
    assert pairs == list(zip(expected("one"), expected("two"), strict=True))


def test_a_list_of_a_store_is_of_the_right_one(two_stores):
    bucket, stores = two_stores
    with gopen(f"{bucket}/b-0.tar", "wb", storage_options=stores[1][1]) as stream:
        stream.write(SHARD)
    assert wds.SimpleShardList(f"{bucket}/*.tar", storage_options=stores[0][1]).urls == [
        f"{bucket}/a-{i}.tar" for i in range(2)
    ]
    data = wds.WebDataset(f"{bucket}/b-*.tar", shardshuffle=False, storage_options=stores[1][1])
    assert len(list(data)) == 50


def test_a_cache_does_not_take_one_store_for_the_other(two_stores, tmp_path):
    bucket, stores = two_stores
    for _ in range(2):
        for name, options in stores:
            data = wds.WebDataset(
                f"{bucket}/a-{{0..1}}.tar", shardshuffle=False, cache_dir=str(tmp_path), storage_options=options
            )
            assert texts_of(data) == expected(name)
    assert len([entry for entry in os.listdir(tmp_path) if entry.endswith(".tar")]) == 4


def test_indices_and_exact_epochs_are_of_the_right_store(two_stores, tmp_path):
    bucket, stores = two_stores
    urls = f"{bucket}/a-{{0..1}}.tar"
    # the other store has as many samples, of another size
    with gopen(f"{bucket}/a-1.tar", "wb", storage_options=stores[1][1]) as stream:
        files = [(f"1{i:03d}.txt", f"two-1-{i}".encode().ljust(3000)) for i in range(20)]
        stream.write(tar_bytes(files))
    for _ in range(2):
        for name, options in stores:
            assert wds.index(urls, storage_options=options).total == 40
            data = wds.WebDataset(urls, exact=True, shuffle_bytes=0, storage_options=options)
            assert [text.strip() for text in texts_of(data)] == expected(name)
            assert data[3]["txt"].decode() == f"{name}-0-3"
            cached = wds.WebDataset(urls, exact=True, cache_dir=str(tmp_path), storage_options=options)
            assert sorted(text.strip() for text in texts_of(cached)) == sorted(expected(name))


def test_an_index_beside_a_shard_is_written_and_found_in_the_right_store(two_stores):
    bucket, stores = two_stores
    _, options = stores[1]
    wds.index(f"{bucket}/a-0.tar", where="beside", storage_options=options)
    assert expand_urls(f"{bucket}/*.wdx", storage_options=options) == [f"{bucket}/a-0.tar.wdx"]
    with pytest.raises(MissingShardError):
        expand_urls(f"{bucket}/*.wdx", storage_options=stores[0][1])


def test_a_catalogue_brings_its_options_along(two_stores):
    bucket, stores = two_stores
    for name, options in stores:
        catalogue = wds.index(f"{bucket}/a-{{0..1}}.tar", storage_options=options)
        data = wds.WebDataset(pickle.loads(pickle.dumps(catalogue)), exact=True, shuffle_bytes=0)
        assert texts_of(data) == expected(name)
        with wds.SampleReader(catalogue) as samples:
            assert samples[21]["txt"].decode() == f"{name}-1-1"


def test_writers_write_to_the_store_they_are_given(two_stores):
    bucket, stores = two_stores
    for name, options in stores:
        with wds.ShardWriter(f"{bucket}/w-%06d.tar", verbose=0, storage_options=options) as sink:
            sink.write({"__key__": "a", "txt": name})
        with wds.TarWriter(f"{bucket}/t.tar", storage_options=options) as tar:
            tar.write({"__key__": "a", "txt": name})
    for name, options in stores:
        for shard in ("w-000000", "t"):
            data = wds.WebDataset(f"{bucket}/{shard}.tar", shardshuffle=False, storage_options=options)
            assert texts_of(data) == [name]


def test_options_reach_spawned_workers(two_stores):
    bucket, stores = two_stores
    name, options = stores[1]
    data = wds.WebDataset(f"{bucket}/a-{{0..1}}.tar", shardshuffle=False, storage_options=options)
    context = multiprocessing.get_context("spawn")
    loader = wds.WebLoader(data, batch_size=None, num_workers=1, multiprocessing_context=context)
    assert texts_of(loader) == expected(name)


def test_numbered_samples_come_from_the_right_store(two_stores, tmp_path):
    bucket, stores = two_stores
    shards = [{"url": f"{bucket}/a-{i}.tar", "nsamples": 20} for i in range(2)]
    for name, options in stores:
        for folder in (None, str(tmp_path)):
            with wids.ShardListDataset(shards, cache_dir=folder, storage_options=options) as data:
                assert data[21][".txt"] == f"{name}-1-1"


def test_commands_take_them_too(two_stores, tmp_path, capsys):
    bucket, stores = two_stores
    for name, options in stores:
        storage = ["--storage", f"endpoint={options['endpoint']}", "--storage", "patience=5"]
        assert main(["cat", f"{bucket}/a-1.tar", "txt", *storage]) == 0
        assert capsys.readouterr().out.strip() == f"{name}-1-0"
        assert main(["cp", *storage, f"{bucket}/a-0.tar", str(tmp_path / f"{name}.tar")]) == 0
        assert texts_of(wds.WebDataset(str(tmp_path / f"{name}.tar"), shardshuffle=False))[0] == f"{name}-0-0"
        capsys.readouterr()


# -- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [("enpoint=x", "'endpoint'"), ("patience", "patience=10"), ("patience=long", "patience"),
     ("anonymous=perhaps", "anonymous"), ("retries=2.5", "retries"), ("headers=X", "headers.NAME=VALUE"),
     ("connections=0", "connections")],
)  # fmt: skip
def test_a_wrong_option_of_a_command_is_exit_2(given, told, capsys):
    assert main(["ls", "--storage", given, "http://host.invalid/a.tar"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_header_fields_are_given_one_by_one(server, capsys):
    url = server.whole("/a.tar", SHARD)
    assert main(["ls", "--storage", "headers.X-One=1", "--storage", "headers.X-Two=a=b", url]) == 0
    assert server.requests[-1][1]["x-one"] == "1"
    assert server.requests[-1][1]["x-two"] == "a=b"
    server.requests.clear()
    gopen(url).close()
    assert "x-one" not in server.requests[-1][1]  # they were those of the command


# -- who is told what ------------------------------------------------------------------------------


def test_headers_go_with_every_request_to_the_host(server, own_cache):
    url = server.parts("/a.tar", SHARD)
    options = {"headers": {"X-Api-Key": SECRET}}
    assert len(list(wds.WebDataset(url, shardshuffle=False, storage_options=options))) == 50
    assert len(list(wds.WebDataset(url, exact=True, storage_options=options))) == 50
    assert len(server.requests) >= 3
    assert all(headers.get("x-api-key") == SECRET for _, headers in server.requests)


def test_headers_are_not_sent_on_to_another_host(server, other_server):
    url = server.redirect("/a.tar", other_server.whole("/b.tar", SHARD))
    with gopen(url, storage_options={"headers": {"X-Api-Key": SECRET, "Cookie": SECRET}}) as stream:
        assert stream.read() == SHARD
    assert server.requests[0][1]["x-api-key"] == SECRET
    assert SECRET not in str(other_server.requests)


def test_a_list_from_elsewhere_does_not_get_our_headers_sent_to_others(server, other_server, own_cache):
    other_server.parts("/b.tar", SHARD)
    server.parts("/a.tar", SHARD)
    shards = [
        {"url": url, "nsamples": 50, "filesize": len(SHARD)}
        for url in (server.url("/a.tar"), other_server.url("/b.tar"))
    ]
    text = json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}).encode()
    options = {"headers": {"X-Api-Key": SECRET}}
    listed = server.whole("/list.json", text)
    assert len(list(wds.WebDataset(listed, exact=True, storage_options=options))) == 100
    with wids.ShardListDataset(listed, storage_options=options) as data:
        assert data[70]["__key__"] == "000020"
    assert all(headers.get("x-api-key") == SECRET for _, headers in server.requests)
    assert other_server.requests
    assert SECRET not in str(other_server.requests)


IN_SECURE_MODE = """
import os, sys
os.environ |= {"WDS_SECURE": "1", "NETRC": sys.argv[3]}
import webdataset as wds, wids
from webdataset.errors import SecurityError
opened = {
    "exact": lambda url: list(wds.WebDataset(url, exact=True)),
    "catalogue": lambda url: list(wds.SampleReader(wds.Catalogue.load(url))),
    "wids": lambda url: wids.ShardListDataset(url)[0],
}
try:
    print(len(opened[sys.argv[1]](sys.argv[2])))
except SecurityError as error:
    print("refused:", error)
"""
LOOPBACKS = ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0")


def run_in_secure_mode(reading, url, netrc):
    command = [sys.executable, "-c", IN_SECURE_MODE, reading, url, str(netrc)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def netrc(tmp_path):
    path = tmp_path / "netrc"
    path.write_text("".join(f"machine {host} login me password {SECRET}\n" for host in LOOPBACKS))
    path.chmod(0o600)
    return path


def listing(url):
    shards = [{"url": url, "nsamples": 50, "filesize": len(SHARD)}]
    return json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}).encode()


@pytest.mark.parametrize("reading", ["exact", "catalogue", "wids"])
def test_in_secure_mode_a_fetched_list_cannot_name_internal_addresses(server, other_server, own_cache, netrc, reading):
    secret = other_server.parts("/latest/meta-data.tar", SHARD)
    for number, host in enumerate(LOOPBACKS if reading == "exact" else LOOPBACKS[:2]):
        listed = server.whole(f"/list-{number}.json", listing(secret.replace("127.0.0.1", host)))
        told = run_in_secure_mode(reading, listed, netrc)
        assert told.startswith("refused:")
        assert f" {host} " in told
        assert told.count("\n") == 1
    assert other_server.requests == []


def test_in_secure_mode_a_list_names_shards_of_its_own_server(server, own_cache, netrc):
    server.parts("/a.tar", SHARD)
    listed = server.whole("/list.json", listing("a.tar"))
    assert run_in_secure_mode("exact", listed, netrc) == "50\n"


def test_without_secure_mode_a_list_may_name_any_server(server, other_server, own_cache):
    listed = server.whole("/list.json", listing(other_server.parts("/b.tar", SHARD)))
    assert len(list(wds.WebDataset(listed, exact=True))) == 50


def test_in_secure_mode_netrc_is_not_for_what_a_list_names(server, netrc, monkeypatch):
    monkeypatch.setenv("NETRC", str(netrc))
    url = server.whole("/a.tar", SHARD)
    options = StorageOptions({}).for_list("https://elsewhere.example/list.json")
    monkeypatch.setattr("webdataset.storage.http.addresses.check_public", lambda *_: None)
    for secure in ("0", "1"):
        monkeypatch.setenv("WDS_SECURE", secure)
        gopen(url, storage_options=options).close()
    assert ["authorization" in headers for _, headers in server.requests] == [True, False]


def test_nobody_is_told_who_an_anonymous_user_is(server, nobody, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "AIS_AUTHN_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    paths = {
        "s3://bucket/a.tar": "/bucket/a.tar",
        "hf://datasets/me/data/a.tar": "/datasets/me/data/resolve/main/a.tar",
        "ais://bucket/a.tar": "/v1/objects/bucket/a.tar",
        server.url("/a.tar"): "/a.tar",
    }
    for url, path in paths.items():
        server.whole(path, SHARD)
        endpoint = {} if url.startswith("http") else {"endpoint": server.url("")}
        for anonymous in (False, True):
            server.requests.clear()
            with gopen(url, storage_options={"anonymous": anonymous, **endpoint}) as stream:
                assert stream.read() == SHARD
            assert any("authorization" in headers for _, headers in server.requests) != anonymous


def test_a_profile_and_a_region_are_those_of_the_dataset(server, nobody, tmp_path):
    folder = tmp_path / "home" / ".aws"
    folder.mkdir(parents=True)
    lines = [f"[{name}]\naws_access_key_id = KEY{name}\naws_secret_access_key = x\n" for name in ("one", "two")]
    (folder / "credentials").write_text("".join(lines))
    server.whole("/bucket/a.tar", SHARD)
    for name, region in (("one", "here-1"), ("two", "there-2"), ("one", "here-1")):
        options = {"endpoint": server.url(""), "profile": name, "region": region}
        gopen("s3://bucket/a.tar", storage_options=options).close()
        assert f"Credential=KEY{name}/" in server.requests[-1][1]["authorization"]
        assert f"/{region}/s3/" in server.requests[-1][1]["authorization"]


def test_a_certificate_is_trusted_by_the_dataset_it_was_given_to(tls_server):
    url = tls_server.whole("/a.tar", SHARD).replace("127.0.0.1", "localhost")
    trusting = wds.WebDataset(url, shardshuffle=False, storage_options={"cafile": CERTIFICATE})
    for _ in range(2):
        assert len(list(trusting)) == 50
        with pytest.raises(StorageError, match="certificate"):
            list(wds.WebDataset(url, shardshuffle=False))


# -- how long and how much -------------------------------------------------------------------------


def test_retries_patience_and_timeout_are_those_of_the_dataset(server):
    busy = server.status("/busy.tar", 503)
    with pytest.raises(UnavailableError) as raised:
        list(wds.WebDataset(busy, shardshuffle=False, storage_options={"retries": 1}))
    assert (len(server.requests), raised.value.status) == (2, 503)
    with pytest.raises(UnavailableError):
        list(wds.WebDataset(busy, shardshuffle=False, storage_options={"patience": 0}))
    assert len(server.requests) == 3
    stalled = server.stall("/stalled.tar", SHARD, after=0)
    with pytest.raises(UnavailableError, match=r"0\.2"):
        list(wds.WebDataset(stalled, shardshuffle=False, storage_options={"timeout": (5, 0.2), "retries": 0}))


def counting(server, path):
    """Count the requests for a path that are served at the same time; the most of them so far."""
    route, lock, now, most = server.routes[path], threading.Lock(), [0], [0]

    def counted(request):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        server.release.wait(0.03)  # gives the others time to come
        with lock:
            now[0] -= 1  # before the answer, upon which the next request may come
        route(request)

    server.routes[path] = counted
    return most


def test_no_more_connections_are_made_than_there_may_be(server, own_cache):
    url = server.parts("/a.tar", tar_bytes((f"{i:04d}.bin", bytes(60_000)) for i in range(100)))
    most = counting(server, "/a.tar")
    plain = {"exact": True, "shuffle_bytes": "500kB", "block_bytes": "100kB"}
    assert len(list(wds.WebDataset(url, storage_options={"connections": 1}, **plain))) == 100
    assert most == [1]
    catalogue = wds.index(url, storage_options={"connections": 2})
    most[0] = 0
    with wds.SampleReader(catalogue) as samples:
        assert len(samples.read_many(range(0, 100, 20))) == 5
    assert most[0] <= 2


def test_a_streamed_shard_comes_over_as_many_connections_as_are_said(server):
    url = server.parts("/a.tar", bytes(2 * PART_BYTES + 1))
    with gopen(url, storage_options={"connections": 3}) as stream:
        stream.read()
    assert len(server.requests) == 3
    server.requests.clear()
    with gopen(url, storage_options={"connections": 1}) as stream:
        stream.read()
    assert len(server.requests) == 1


EVIL = "abfs://c@acct.evil.example/a.tar"


@pytest.mark.parametrize(
    ("url", "named", "given", "is_foreign"),
    [(EVIL, "https://host.example/list.json", {}, True), (EVIL, "/data/list.json", {}, False),
     (EVIL, "https://acct.blob.evil.example/list.json", {}, False),
     (EVIL, "https://host.example/list.json", {"endpoint": "https://mine.example"}, False),
     (EVIL.replace("evil.example", "dfs.core.windows.net"), "https://host.example/list.json", {}, False)],
)  # fmt: skip
def test_a_host_that_a_fetched_list_hides_in_an_abfs_url_is_foreign(nobody, url, named, given, is_foreign):
    options = StorageOptions({"headers": {"X-Key": SECRET}, **given}).for_list(named)
    reached = stored_object(url, **options.for_url(url)).options
    assert (reached.foreign, dict(reached.headers)) == (is_foreign, {} if is_foreign else {"X-Key": SECRET})
