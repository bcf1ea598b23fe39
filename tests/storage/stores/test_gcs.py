"""Google Cloud Storage: tokens, and uploads that the store takes up half way."""

from __future__ import annotations

import json
import os

import pytest

from servers.doubles import Double, Reply
from webdataset.errors import MissingShardError, StorageError
from webdataset.gopen import gopen
from webdataset.shardlists import expand_urls
from webdataset.storage.stores import uploads
from webdataset.storage.stores.gcs import GcsClient
from webdataset.storage.stores.lookup import stored_object


def user(refresh="good"):
    return {"type": "authorized_user", "client_id": "id", "client_secret": "hush", "refresh_token": refresh}


pytestmark = pytest.mark.usefixtures("nobody")


@pytest.fixture
def private(gcs_server):
    """A store that wants a token, at an address that is nobody's emulator."""
    gcs_server.gcs.needs_token = True
    gcs_server.gcs.buckets["bucket"] = {"a.tar": b"data"}
    return gcs_server.gcs


def credentials(monkeypatch, tmp_path, private, **info):
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"token_uri": f"{private.double.url}/token"} | info))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))


def read(private, url="gs://bucket/a.tar"):
    with gopen(url, endpoint=private.double.url) as stream:
        return stream.read()


def test_without_credentials_a_private_bucket_is_an_error_with_the_cure(private):
    with pytest.raises(StorageError) as raised:
        read(private)
    assert raised.value.status == 401
    assert "GOOGLE_APPLICATION_CREDENTIALS" in raised.value.hint


def test_a_token_that_is_not_enough_is_an_error(private, monkeypatch, tmp_path):
    credentials(monkeypatch, tmp_path, private, **user())
    monkeypatch.setattr("servers.gcs.TOKEN", "another")
    with Double(lambda question: Reply(200, b'{"access_token": "weak", "expires_in": 3600}')) as double:
        credentials(monkeypatch, tmp_path, private, **user() | {"token_uri": f"{double.url}/token"})
        with pytest.raises(StorageError) as caught:
            read(private)
    assert (caught.value.status, "account" in caught.value.hint) == (403, True)
    assert "weak" not in str(caught.value)


def test_an_emulator_gets_no_token(gcs_server, monkeypatch, tmp_path):
    credentials(monkeypatch, tmp_path, gcs_server.gcs, **user())
    gcs_server.gcs.buckets["bucket"] = {"a.tar": b"data"}
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"127.0.0.1:{gcs_server.port}")
    assert gopen("gs://bucket/a.tar").read() == b"data"
    assert gopen("gcs://bucket/a.tar").read() == b"data"
    assert gopen("htgs://bucket/a.tar").read() == b"data"
    assert not any("authorization" in question.headers for question in gcs_server.gcs.double.questions)


def test_the_token_goes_to_the_endpoint_only(private, monkeypatch, tmp_path):
    credentials(monkeypatch, tmp_path, private, **user())
    client = GcsClient("gs://bucket/a", endpoint=private.double.url)
    assert client.prepare("PUT", "http://elsewhere/upload", {}) == {}
    assert "Authorization" in client.prepare("PUT", f"{private.double.url}/upload", {})


def test_a_part_that_was_kept_by_half_goes_on_from_there(gcs_server, monkeypatch):
    gcs = gcs_server.gcs
    gcs.buckets["bucket"] = {}
    gcs.hiccups = 3
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.double.url)
    data = os.urandom(2 * uploads.FIRST_PART_BYTES + 77)
    with gopen("gs://bucket/a.tar", "wb", first_pause=0.01) as stream:
        stream.write(data)
    assert gcs.buckets["bucket"] == {"a.tar": data}


def test_other_bytes_than_were_sent_are_an_error_and_no_object(gcs_server, monkeypatch):
    gcs = gcs_server.gcs
    gcs.buckets["bucket"] = {}
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.double.url)
    monkeypatch.setattr("servers.gcs.resource", lambda name, data: b'{"size": "3", "md5Hash": "AAAA"}')
    stream = gopen("gs://bucket/a.tar", "wb")
    stream.write(b"abc")
    with pytest.raises(StorageError, match="bytes"):
        stream.close()
    assert gcs.buckets["bucket"] == {}


def test_another_emulator_takes_lists_and_gives_objects(gcp_emulator, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcp_emulator)
    small, large = b"small", os.urandom(2 * uploads.FIRST_PART_BYTES + 77)
    for name, data in (("d/small one.tar", small), ("d/large.tar", large)):
        with gopen(f"gs://bucket/{name}", "wb") as stream:
            stream.write(data)
        assert gopen(f"gs://bucket/{name}").read() == data
    assert expand_urls("gs://bucket/d/*.tar") == ["gs://bucket/d/large.tar", "gs://bucket/d/small one.tar"]
    assert stored_object("gs://bucket/d/large.tar").size() == len(large)
    with pytest.raises(MissingShardError):
        gopen("gs://bucket/none.tar")
