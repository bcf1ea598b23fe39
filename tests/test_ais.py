"""GetBatch: against the cluster of AIS_ENDPOINT, else the double; faults on the double."""

from __future__ import annotations

import os
import threading

import pytest

from servers.aistore_nodes import Answer, token
from tests_support import tar_bytes
from webdataset import ais
from webdataset.base.reports import Report
from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.ais.objects import AisObject

QUICK = {"first_pause": 0.001}


@pytest.fixture
def urls(ais_bucket):
    """Objects and members, in an order that is not that of their names."""
    shard = ais_bucket.put("s.tar", tar_bytes([("x/1.txt", b"one"), ("2.txt", b"two")]))
    objects = [ais_bucket.put(f"{number}.bin", bytes([number]) * (10 ** (number % 6))) for number in range(12)]
    return [*objects[::-1], f"{shard}?archpath=2.txt", f"{shard}?archpath=x/1.txt", objects[3]]


def expected(urls):
    data = {f"{number}.bin": bytes([number]) * (10 ** (number % 6)) for number in range(12)}
    data |= {"s.tar?archpath=2.txt": b"two", "s.tar?archpath=x/1.txt": b"one"}
    return [(url, data[url.split("/", 3)[3]]) for url in urls]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("batch_items", [1, 4, 1000])
def test_a_batch_has_what_was_asked_for_in_its_order(urls, ais_bucket, streaming, batch_items):
    assert list(ais.get_batch(urls, streaming=streaming, batch_items=batch_items)) == expected(urls)
    assert ais_bucket.double is None or singles(ais_bucket.double) == 0


def test_nothing_asked_is_nothing_given():
    assert list(ais.get_batch([])) == []


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("place", [0, 3, 12])
def test_what_is_missing_is_an_error_that_names_it(urls, ais_bucket, place, streaming):
    absent = ais_bucket.url("none.bin")
    wanted = [*urls[:place], absent, *urls[place : place + 2]] if place < 12 else [*urls, absent]
    with pytest.raises(MissingShardError) as caught:
        list(ais.get_batch(wanted, streaming=streaming, patience=5))
    assert caught.value.url == absent or not streaming


@pytest.mark.parametrize("streaming", [True, False])
def test_what_is_missing_can_be_none(urls, ais_bucket, streaming):
    absent = ais_bucket.url("none.bin")
    found = list(ais.get_batch([absent, *urls, absent], missing="none", streaming=streaming))
    assert found == [(absent, None), *expected(urls), (absent, None)]


@pytest.mark.parametrize("options", [{"missing": "what"}, {"batch_items": 0}])
def test_options_are_checked_before_anything_is_asked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ais.get_batch([], **options)


# -- faults --------------------------------------------------------------------------------------------


@pytest.fixture
def many(ais_double):
    return [
        (ais_double.put(f"{number:02d}", os.urandom(3000)), ais_double.get(f"{number:02d}")) for number in range(30)
    ]


def test_a_batch_that_breaks_goes_on_with_the_next_item(many, ais_double):
    ais_double.double.batch_cuts = [0, 10_000, 33_333, 5, 600]
    assert list(ais.get_batch([url for url, _ in many])) == many


@pytest.mark.parametrize("missing", ["raise", "none"])
def test_a_batch_that_always_breaks_comes_singly(many, ais_double, missing):
    ais_double.double.batch_cuts = [10_000] + [10] * 100
    assert list(ais.get_batch([url for url, _ in many], missing=missing)) == many
    asked = [path for method, path, _ in ais_double.double.seen("t") if "/ml/moss/" in path]
    assert len(asked) <= 8  # the more fail, the fewer are tried


SMAP = Answer(409, message='t1: different Smap version from p1(p1): "7" vs local Smap v8', code="ErrHTTP")
FAILED = Answer(400, message='t1: failed to prepare: Get "http://t2": connection refused', code="ErrFailedTo")


@pytest.mark.parametrize("missing", ["raise", "none"])
@pytest.mark.parametrize("refusals", [[SMAP], [FAILED], [FAILED] * 3 + [SMAP] * 2], ids=["409", "400", "both"])
def test_a_batch_that_the_nodes_cannot_agree_on_is_asked_for_again(many, ais_double, refusals, missing):
    ais_double.double.batch_refusals = list(refusals)
    assert list(ais.get_batch([url for url, _ in many], missing=missing, **QUICK)) == many


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("stall", [0, 20_000])
def test_what_a_silent_batch_leaves_out_is_read_singly_without_another_silence(many, ais_double, streaming, stall):
    """A cluster whose targets have changed keeps silent for 20 s before each item that another target should have."""
    double = ais_double.double
    double.batch_stalls = [stall] * 100
    assert list(ais.get_batch([url for url, _ in many], streaming=streaming, timeout=0.3)) == many
    assert len(double.batch_stalls) == 99
    assert singles(double) >= 20 or not streaming


def test_a_batch_is_not_waited_for_as_long_as_an_object(many, ais_double, monkeypatch):
    monkeypatch.setattr("webdataset.storage.ais.batch.SILENT_SECONDS", 0.3)
    ais_double.double.batch_stalls = [5000]
    assert list(ais.get_batch([url for url, _ in many])) == many


@pytest.mark.parametrize("function", [ais.get_batch, ais.list_objects])
def test_an_option_that_does_not_exist_is_named_with_those_that_do(function):
    with pytest.raises(ValueError, match="'timeout'"):
        function("ais://b/a", timeouts=3)
    with pytest.raises(ValueError, match="timeout"):
        function("ais://b/a", timeout=-1)


def test_a_list_takes_the_storage_options(ais_double, monkeypatch):
    url = ais_double.put("a", b"xyz")
    monkeypatch.delenv("AIS_ENDPOINT")
    options = {"endpoint": ais_double.endpoint, "timeout": (3, 30), "patience": 5, "connections": 2}
    assert list(ais.list_objects(ais_double.url(""), **options)) == [(url, 3)]
    assert list(ais.get_batch([url], **options)) == [(url, b"xyz")]


@pytest.mark.parametrize("missing", ["raise", "none"])
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("target", ["t1", "t2"])
def test_what_a_dead_target_holds_is_waited_for(many, ais_double, target, streaming, missing):
    """t1 makes the archives; what t2 holds is then named __404__ in them."""
    ais_double.double.kill(target, back_after=8)
    assert list(ais.get_batch([url for url, _ in many], missing=missing, streaming=streaming, **QUICK)) == many


@pytest.mark.parametrize("missing", ["raise", "none"])
def test_what_a_lost_target_held_is_waited_for_until_it_is_back(many, ais_double, missing):
    double = ais_double.double
    found = ais.get_batch([url for url, _ in many], missing=missing, batch_items=10, **QUICK)
    assert next(found) == many[0]
    double.leave("t2")
    back = threading.Timer(0.5, double.revive, ["t2"])
    back.start()
    assert list(found) == many[1:]
    back.join()


@pytest.mark.parametrize("missing", ["raise", "none"])
def test_what_a_lost_target_held_is_never_said_to_be_missing(many, ais_double, missing):
    double = ais_double.double
    assert list(ais.get_batch([many[0][0]])) == many[:1]
    double.leave("t2")
    with pytest.raises(StorageError, match="t2") as caught:
        list(ais.get_batch([url for url, _ in many], missing=missing, patience=0.2, **QUICK))
    assert not isinstance(caught.value, MissingShardError)
    assert (caught.value.status, caught.value.retryable) == (404, True)


def test_what_is_missing_is_none_at_once_in_a_cluster_that_is_whole(many, ais_double):
    absent = ais_double.url("none")
    report = Report()
    with report.in_force():
        assert list(ais.get_batch([absent], missing="none")) == [(absent, None)]
    assert report.counts["waits"] == 0


def test_many_missing_ones_are_none(many, ais_double):
    urls = [url for pair in zip(many, range(30), strict=True) for url in (pair[0][0], ais_double.url(f"none{pair[1]}"))]
    found = list(ais.get_batch(urls, missing="none"))
    assert found == [(url, dict(many).get(url)) for url in urls]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("place", [0, 1])
def test_a_member_of_a_missing_shard_is_missing(many, ais_double, place, streaming):
    absent = ais_double.url("none.tar?archpath=x/1.txt")
    wanted = [many[0][0], absent, many[1][0]][1 - place :]
    found = dict(ais.get_batch(wanted, missing="none", streaming=streaming))
    assert found == {url: dict(many).get(url) for url in wanted}
    with pytest.raises(MissingShardError) as caught:
        list(ais.get_batch(wanted, streaming=streaming))
    assert caught.value.url == absent


def test_an_object_may_be_named_like_what_is_missing(ais_double):
    urls = [ais_double.put("__404__/a", b"here"), ais_double.put("__404__/b", b"")]
    assert list(ais.get_batch(urls)) == [(urls[0], b"here"), (urls[1], b"")]


@pytest.mark.parametrize("streaming", [True, False])
def test_empty_objects_are_empty(ais_double, streaming):
    urls = [ais_double.put(f"{number}", b"") for number in range(3)]
    assert list(ais.get_batch(urls, streaming=streaming)) == [(url, b"") for url in urls]
    assert singles(ais_double.double) == 0


def test_the_proxy_is_told_of_colocation(many, ais_double):
    assert list(ais.get_batch([many[0][0]], coloc=2)) == many[:1]
    assert all("coloc=2" in path for kind in "pt" for _, path, _ in ais_double.double.seen(kind) if "/ml/moss" in path)
    assert any("/ml/moss" in path for _, path, _ in ais_double.double.seen("p"))


@pytest.mark.parametrize("streaming", [True, False])
def test_a_batch_crosses_buckets_and_namespaces(ais_double, streaming):
    double = ais_double.double
    double.buckets |= {"c", "@#space/b", "@far#space/b"}
    data = {"ais://b/a": b"one", "ais://c/a": b"two", "ais://#space/b/a": b"three", "ais://@far#space/b/a": b"four"}
    for url, content in data.items():
        with AisObject(url).upload() as sink:
            sink.write(content)
    wanted = [*data, *reversed(data)]
    assert list(ais.get_batch(wanted, streaming=streaming)) == [(url, data[url]) for url in wanted]
    assert singles(double) == 0
    assert list(ais.get_batch(["ais://@far#space/b/none"], missing="none")) == [("ais://@far#space/b/none", None)]


def singles(double):
    """How many objects were read by themselves."""
    return sum(method == "GET" and "/objects/" in path for method, path, _ in double.seen("t"))


def test_what_may_not_be_read_is_an_error_at_once(many, ais_double):
    ais_double.double.secret = b"secret"
    jwt = token(b"secret", admin=False, methods=("PUT",))
    with pytest.raises(StorageError) as caught:
        list(ais.get_batch([url for url, _ in many], token=jwt))
    assert (caught.value.status, caught.value.retryable) == (403, False)
    assert "AIS_AUTHN_TOKEN" in caught.value.hint


def test_a_cluster_under_load_is_waited_for(many, ais_double):
    ais_double.double.refusals = [Answer(429), Answer(503)]
    assert list(ais.get_batch([url for url, _ in many], **QUICK)) == many


def test_a_member_in_the_wrong_place_is_an_error(many, ais_double, monkeypatch):
    lookup = ais_double.double.lookup
    monkeypatch.setattr("servers.aistore_nodes.archive_of", shuffled)
    with pytest.raises(StorageError, match="place"):
        list(ais.get_batch([url for url, _ in many], patience=0.2))
    assert lookup("b", "00") is not None


def shuffled(message, bucket, lookup):
    from servers.aistore_objects import archive_of

    return archive_of(message | {"in": message["in"][::-1]}, bucket, lookup)


def test_more_than_was_asked_for_is_an_error(many, monkeypatch):
    from servers.aistore_objects import archive_of

    def doubled(message, bucket, lookup):
        return archive_of(message | {"in": message["in"] * 2}, bucket, lookup)

    monkeypatch.setattr("servers.aistore_nodes.archive_of", doubled)
    with pytest.raises(StorageError, match="30"):
        list(ais.get_batch([url for url, _ in many], patience=0.2))


def test_an_answer_without_its_end_is_never_taken_for_missing_items(many, ais_double, monkeypatch):
    """In this mode the cluster names what is missing; an archive that just ends is one that was given up."""
    from servers.aistore_objects import archive_of

    def given_up(message, bucket, lookup):
        return archive_of(message | {"in": message["in"][:7]}, bucket, lookup)

    monkeypatch.setattr("servers.aistore_nodes.archive_of", given_up)
    assert list(ais.get_batch([url for url, _ in many], missing="none")) == many


def test_stopping_early_closes_the_connection(many):
    found = ais.get_batch([url for url, _ in many])
    assert next(found) == many[0]
    found.close()
