"""GetBatch: against the cluster of AIS_ENDPOINT, else the double; faults on the double."""

from __future__ import annotations

import os

import pytest

from servers.aistore_nodes import Answer
from tests_support import tar_bytes
from webdataset import ais
from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.ais_batch import item_of, open_batch

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
def test_a_batch_has_what_was_asked_for_in_its_order(urls, streaming, batch_items):
    assert list(ais.get_batch(urls, streaming=streaming, batch_items=batch_items)) == expected(urls)


def test_nothing_asked_is_nothing_given():
    assert list(ais.get_batch([])) == []


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("place", [0, 3, 12])
def test_what_is_missing_is_an_error_that_names_it(urls, ais_bucket, place, streaming):
    absent = ais_bucket.url("none.bin")
    wanted = [*urls[:place], absent, *urls[place : place + 2]] if place < 12 else [*urls, absent]
    with pytest.raises(MissingShardError) as caught:
        list(ais.get_batch(wanted, streaming=streaming, patience=5))
    assert absent in str(caught.value) or not streaming


@pytest.mark.parametrize("streaming", [True, False])
def test_what_is_missing_can_be_none(urls, ais_bucket, streaming):
    absent = ais_bucket.url("none.bin")
    found = list(ais.get_batch([absent, *urls, absent], missing="none", streaming=streaming))
    assert found == [(absent, None), *expected(urls), (absent, None)]


@pytest.mark.parametrize("options", [{"missing": "what"}, {"batch_items": 0}])
def test_options_are_checked_before_anything_is_asked(options):
    with pytest.raises(ValueError, match="must be"):
        ais.get_batch([], **options)


@pytest.mark.parametrize("url", ["ais://b", "ais://b/a?etl_name=x", "http://h/a"])
def test_a_batch_takes_objects_and_members_only(url):
    with pytest.raises(StorageError):
        list(ais.get_batch([url]))


def test_an_empty_batch_is_no_request():
    with pytest.raises(ValueError, match="at least one"):
        open_batch([])


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


def test_a_cluster_under_load_is_waited_for(many, ais_double):
    ais_double.double.refusals = [Answer(429), Answer(503)]
    assert list(ais.get_batch([url for url, _ in many], **QUICK)) == many


def test_a_member_in_the_wrong_place_is_an_error(many, ais_double, monkeypatch):
    lookup = ais_double.double.lookup
    monkeypatch.setattr("servers.aistore_nodes.archive_of", shuffled)
    with pytest.raises(StorageError, match="in the place of"):
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
    with pytest.raises(StorageError, match="more than the 30 items"):
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


def test_a_member_is_known_by_its_name_with_and_without_the_bucket():
    item = item_of("ais://b/a.tar?archpath=x/1.jpg")
    assert item.is_called("a.tar/x/1.jpg")
    assert item.is_called("b/a.tar/x/1.jpg")
    assert not item.is_called("x/1.jpg")
