from __future__ import annotations

import base64

import pytest

from webdataset.errors import StorageError
from webdataset.storage.stores.azure import AzureClient
from webdataset.storage.stores.azure_account import EMULATOR_ACCOUNT, EMULATOR_KEY, Account, account_for

pytestmark = pytest.mark.usefixtures("nobody")

KEY = base64.b64encode(b"hush").decode()


def account(host="", **options):
    return account_for(host, options.pop("endpoint", None), anonymous=options.pop("anonymous", False), url="az://c/b")


def test_a_connection_string_says_it_all(monkeypatch):
    text = f"DefaultEndpointsProtocol=https;AccountName=mine;AccountKey={KEY};EndpointSuffix=core.windows.net"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert account() == Account("mine", "https://mine.blob.core.windows.net", KEY)
    assert account("mine.dfs.core.windows.net") == account()
    assert account(anonymous=True) == Account("mine", "https://mine.blob.core.windows.net")


def test_a_connection_string_may_hold_a_sas_token(monkeypatch):
    text = "BlobEndpoint=https://mine.blob.core.windows.net/;SharedAccessSignature=sv=2021&sig=hush%3D"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert account() == Account("mine", "https://mine.blob.core.windows.net", sas="sv=2021&sig=hush%3D")
    assert "hush" not in repr(account())


def test_the_emulator_has_a_short_name(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
    assert account() == Account(EMULATOR_ACCOUNT, f"http://127.0.0.1:10000/{EMULATOR_ACCOUNT}", EMULATOR_KEY)


def test_an_account_and_its_key_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    assert account() == Account("mine", "https://mine.blob.core.windows.net", KEY)


def test_the_key_of_one_account_is_not_shown_to_another(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    assert account("other.dfs.core.windows.net").key == ""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=mine;AccountKey={KEY}")
    assert account("other.dfs.core.windows.net").key == ""


@pytest.mark.parametrize(
    "url",
    [
        "abfss://c@acct.dfs.evil.com/a.tar",
        "abfss://c@acct.blob.evil.com/a.tar",
        "abfss://c@acct.dfs.core.windows.net.evil.com/a.tar",
        "abfss://c@acct.evil.com/a.tar",
    ],
)
def test_a_host_that_only_the_url_names_gets_no_credentials(url, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acct")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=secret")
    client = AzureClient(url)
    assert client.account.is_anonymous
    assert "secret" not in client.address()
    assert "Authorization" not in client.prepare("GET", client.address(), {})


@pytest.mark.parametrize(
    "url",
    [
        "abfss://c@x@evil:8443#/a.tar",
        "abfss://c@evil:8443/a.tar",
        "abfss://c@acct.dfs.core.windows.net:8443/a.tar",
        "abfss://c@ACCT.dfs.core.windows.net/a.tar",
        "abfss://c@acct?x.dfs.core.windows.net/a.tar",
    ],
)
def test_a_url_whose_account_is_none_is_refused(url, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=secret")
    with pytest.raises(StorageError, match="account"):
        AzureClient(url)


@pytest.mark.parametrize("suffix", ["core.windows.net", "core.usgovcloudapi.net", "core.chinacloudapi.cn"])
def test_azures_own_clouds_get_the_credentials(suffix, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acct")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=abc")
    assert AzureClient(f"abfss://c@acct.dfs.{suffix}/a.tar").account.sas == "sv=1&sig=abc"
