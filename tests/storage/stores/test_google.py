from __future__ import annotations

import json
import sys
import time

import pytest

from servers.doubles import Double, Reply
from servers.gcs import TOKEN
from webdataset.errors import MissingPackageError, StorageError
from webdataset.gopen import gopen
from webdataset.storage.stores import google

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


def user(refresh="good"):
    return {"type": "authorized_user", "client_id": "id", "client_secret": "hush", "refresh_token": refresh}


def test_a_users_login_is_exchanged_for_a_token_once(private, monkeypatch, tmp_path):
    credentials(monkeypatch, tmp_path, private, **user())
    assert [read(private), read(private)] == [b"data", b"data"]
    assert [question.words[0] for question in private.double.questions] == ["token", "storage", "storage"]


def test_the_file_of_gclouds_login_is_found(private, monkeypatch, tmp_path):
    folder = tmp_path / "home" / ".config" / "gcloud"
    folder.mkdir(parents=True)
    info = user() | {"token_uri": f"{private.double.url}/token"}
    (folder / "application_default_credentials.json").write_text(json.dumps(info))
    assert read(private) == b"data"


def test_the_login_of_the_account_in_use_is_found(private, tmp_path):
    folder = tmp_path / "home" / ".config" / "gcloud"
    (folder / "configurations").mkdir(parents=True)
    (folder / "active_config").write_text("work\n")
    (folder / "configurations" / "config_work").write_text("[core]\naccount = me@example.com\n")
    login = folder / "legacy_credentials" / "me@example.com"
    login.mkdir(parents=True)
    (login / "adc.json").write_text(json.dumps(user() | {"token_uri": f"{private.double.url}/token"}))
    assert read(private) == b"data"


def test_a_login_that_has_ended_is_an_error_without_its_secrets(private, monkeypatch, tmp_path):
    credentials(monkeypatch, tmp_path, private, **user("bad-hush"))
    with pytest.raises(StorageError, match="invalid_grant") as caught:
        read(private)
    assert (caught.value.status, "gcloud auth" in caught.value.hint) == (400, True)
    assert "hush" not in str(caught.value)


def service_account():
    cryptography = pytest.importorskip("cryptography", reason="pip install 'webdataset[gcs]'")
    assert cryptography
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return key, {"type": "service_account", "client_email": "me@project", "private_key": pem, "private_key_id": "1"}


def test_a_service_account_signs_for_its_token(private, monkeypatch, tmp_path):
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    key, info = service_account()
    credentials(monkeypatch, tmp_path, private, **info)
    assert read(private) == b"data"
    form = private.double.questions[0].body.decode()
    text, _, signature = form.partition("assertion=")[2].rpartition(".")
    key.public_key().verify(unpadded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
    claims = json.loads(unpadded(text.partition(".")[2]))
    assert claims["iss"] == "me@project"
    assert claims["exp"] - claims["iat"] == 3600


def unpadded(text):
    import base64

    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_service_account_without_the_package_is_an_error_with_the_cure(private, monkeypatch, tmp_path):
    info = {"type": "service_account", "client_email": "me@project", "private_key": "hush"}
    credentials(monkeypatch, tmp_path, private, **info)
    for name in ("cryptography.hazmat.primitives", "cryptography"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=r"'webdataset\[gcs\]'"):
        read(private)


def test_a_key_that_is_no_key_is_an_error_that_does_not_quote_it(private, monkeypatch, tmp_path):
    pytest.importorskip("cryptography", reason="pip install 'webdataset[gcs]'")
    info = {"type": "service_account", "client_email": "me@project", "private_key": "hush"}
    credentials(monkeypatch, tmp_path, private, **info)
    with pytest.raises(StorageError, match="key") as caught:
        read(private)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "no json"])
def test_a_file_without_credentials_is_an_error(private, monkeypatch, tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "c.json"))
    with pytest.raises(StorageError, match=r"c\.json"):
        read(private)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(StorageError, match=r"none\.json"):
        read(private)


def test_the_metadata_server_of_a_machine_gives_a_token(private, monkeypatch):
    def answer(question):
        assert question.headers["metadata-flavor"] == "Google"
        return Reply(200, json.dumps({"access_token": TOKEN, "expires_in": 3600}).encode())

    with Double(answer) as double:
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{double.port}")
        assert [read(private), read(private)] == [b"data", b"data"]
        assert len(double.questions) == 1


def test_tokens_are_renewed_before_they_end(private, monkeypatch, tmp_path):
    credentials(monkeypatch, tmp_path, private, **user())
    assert google.google_token() == TOKEN
    now = time.time()
    monkeypatch.setattr("webdataset.storage.stores.credentials.time.time", lambda: now + 3400)
    assert google.google_token() == TOKEN
    assert len(private.double.questions) == 2
