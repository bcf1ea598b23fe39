"""Hugging Face: which file a url names, and who gets the token."""

from __future__ import annotations

import sys

import pytest

from servers.hub import TOKEN
from webdataset.errors import MissingPackageError, MissingShardError, StorageError
from webdataset.gopen import gopen
from webdataset.shardlists import expand_urls
from webdataset.storage.removing import remove
from webdataset.storage.stores.hf import HubClient, hub_path, hub_token

pytestmark = pytest.mark.usefixtures("nobody")


@pytest.fixture
def hub(hub_server, monkeypatch):
    for name, value in hub_server.environment().items():
        monkeypatch.setenv(name, value)
    hub_server.repositories["owner/name"] = {"a.tar": b"data"}
    return hub_server


@pytest.mark.parametrize(
    ("url", "address"),
    [("hf://datasets/o/n/a.tar", "https://huggingface.co/datasets/o/n/resolve/main/a.tar"),
     ("hf://o/n@v1/d/a b.tar", "https://huggingface.co/o/n/resolve/v1/d/a%20b.tar"),
     ("hf://models/o/n/a.tar", "https://huggingface.co/o/n/resolve/main/a.tar"),
     ("hf://spaces/o/n/a.tar", "https://huggingface.co/spaces/o/n/resolve/main/a.tar"),
     ("hf://datasets/o/n@refs%2Fpr%2F1/a.tar", "https://huggingface.co/datasets/o/n/resolve/refs%2Fpr%2F1/a.tar"),
     ("hf://datasets/o/n@refs/pr/1/a.tar", "https://huggingface.co/datasets/o/n/resolve/refs%2Fpr%2F1/a.tar")],
)  # fmt: skip
def test_urls_become_web_addresses(url, address):
    assert HubClient(url).address() == address


@pytest.mark.parametrize(
    "url",
    [
        "hf://o/n",
        "hf://datasets/o/n",
        "hf://",
        "hf://datasets/o/@x/a.tar",
        "hf://datasets/o/n@/a.tar",
        "hf://datasets/o/n/",
    ],
)
def test_a_url_without_a_file_is_an_error(url):
    with pytest.raises(StorageError) as raised:
        gopen(url)
    assert (raised.value.url, "hf://datasets/" in raised.value.hint) == (url, True)


def test_what_is_listed_under_a_url_begins_with_it():
    assert hub_path("hf://datasets/o/n@v/d/a.tar").root == "hf://datasets/o/n@v/"


def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(hub):
    hub.private.add("owner/name")
    assert gopen("hf://datasets/owner/name/a.tar").read() == b"data"
    assert hub.web.questions[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert "authorization" not in hub.cdn.questions[0].headers


def test_a_list_that_goes_on_at_another_host_is_an_error(hub):
    hub.page, hub.elsewhere = 1, hub.cdn.url
    hub.repositories["owner/name"]["b.tar"] = b"more"
    with pytest.raises(StorageError):
        expand_urls("hf://datasets/owner/name/*.tar", storage_options={"headers": {"X-Key": "hush"}})
    assert hub.cdn.questions == []


def test_a_private_repository_needs_the_token(hub, monkeypatch):
    hub.private.add("owner/name")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(StorageError) as raised:
        gopen("hf://datasets/owner/name/a.tar")
    assert (raised.value.status, "HF_TOKEN" in raised.value.hint) == (401, True)
    assert gopen("hf://datasets/owner/name/a.tar", token=TOKEN).read() == b"data"


def test_a_wrong_revision_is_an_error(hub):
    with pytest.raises(MissingShardError, match="revision"):
        gopen("hf://datasets/owner/name@none/a.tar")


def test_the_token_of_a_login_is_found(tmp_path, monkeypatch):
    assert hub_token() is None
    folder = tmp_path / "home" / ".cache" / "huggingface"
    folder.mkdir(parents=True)
    (folder / "token").write_text("hf_saved\n")
    assert hub_token() == "hf_saved"
    monkeypatch.setenv("HF_TOKEN", "hf_variable")
    assert hub_token() == "hf_variable"


def test_an_absent_file_is_removed_without_an_error(hub):
    for _ in range(2):
        remove("hf://datasets/owner/name/a.tar")
        assert hub.repositories["owner/name"] == {}


def test_writing_needs_the_hubs_package(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"'webdataset\[hf\]'"):
        gopen("hf://datasets/owner/name/b.tar", "wb")


def test_a_file_is_one_commit_made_at_the_end(hub):
    pytest.importorskip("huggingface_hub", reason="pip install 'webdataset[hf]'")
    stream = gopen("hf://datasets/owner/name/d/b.tar", "wb")
    stream.write(b"new")
    assert "d/b.tar" not in hub.repositories["owner/name"]
    stream.close()
    assert hub.repositories["owner/name"]["d/b.tar"] == b"new"
    stream = gopen("hf://datasets/owner/none/b.tar", "wb")
    stream.write(b"new")
    with pytest.raises(StorageError) as raised:
        stream.close()
    assert "HF_TOKEN" in raised.value.hint
