"""What goes wrong in an AIStore cluster, shown on the double."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import webdataset as wds
from servers.aistore import Bucket, DoubleCluster
from servers.aistore_nodes import Answer, token
from tests_support import tar_bytes
from webdataset import ais
from webdataset.errors import MissingShardError, SecurityError, StorageError
from webdataset.reports import Report
from webdataset.storage import xxhash
from webdataset.storage.ais import STORE, open_ais

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
    assert STORE.size(url) == len(DATA)
    with STORE.put(bucket.url("ö x.tar")) as sink:
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
    with STORE.put(url) as sink:
        sink.write(b"new")
    assert STORE.size(url) == 3
    assert len(list(STORE.list(bucket.url("")))) == 1
    assert list(ais.get_batch([url])) == [(url, b"new")]
    assert len(double.seen("p")) >= before + 6
    assert all("authorization" in headers for _, _, headers in double.seen("p")[before:])
    assert all("authorization" not in headers for _, _, headers in double.seen("t"))


def test_no_token_is_an_error_at_once_with_the_cure(bucket, double):
    double.secret = SECRET
    with pytest.raises(StorageError, match=r"401.*token required.*AIS_AUTHN_TOKEN"):
        open_ais(bucket.url("a"))
    assert len(double.seen("p")) == 1


@pytest.mark.parametrize(
    ("claims", "message"), [({"seconds": -10}, r"401.*token expired"), ({"admin": False}, r"403.*no permission")]
)
def test_a_token_that_does_not_do_is_an_error_that_does_not_show_it(bucket, double, claims, message):
    double.secret = SECRET
    jwt = token(SECRET, **claims)
    with pytest.raises(StorageError, match=message) as caught:
        open_ais(bucket.url("a"), token=jwt)
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
    from webdataset.storage.ais_client import AisConnector, Cluster

    connector = AisConnector(Cluster("https://host"), "https://host/v1/objects/b/a", "ais://b/a")
    with pytest.raises(SecurityError, match="https to http"):
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
@given(st.lists(st.integers(0, 20_000), max_size=6), st.booleans(), st.integers(1, 70_000))
def test_any_cuts_give_the_same_bytes(shared_bucket, cuts, ranges, size):
    double = shared_bucket.double
    double.cuts, double.range_checksums = list(cuts), ranges
    with open_ais(shared_bucket.url("a"), **QUICK) as stream:
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
        with pytest.raises(StorageError, match=r"got 1000 of 300000 bytes, then the object changed"):
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
        with pytest.raises(StorageError, match="other bytes when asked again"):
            stream.read()


def test_a_transformation_in_the_cluster(bucket):
    url = bucket.put("a", b"hello")
    with open_ais(url, etl_name="upper", etl_args={"x": 1}) as stream:
        assert stream.read() == b'HELLO{"x": 1}'
    with wds.gopen(f"{url}?etl_name=upper") as stream:
        assert stream.read() == b"HELLO"
    with pytest.raises(StorageError, match="501"):
        open_ais(url, etl_name="none")


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


def test_an_object_that_is_gone_with_its_target_is_missing_when_patience_ends(bucket, double):
    url = bucket.put("a", DATA)
    double.kill(home(double, "a"), noticed_after=2)
    with pytest.raises(MissingShardError, match=r"404.*waited \d+ s"):
        open_ais(url, patience=0.3, **QUICK)


def test_patience_ends(bucket, double):
    url = bucket.put("a", DATA)
    double.kill(home(double, "a"))
    with pytest.raises(StorageError, match=r"cannot reach the cluster.*waited [1-9]\d* s"):
        open_ais(url, patience=1, **QUICK)


def test_patience_is_90_seconds_and_can_be_set(monkeypatch):
    from webdataset.storage.ais_client import Cluster

    assert Cluster("http://h").seconds == 90
    monkeypatch.setenv("WDS_AIS_PATIENCE", "7.5")
    assert Cluster("http://h").seconds == 7.5


def test_a_proxy_that_was_never_there_is_an_error_soon(double, monkeypatch):
    double.nodes["p1"].kill()
    with pytest.raises(StorageError, match=r"Connection refused.*check AIS_ENDPOINT"):
        open_ais("ais://b/a", **QUICK)
    double.revive("p1")


def test_closing_does_not_wait_for_the_patience(bucket, double):
    url = bucket.put("a", DATA * 20)
    double.cuts = [1000]
    stream = open_ais(url, patience=1000, **QUICK)
    double.kill(home(double, "a"))
    thread = threading.Thread(target=_read_until_closed, args=(stream,))
    thread.start()
    while not stream.source._connector.waits:
        thread.join(0.01)
    stream.close()
    thread.join()


def _read_until_closed(stream):
    with pytest.raises((ValueError, OSError)):
        stream.read()


def test_a_list_that_is_cut_is_asked_for_again(bucket, double):
    bucket.put("a", b"xyz")
    double.refusals = [Answer(200, b'{"entries": [{"name": "z"}]}', cut=5), Answer(200, b"x" * 100, cut=0)]
    assert list(STORE.list(bucket.url(""), **QUICK)) == [(bucket.url("a"), 3)]


def test_an_answer_that_is_no_cluster_is_an_error(bucket, double):
    double.refusals = [Answer(200, b"<html>login</html>")]
    with pytest.raises(StorageError, match="AIS_ENDPOINT"):
        list(STORE.list(bucket.url("")))


# -- writing -------------------------------------------------------------------------------------------


def test_the_body_of_an_upload_never_goes_to_the_proxy(bucket, double):
    with STORE.put(bucket.url("a")) as sink:
        sink.write(DATA * 20)
    assert bucket.get("a") == DATA * 20
    assert double.bodies_at_proxy == 0
    headers = next(headers for method, _, headers in double.seen("t") if method == "PUT")
    assert headers["content-length"] == str(len(DATA) * 20)
    assert headers["ais-checksum-type"] == "xxhash2"


def test_an_upload_to_a_dead_target_is_sent_again(bucket, double):
    sink = STORE.put(bucket.url("a"), **QUICK)
    sink.write(DATA)
    double.kill(home(double, "a"), noticed_after=3)
    sink.close()
    assert bucket.get("a") == DATA


def test_an_upload_that_is_stored_otherwise_is_removed_and_an_error(bucket, double, monkeypatch):
    from servers.aistore_nodes import Stored, Target

    def shortened(self, mine, bucket, name):
        mine[bucket, name] = Stored(self.body()[:-1])
        raise Answer(200)

    monkeypatch.setattr(Target, "store", shortened)
    sink = STORE.put(bucket.url("a"))
    sink.write(DATA)
    with pytest.raises(StorageError, match="something else"):
        sink.close()
    assert bucket.get("a") is None


def test_a_checksum_that_the_target_refuses_is_an_error(bucket, double, monkeypatch):
    monkeypatch.setattr(xxhash.XXH64, "hexdigest", lambda self: "0" * 16)
    monkeypatch.setattr(xxhash, "is_fast", lambda: False)
    monkeypatch.setattr(
        "servers.aistore_nodes.XXH64", lambda data: type("H", (), {"hexdigest": lambda self: "f" * 16})()
    )
    sink = STORE.put(bucket.url("a"))
    sink.write(b"x")
    with pytest.raises(StorageError, match=r"500.*ErrBadCksum"):
        sink.close()


def test_a_refused_upload_says_why(bucket, double, monkeypatch):
    double.secret = SECRET
    sink = STORE.put(bucket.url("a"), token=token(SECRET, admin=False))
    sink.write(b"x")
    with pytest.raises(StorageError, match=r"403.*no permission"):
        sink.close()
    assert json.dumps(sorted(double.names("b"))) == "[]"
