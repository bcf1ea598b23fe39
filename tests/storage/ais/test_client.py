"""What goes wrong in an AIStore cluster, shown on the double."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import webdataset as wds
from servers.aistore import Bucket, DoubleCluster, request
from servers.aistore_nodes import Answer, token
from tests_support import tar_bytes
from webdataset import ais
from webdataset.base.reports import Report
from webdataset.errors import MissingShardError, SecurityError, StorageError, UnavailableError
from webdataset.shardlists import expand_urls
from webdataset.storage.ais import smap, xxhash
from webdataset.storage.ais.objects import AisObject, object_name, open_ais

DATA = os.urandom(300_000)
QUICK = {"first_pause": 0.001}
SECRET = b"a secret of the cluster"


@pytest.fixture
def bucket(ais_double):
    return ais_double


@pytest.fixture
def double(ais_double):
    return ais_double.double


def home(double, name):
    """The target that has an object."""
    return double.place("b", name)


# -- redirects and tokens ------------------------------------------------------------------------------


def test_every_start_asks_the_proxy_anew(bucket, double):
    url = bucket.put("a", DATA)
    double.cuts = [1000, 2000]
    before = len(double.seen("p"))
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA
    assert len(double.seen("p")) - before == 3
    assert [headers.get("range") for _, _, headers in double.seen("t")[-3:]] == [None, "bytes=1000-", "bytes=3000-"]


def test_a_signed_redirect_is_followed_to_the_letter(bucket, double):
    double.signed = True
    url = bucket.put("sub/a b%?&=+ü.tar", DATA)
    with open_ais(url) as stream:
        assert stream.read() == DATA
    assert AisObject(url).size() == len(DATA)
    with AisObject(bucket.url("ö x.tar")).upload() as sink:
        sink.write(DATA)
    assert bucket.get("ö x.tar") == DATA
    with open_ais(bucket.put("m.tar", tar_bytes([("x y.txt", b"one")])), archpath="x y.txt") as stream:
        assert stream.read() == b"one"
    assert list(ais.get_batch([url])) == [(url, DATA)]


def test_the_token_goes_to_the_proxy_only(bucket, double, monkeypatch):
    url = bucket.put("a", DATA)
    double.secret = SECRET
    monkeypatch.setenv("AIS_AUTHN_TOKEN", token(SECRET))
    before = len(double.seen("p"))
    with open_ais(url) as stream:
        assert stream.read() == DATA
    with AisObject(url).upload() as sink:
        sink.write(b"new")
    assert AisObject(url).size() == 3
    assert len(list(AisObject(bucket.url("")).list())) == 1
    assert list(ais.get_batch([url])) == [(url, b"new")]
    assert len(double.seen("p")) >= before + 6
    assert all("authorization" in headers for _, _, headers in double.seen("p")[before:])
    assert all("authorization" not in headers for _, _, headers in double.seen("t"))


def test_no_token_is_an_error_at_once_with_the_cure(bucket, double):
    double.secret = SECRET
    with pytest.raises(StorageError) as raised:
        open_ais(bucket.url("a"))
    assert (raised.value.status, "AIS_AUTHN_TOKEN" in raised.value.hint) == (401, True)
    assert len(double.seen("p")) == 1


@pytest.mark.parametrize(
    ("claims", "status", "word"), [({"seconds": -10}, 401, "expired"), ({"admin": False}, 403, "permission")]
)
def test_a_token_that_does_not_do_is_an_error_that_does_not_show_it(bucket, double, claims, status, word):
    double.secret = SECRET
    jwt = token(SECRET, **claims)
    with pytest.raises(StorageError, match=word) as caught:
        open_ais(bucket.url("a"), token=jwt)
    assert caught.value.status == status
    assert jwt not in str(caught.value)
    assert jwt not in repr(caught.value)


@pytest.mark.parametrize("form", ["{}", '{{"token": "{}"}}'])
def test_the_token_may_lie_in_a_file_which_is_read_anew(bucket, double, monkeypatch, tmp_path, form):
    url = bucket.put("a", DATA)
    double.secret = SECRET
    file = tmp_path / "token"
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(file))
    file.write_text(form.format(token(SECRET, seconds=-10)))
    with pytest.raises(StorageError, match="expired"):
        open_ais(url)
    file.write_text(form.format(token(SECRET)) + "\n")
    with open_ais(url) as stream:
        assert stream.read() == DATA


def test_other_schemes_are_read_through_the_cluster(bucket, double, monkeypatch):
    monkeypatch.setenv("USE_AIS_FOR", "gs:s3")
    bucket.put("a.tar", DATA)
    for scheme, provider in (("s3", "aws"), ("gs", "gcp")):
        with wds.gopen(f"{scheme}://b/a.tar") as stream:
            assert stream.read() == DATA
        assert f"provider={provider}" in double.seen("p")[-1][1]


def test_a_redirect_from_https_to_http_is_refused():
    from webdataset.storage.ais.client import AisConnector, Cluster

    url = "ais://b/a"
    connector = AisConnector(Cluster("https://host"), object_name(url), "https://host/v1/objects/b/a", url)
    with pytest.raises(SecurityError, match="https"):
        connector._connector_to("http://host:1/a")


# -- breaks --------------------------------------------------------------------------------------------


def test_a_body_that_breaks_goes_on_at_the_exact_byte(bucket, double):
    url = bucket.put("a", DATA)
    double.cuts = [0, 100_000, 0, 1, 50_000]
    report = Report()
    with report.in_force(), open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA
    assert report.as_dict()["shards_retried"] == 1


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 20_000), max_size=6), st.booleans(), st.integers(50, 70_000))
@example([0] * 6, True, 70_000)
def test_any_cuts_give_the_same_bytes(shared_bucket, cuts, ranges, size):
    double = shared_bucket.double
    double.cuts, double.range_checksums = list(cuts), ranges
    with open_ais(shared_bucket.url("a"), **QUICK, retries=len(cuts)) as stream:  # a cut at byte 0 is no progress
        assert b"".join(iter(lambda: stream.read(size), b"")) == DATA
    double.cuts = []


@pytest.fixture(scope="module")
def shared_bucket():
    double = DoubleCluster()
    double.buckets.add("b")
    bucket = Bucket(double.endpoint, "b", double)
    bucket.put("a", DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIS_ENDPOINT", double.endpoint)
        yield bucket
    double.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_reads_on_its_own(bucket):
    url = bucket.put("a", DATA)
    with open_ais(url) as stream:
        first = stream.read(1000)
        context = multiprocessing.get_context("fork")
        with context.Pool(1) as pool:
            assert pool.apply_async(_whole, (url,)).get(30) == DATA
        assert first + stream.read() == DATA


def _whole(url):
    with open_ais(url) as stream:
        return stream.read()


def test_a_range_with_a_checksum_of_its_own_is_checked_by_asking(bucket, double):
    url = bucket.put("a", DATA)
    double.cuts, double.range_checksums = [1000], True
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA
    assert "HEAD" in {method for method, _, _ in double.seen("t")}


@pytest.mark.parametrize("ranges", [False, True])
def test_an_object_that_changed_in_between_is_an_error(bucket, double, ranges):
    url = bucket.put("a", DATA)
    double.cuts, double.range_checksums = [1000], ranges
    with open_ais(url, **QUICK) as stream:
        stream.read(10)
        bucket.put("a", os.urandom(len(DATA)))
        with pytest.raises(StorageError, match="changed"):
            stream.read()


def test_an_object_without_a_checksum_is_known_by_its_version(bucket, double):
    url = bucket.put("a", DATA)
    double.cuts, double.checksums = [1000, 1000], False
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA


def test_garbled_bytes_are_an_error(bucket, double):
    url = bucket.put("a", DATA)
    double.garbled = True
    with open_ais(url) as stream, pytest.raises(StorageError, match="checksum"):
        stream.read()
    with open_ais(url, verify=False) as stream:
        assert len(stream.read()) == len(DATA)


def test_without_the_package_only_small_objects_are_checked(bucket, double, monkeypatch):
    monkeypatch.setattr(xxhash, "is_fast", lambda: False)
    monkeypatch.setattr(xxhash, "PURE_BYTES", 1000)
    small, large = bucket.put("small", DATA[:1000]), bucket.put("large", DATA)
    double.garbled = True
    with open_ais(small) as stream, pytest.raises(StorageError, match="checksum"):
        stream.read()
    with open_ais(large) as stream:
        assert len(stream.read()) == len(DATA)


def test_a_member_that_breaks_is_read_again_and_compared(bucket, double):
    url = bucket.put("a.tar", tar_bytes([("1.bin", DATA)]))
    double.cuts = [100_000, 200_000]
    with open_ais(url, archpath="1.bin", **QUICK) as stream:
        assert stream.read() == DATA
    double.cuts = [100_000]
    with open_ais(url, archpath="1.bin", **QUICK) as stream:
        stream.read(10)
        bucket.put("a.tar", tar_bytes([("1.bin", os.urandom(len(DATA)))]))
        with pytest.raises(StorageError, match="bytes"):
            stream.read()


def test_a_transformation_in_the_cluster(bucket):
    url = bucket.put("a", b"hello")
    with open_ais(url, etl_name="upper", etl_args={"x": 1}) as stream:
        assert stream.read() == b'HELLO{"x": 1}'
    with wds.gopen(f"{url}?etl_name=upper") as stream:
        assert stream.read() == b"HELLO"
    with pytest.raises(StorageError, match="501"):
        open_ais(url, etl_name="none")


# -- a cluster that changes ----------------------------------------------------------------------------


@pytest.fixture
def growing(bucket, double):
    """Twenty objects in a cluster that a third target has just joined, and one that belongs there."""
    urls = [bucket.put(f"{number:02d}.tar", bytes([number]) * 100) for number in range(20)]
    assert len(list(AisObject(bucket.url("")).list())) == 20
    double.join("t3")
    return urls, next(url for url in urls if home(double, url.removeprefix(bucket.url(""))) == "t3")


def later(*steps):
    """Takes one step after the other, a fifth of a second apart."""
    thread = threading.Thread(target=lambda: [(time.sleep(0.2), step()) for step in steps])
    thread.start()
    return thread


def whole(url):
    with open_ais(url, **QUICK) as stream:
        return stream.read()


def sized(url):
    return bytes([int(url[-6:-4])]) * AisObject(url, **QUICK).size()


def ranged(url):
    with wds.gopen.open_ranges(url, storage_options={"patience": 30}) as parts:
        return parts.read(0, parts.size)


def batched(url):
    return next(ais.get_batch([url], missing="none", **QUICK))[1]


@pytest.mark.parametrize("read", [whole, sized, ranged, batched])
def test_a_target_that_has_just_joined_is_not_believed_that_an_object_is_missing(double, growing, read):
    _, moving = growing
    thread = later(double.rebalance)
    assert read(moving) == bytes([int(moving[-6:-4])]) * 100
    thread.join()


def test_a_list_waits_until_a_joined_target_has_what_it_should_have(bucket, double, growing):
    thread = later(double.rebalance)
    assert [url for url, _ in AisObject(bucket.url(""), **QUICK).list()] == growing[0]
    assert sorted(expand_urls(bucket.url("*.tar"))) == growing[0]
    thread.join()


@pytest.mark.parametrize("pagesize", [0, 3])
def test_a_list_of_a_process_that_never_saw_the_cluster_settled_waits_until_it_is(bucket, double, growing, pagesize):
    double.rebalance()
    smap.CLUSTERS.clear()
    assert [url for url, _ in AisObject(bucket.url(""), **QUICK).list(pagesize=pagesize)] == growing[0]


def test_an_object_is_not_called_missing_by_a_cluster_that_rebalances(bucket, double, growing):
    double.rebalance()
    double.move_some = lambda: None
    smap.CLUSTERS.clear()
    with pytest.raises(StorageError, match="rebalanc") as caught:
        AisObject(bucket.url("none"), patience=0.2, **QUICK).size()
    assert not isinstance(caught.value, MissingShardError)
    with pytest.raises(StorageError, match="rebalanc"):
        list(AisObject(bucket.url(""), patience=0.2, **QUICK).list())
    assert 0 < len(list(AisObject(bucket.url("")).list(partial=True))) < 20


def test_an_object_is_missing_when_the_cluster_has_settled(bucket, double, growing, monkeypatch):
    monkeypatch.setattr(smap, "SETTLE_SECONDS", 0.05)
    double.rebalance()
    with pytest.raises(MissingShardError):
        AisObject(bucket.url("none"), **QUICK).size()
    assert not double.rebalancing


def test_a_target_that_was_away_between_two_looks_at_the_map_is_not_believed_at_once(bucket, double):
    url = bucket.put("a", DATA)
    assert AisObject(url).size() == len(DATA)
    target = home(double, "a")
    double.leave(target)
    double.revive(target)
    lost = double.objects[target].pop(("b", "a"))
    thread = later(lambda: double.objects[target].update({("b", "a"): lost}))
    assert whole(url) == DATA
    thread.join()


def test_a_node_without_a_cluster_map_is_waited_for(bucket, double):
    url = bucket.put("a", DATA)
    double.refusals = [Answer(400, message="p1: cannot handle bucket request: Smap v0", code="ErrHTTP")] * 3
    assert [found for found, _ in AisObject(bucket.url(""), **QUICK).list()] == [url]
    double.refusals = [Answer(400, message="p1: cannot handle bucket request: Smap v0", code="ErrHTTP")] * 3
    assert AisObject(url, **QUICK).size() == len(DATA)
    assert double.refusals == []


def test_another_400_is_an_error_at_once(bucket, double):
    double.refusals = [Answer(400, message="invalid bucket name", code="ErrHTTP")]
    with pytest.raises(StorageError, match="400"):
        AisObject(bucket.url("a"), **QUICK).size()


# -- corrupt objects -----------------------------------------------------------------------------------


def test_a_corrupt_object_is_an_error_of_its_own_and_not_a_missing_one(bucket, double):
    url = bucket.put("a", DATA)
    double.corrupt("b", "a")
    with pytest.raises(StorageError, match="ErrBadCksum") as caught:
        open_ais(url, **QUICK)
    assert caught.value.status == 500
    assert not isinstance(caught.value, MissingShardError)
    assert "write" in caught.value.hint
    assert bucket.get("a") is None


def test_a_dataset_says_that_a_shard_is_corrupt(bucket, double):
    for number in range(2):
        bucket.put(f"{number}.tar", tar_bytes([(f"{number}.txt", b"text")]))
    double.corrupt("b", "1.tar")
    errors = []
    handler = lambda error: errors.append(error) or True  # noqa: E731
    samples = list(wds.WebDataset(bucket.url("{0..1}.tar"), shardshuffle=False, handler=handler))
    assert [sample["__key__"] for sample in samples] == ["0"]
    assert [(error.url, error.status) for error in errors] == [(bucket.url("1.tar"), 500)]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.usefixtures("own_cache")
def test_an_exact_dataset_with_a_cache_compares_the_checksums_of_its_shards(bucket, double, tmp_path, indexed):
    url = bucket.put("a.tar", tar_bytes([(f"{number}.txt", b"text") for number in range(3)]))
    if indexed:
        assert len(list(wds.WebDataset(url, exact=True, shardshuffle=False))) == 3
    double.corrupt("b", "a.tar")
    with pytest.raises(StorageError, match="ErrBadCksum") as caught:
        list(wds.WebDataset(url, exact=True, shardshuffle=False, cache_dir=str(tmp_path / "cache")))
    assert not isinstance(caught.value, MissingShardError)


# -- a cluster in trouble ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [503, 429])
def test_a_cluster_that_cannot_yet_is_waited_for(bucket, double, status):
    url = bucket.put("a", DATA)
    double.refusals = [Answer(status), Answer(status, headers={"Retry-After": "0"}), Answer(503)]
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA


def test_a_cluster_that_has_not_started_is_waited_for_though_it_says_404(bucket, double):
    url = bucket.put("a", DATA)
    double.starting = True
    double.refusals = [Answer(404), Answer(404), Answer(503)]
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA


def test_a_dead_target_is_waited_for_until_it_is_noticed(bucket, double):
    url = bucket.put("a", DATA)
    double.mirror()
    double.kill(home(double, "a"), noticed_after=5)
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA


def test_a_target_that_dies_in_the_middle_is_replaced_by_another(bucket, double):
    url = bucket.put("a", DATA * 20)
    double.mirror()
    stream = open_ais(url, **QUICK)
    first = stream.read(1000)
    double.kill(home(double, "a"), noticed_after=3)
    with stream:
        assert first + stream.read() == DATA * 20


def test_a_target_that_comes_back_goes_on(bucket, double):
    url = bucket.put("a", DATA)
    double.cuts = [1000]
    target = home(double, "a")
    stream = open_ais(url, **QUICK)
    first = stream.read(1000)
    double.kill(target, back_after=4)
    with stream:
        assert first + stream.read() == DATA


def test_an_object_that_is_gone_with_its_target_is_not_said_to_be_missing(bucket, double):
    url = bucket.put("a", DATA)
    target = home(double, "a")
    double.kill(target, noticed_after=2)
    with pytest.raises(StorageError, match=target) as caught:
        open_ais(url, patience=0.3, **QUICK)
    assert not isinstance(caught.value, MissingShardError)
    assert (caught.value.status, caught.value.retryable) == (404, True)


def test_an_object_that_is_gone_with_its_target_is_there_again_when_the_target_is(bucket, double):
    url = bucket.put("a", DATA)
    target = home(double, "a")
    assert AisObject(url).size() == len(DATA)
    double.leave(target)
    asked = double.map
    double.map = lambda: (double.revive(target), asked())[1] if double.nodes[target].dead else asked()
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA


@pytest.mark.parametrize(
    ("flags", "known"), [(smap.MAINTENANCE, False), (smap.DECOMMISSION, False), (smap.MAINTENANCE, True)]
)
def test_a_target_in_maintenance_is_waited_for_unless_its_objects_were_moved(bucket, double, flags, known):
    if known:
        list(AisObject(bucket.url("")).list())
    double.flags["t1"] = flags
    with pytest.raises(StorageError, match="t1") as caught:
        AisObject(bucket.url("none"), patience=0, **QUICK).size()
    assert not isinstance(caught.value, MissingShardError)
    double.flags["t1"] = flags | smap.MOVED
    with pytest.raises(MissingShardError):
        AisObject(bucket.url("none"), patience=0, **QUICK).size()


def test_a_target_that_was_decommissioned_is_not_missed(bucket, double, monkeypatch):
    monkeypatch.setattr(smap, "SETTLE_SECONDS", 0.05)
    list(AisObject(bucket.url("")).list())
    double.flags["t1"] = smap.DECOMMISSION
    list(AisObject(bucket.url("")).list(partial=True))
    with pytest.raises(StorageError, match="t1"):
        list(AisObject(bucket.url(""), patience=0).list())
    double.leave("t1")
    assert list(AisObject(bucket.url("")).list()) == []


def test_a_cluster_that_keeps_its_map_to_itself_is_taken_to_be_whole(bucket, double):
    asked = []
    double.map = lambda: (asked.append("map"), forbidden())
    bucket.put("a", b"xyz")
    assert [AisObject(bucket.url("a")).size() for _ in range(5)] == [3] * 5
    assert asked == ["map"]
    with pytest.raises(MissingShardError):
        AisObject(bucket.url("none")).size()
    assert list(AisObject(bucket.url("")).list()) == [(bucket.url("a"), 3)]


def test_a_cluster_that_is_not_ready_is_not_believed(bucket, double):
    double.starting = True
    with pytest.raises(StorageError, match="ready") as caught:
        AisObject(bucket.url("none"), patience=0.1, **QUICK).size()
    assert not isinstance(caught.value, MissingShardError)


def forbidden():
    raise Answer(403, message="no permission")


def test_patience_ends(bucket, double):
    url = bucket.put("a", DATA)
    double.kill(home(double, "a"))
    with pytest.raises(UnavailableError):
        open_ais(url, patience=1, **QUICK)


def test_patience_is_90_seconds_and_can_be_set(monkeypatch):
    from webdataset.storage.ais.client import cluster_of

    assert cluster_of("ais://b/a", "http://h").options.patience == 90
    monkeypatch.setenv("WDS_AIS_PATIENCE", "7.5")
    assert cluster_of("ais://b/a", "http://h").options.patience == 7.5


def test_a_proxy_that_was_never_there_is_an_error_that_names_the_setting(double):
    double.nodes["p1"].kill()
    with pytest.raises(UnavailableError, match="refused") as caught:
        open_ais("ais://b/a", patience=0.2, **QUICK)
    assert "AIS_ENDPOINT" in caught.value.hint
    double.revive("p1")


def test_a_proxy_that_answered_once_has_patience_in_all_later_calls(bucket, double):
    url = bucket.put("a", DATA)
    assert AisObject(url).size() == len(DATA)
    double.nodes["p1"].kill()
    with pytest.raises(UnavailableError, match="refused"):
        AisObject(url, patience=1, **QUICK).size()
    back = threading.Timer(1, double.revive, ["p1"])
    back.start()
    with open_ais(url, **QUICK) as stream:
        assert stream.read() == DATA
    back.join()


def test_closing_does_not_wait_for_the_patience(bucket, double):
    url = bucket.put("a", DATA * 20)
    double.cuts = [1000]
    report = Report()
    with report.in_force():
        stream = open_ais(url, patience=1000, **QUICK)
    double.kill(home(double, "a"))
    thread = threading.Thread(target=_read_until_closed, args=(stream,))
    thread.start()
    while report.counts["waits"] < 2:  # the body was cut, then its target is gone
        thread.join(0.01)
    stream.close()
    thread.join()


def _read_until_closed(stream):
    with pytest.raises((ValueError, OSError)):
        stream.read()


def test_a_list_that_is_cut_is_asked_for_again(bucket, double):
    bucket.put("a", b"xyz")
    double.refusals = [Answer(200, b'{"entries": [{"name": "z"}]}', cut=5), Answer(200, b"x" * 100, cut=0)]
    assert list(AisObject(bucket.url(""), **QUICK).list()) == [(bucket.url("a"), 3)]


def test_a_list_waits_for_a_target_that_is_down(bucket, double):
    names = [bucket.put(f"{number}", b"x") for number in range(10)]
    double.refusals = [Answer(400, message="failed to list", code="ErrFailedTo")]
    double.kill("t2")
    back = threading.Timer(0.5, double.revive, ["t2"])
    back.start()
    assert sorted(url for url, _ in AisObject(bucket.url(""), **QUICK).list()) == sorted(names)
    back.join()


def test_a_list_without_a_target_that_was_there_is_refused(bucket, double):
    for number in range(10):
        bucket.put(f"{number}.tar", b"x")
    assert len(list(AisObject(bucket.url("")).list())) == 10
    double.leave("t2")
    with pytest.raises(StorageError, match="t2") as caught:
        list(AisObject(bucket.url(""), patience=0.1, **QUICK).list())
    assert (caught.value.retryable, "targets" in caught.value.hint) == (True, True)
    assert 0 < len(list(AisObject(bucket.url("")).list(partial=True))) < 10


def test_a_target_that_is_lost_during_a_list_is_an_error_at_its_end(bucket, double):
    for number in range(10):
        bucket.put(f"{number}.tar", b"x")
    found = AisObject(bucket.url(""), patience=0.1, **QUICK).list(pagesize=2)
    next(found)
    double.leave("t2")
    with pytest.raises(StorageError, match="t2"):
        list(found)


def test_a_dead_target_does_not_matter_to_the_list_of_another_store(bucket, double):
    list(AisObject(bucket.url("")).list())
    double.leave("t2")
    assert list(AisObject("s3://b/").list()) == []


def test_the_whole_message_of_the_cluster_is_told(bucket):
    for asked in (open_ais, lambda url: AisObject(url).size()):
        with pytest.raises(MissingShardError, match='"ais://no-such"') as raised:  # the cluster's own words
            asked("ais://no-such/a")
        assert (raised.value.url, raised.value.status) == ("ais://no-such/a", 404)


def test_a_message_cannot_garble_the_terminal(bucket, double):
    double.refusals = [Answer(403, message="\x1b[2J" + "x" * 1000)]
    with pytest.raises(StorageError, match="xxx") as caught:
        open_ais(bucket.url("a"))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_a_namespace_is_no_password(bucket):
    with pytest.raises(StorageError, match="ais://@uuid#space/b/a"):
        open_ais("ais://@uuid#space/b/a")


def test_an_answer_that_is_no_cluster_is_an_error(bucket, double):
    double.refusals = [Answer(200, b"<html>login</html>")]
    with pytest.raises(StorageError, match="AIS_ENDPOINT"):
        list(AisObject(bucket.url("")).list())


# -- writing -------------------------------------------------------------------------------------------


def test_the_body_of_an_upload_never_goes_to_the_proxy(bucket, double):
    with AisObject(bucket.url("a")).upload() as sink:
        sink.write(DATA * 20)
    assert bucket.get("a") == DATA * 20
    assert double.bodies_at_proxy == 0
    headers = next(headers for method, _, headers in double.seen("t") if method == "PUT")
    assert headers["content-length"] == str(len(DATA) * 20)
    assert headers["ais-checksum-type"] == "xxhash2"


def test_an_upload_to_a_dead_target_is_sent_again(bucket, double):
    sink = AisObject(bucket.url("a"), **QUICK).upload()
    sink.write(DATA)
    double.kill(home(double, "a"), noticed_after=3)
    sink.close()
    assert bucket.get("a") == DATA


def test_an_upload_that_is_stored_otherwise_is_an_error(bucket, double, monkeypatch):
    from servers.aistore_nodes import Stored, Target

    def shortened(self, mine, bucket, name):
        mine[bucket, name] = stored = Stored(self.body()[:-1])
        raise Answer(200, headers=self.described(stored))

    monkeypatch.setattr(Target, "store", shortened)
    with pytest.raises(StorageError, match="300000"):
        put(bucket.url("a"), DATA)


def test_a_checksum_that_the_target_refuses_is_an_error_at_once(bucket, double, monkeypatch):
    monkeypatch.setattr("servers.aistore_nodes.checksum_of", lambda _data: "f" * 16)
    with pytest.raises(StorageError, match="ErrBadCksum") as caught:
        put(bucket.url("a"), b"x")
    assert caught.value.status == 500
    assert bucket.get("a") is None


def put(url, data, **options):
    with AisObject(url, **options).upload() as sink:
        sink.write(data)


@pytest.mark.parametrize("other", [DATA[::-1], b"shorter"])
@pytest.mark.parametrize("checksums", [True, False])
def test_a_writer_whose_object_was_replaced_has_succeeded_and_leaves_the_other(bucket, double, checksums, other):
    double.checksums = checksums
    double.meanwhile = [lambda: bucket.put("a", other)]
    put(bucket.url("a"), DATA)
    assert bucket.get("a") == other
    assert "DELETE" not in {method for method, _, _ in double.seen("t")}


def test_a_writer_whose_object_was_removed_learns_it(bucket, double):
    double.meanwhile = [lambda: (double.destroy("b"), double.buckets.add("b"))]
    with pytest.raises(StorageError):
        put(bucket.url("a"), DATA)


def test_two_writers_of_the_same_bytes_both_succeed(bucket, double):
    double.meanwhile = [lambda: bucket.put("a", DATA)]
    put(bucket.url("a"), DATA)
    put(bucket.url("a"), DATA)
    assert bucket.get("a") == DATA


def test_of_writers_that_race_the_last_one_wins_and_none_is_an_error(bucket):
    """The last of 150 races of four is as sound as the first: what is there is what one of them wrote."""
    with ThreadPoolExecutor(4) as pool:
        for race in range(150):
            contents = [b"%d of %d " % (writer, race) * (writer + 1) for writer in range(4)]
            assert list(pool.map(lambda data: put(bucket.url("a"), data), contents)) == [None] * 4
            assert bucket.get("a") in contents


def test_an_upload_that_is_cut_leaves_the_object_of_another_writer(bucket, double):
    address = f"{bucket.endpoint}/v1/objects/b/a?provider=ais"
    bucket.put("a", b"old")
    place = request("PUT", address).headers["Location"]
    with socket.create_connection(("127.0.0.1", int(place.split(":")[2].split("/")[0]))) as half:
        path = place.split("/", 3)[3]
        half.sendall(f"PUT /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf of it".encode())
    assert bucket.get("a") == b"old"


@pytest.mark.parametrize("affordable", [True, False])
def test_a_token_that_may_only_write_is_enough_to_write(bucket, double, monkeypatch, affordable):
    monkeypatch.setattr(xxhash, "is_affordable", lambda _size: affordable)
    double.secret = SECRET
    put(bucket.url("a"), DATA, token=token(SECRET, admin=False, methods=("PUT",)))
    double.secret = None
    assert bucket.get("a") == DATA


def test_a_refused_upload_says_why(bucket, double, monkeypatch):
    double.secret = SECRET
    sink = AisObject(bucket.url("a"), token=token(SECRET, admin=False)).upload()
    sink.write(b"x")
    with pytest.raises(StorageError, match="permission") as caught:
        sink.close()
    assert caught.value.status == 403
    assert json.dumps(sorted(double.names("b"))) == "[]"
